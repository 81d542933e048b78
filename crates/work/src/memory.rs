//! The memory that Rust allocates, counted where it is allocated: what an operation holds, and what the process holds.
//!
//! The allocator of the binary calls [`allocated`] and [`freed`], which count for their thread and tell the process of changes of
//! [`GRAIN`]. An operation runs on one thread: what that has allocated since the operation's beginning and not freed is what the
//! operation holds, whoever in it asked for memory. [`check`], which every long loop comes by, ends an operation that holds more than it may,
//! or much when the process has come to its limit. So nobody who builds a large value has to know of limits; those who can go on in files ask
//! [`is_short`], and do that before it comes so far.
//!
//! In a process with another allocator nothing is counted, and nothing is refused.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU64, AtomicUsize};

use mayfly_base::{Error, ErrorCode, Result};

/// Changes that a thread keeps to itself.
const GRAIN: isize = 64 << 10;
/// What is left for the process's values however much its engine was promised.
const LEAST_LIMIT: usize = 64 << 20;
/// At the limit of the process, operations go on that hold less than this and less than a thousandth of the limit.
const LITTLE: isize = 1 << 20;

const ENOUGH: u8 = 0;
const SHORT: u8 = 1;
const OVER: u8 = 2;

/// What all threads have told.
static TOTAL: AtomicIsize = AtomicIsize::new(0);
/// Read by everybody all the time and hardly ever changed.
static PROCESS: Process = Process {
    limit: AtomicIsize::new(isize::MAX),
    whole: AtomicUsize::new(usize::MAX),
    others: AtomicUsize::new(0),
    state: AtomicU8::new(ENOUGH),
    refused: AtomicU64::new(0),
};

#[repr(align(128))]
struct Process {
    /// For what is counted here.
    limit: AtomicIsize,
    whole: AtomicUsize,
    others: AtomicUsize,
    state: AtomicU8,
    refused: AtomicU64,
}

struct Thread {
    /// Allocated and not freed.
    net: Cell<isize>,
    /// How much of that the process knows of.
    told: Cell<isize>,
    /// What it was when the operation began that runs now.
    base: Cell<isize>,
    /// Where the operation ends.
    ceiling: Cell<isize>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread { net: Cell::new(0), told: Cell::new(0), base: Cell::new(0), ceiling: Cell::new(isize::MAX) }
    };
}

impl Thread {
    #[inline]
    fn count(&self, more: isize) {
        let net = self.net.get().wrapping_add(more);
        self.net.set(net);
        let untold = net.wrapping_sub(self.told.get());
        if !(-GRAIN..=GRAIN).contains(&untold) {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        let net = self.net.get();
        let more = net.wrapping_sub(self.told.replace(net));
        judge(TOTAL.fetch_add(more, Relaxed).wrapping_add(more));
    }
}

/// Says how the process stands that holds so many bytes.
fn judge(total: isize) {
    let limit = PROCESS.limit.load(Relaxed);
    let state = match total {
        total if total > limit => OVER,
        total if total > limit - limit / 8 => SHORT,
        _ => ENOUGH,
    };
    if PROCESS.state.load(Relaxed) != state {
        PROCESS.state.store(state, Relaxed);
    }
}

/// Counts an allocation.
#[inline]
pub fn allocated(bytes: usize) {
    THREAD.with(|thread| thread.count(bytes.cast_signed()));
}

/// Counts what was given back.
#[inline]
pub fn freed(bytes: usize) {
    THREAD.with(|thread| thread.count(bytes.cast_signed().wrapping_neg()));
}

/// Counts that an allocation has another size now.
#[inline]
pub fn resized(before: usize, now: usize) {
    THREAD.with(|thread| thread.count(now.wrapping_sub(before).cast_signed()));
}

/// To be called by a thread that ends, so that what it counted is not lost.
pub fn tell() {
    THREAD.with(Thread::tell);
}

/// An operation that this thread runs; bound to it.
pub struct Counted {
    base: isize,
    ceiling: isize,
    _thread: PhantomData<*const ()>,
}

/// From now until the guard goes this thread runs an operation that may hold so many bytes.
#[must_use]
pub fn begin(limit: usize) -> Counted {
    THREAD.with(|thread| {
        let net = thread.net.get();
        Counted {
            base: thread.base.replace(net),
            ceiling: thread.ceiling.replace(net.saturating_add_unsigned(limit)),
            _thread: PhantomData,
        }
    })
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            thread.base.set(self.base);
            thread.ceiling.set(self.ceiling);
        });
    }
}

/// The thread's operation goes on with what it, or one before it, allocated earlier: a cursor, a transaction.
pub fn carry(bytes: usize) {
    THREAD.with(|thread| {
        thread.base.set(thread.base.get().saturating_sub_unsigned(bytes));
        if thread.ceiling.get() != isize::MAX {
            thread.ceiling.set(thread.ceiling.get().saturating_sub_unsigned(bytes));
        }
    });
}

/// The thread's operation may hold so many bytes more, because somebody said so for a part of it.
pub fn allow(bytes: usize) {
    THREAD.with(|thread| thread.ceiling.set(thread.ceiling.get().saturating_add_unsigned(bytes)));
}

/// What this thread has allocated so far and not freed, for who asks again and wants to know how much it has grown meanwhile.
pub fn mark() -> isize {
    THREAD.with(|thread| thread.net.get())
}

/// Bytes that are held over from one command to a later one: by a cursor, by a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept(usize);

impl Kept {
    /// What is known of them.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// A command has come to its end that was given these bytes at its beginning, which was this mark; its reply takes so many bytes.
    /// Little changes are not counted: they are the command's own, and would add up.
    pub fn grown_since(&mut self, mark: isize, reply_bytes: usize) {
        let grown = self::mark().wrapping_sub(mark).saturating_sub_unsigned(reply_bytes);
        if grown.unsigned_abs() > GRAIN.unsigned_abs() {
            self.0 = self.0.saturating_add_signed(grown);
        }
    }
}

/// What the thread's operation holds.
pub fn held() -> usize {
    THREAD.with(|thread| {
        let held = thread.net.get().wrapping_sub(thread.base.get());
        usize::try_from(held).unwrap_or(0)
    })
}

/// Does what is kept when the operation is over, and has a limit of its own: a cache.
pub fn elsewhere<T>(work: impl FnOnce() -> T) -> T {
    THREAD.with(|thread| {
        let before = thread.net.get();
        let result = work();
        let more = thread.net.get().wrapping_sub(before);
        // The operation has it no more, and the process still is told of it.
        thread.net.set(before);
        thread.told.set(thread.told.get().wrapping_sub(more));
        result
    })
}

/// Whether the thread's operation may go on.
///
/// # Errors
/// 146 ExceededMemoryLimit.
#[inline]
pub fn check() -> Result<()> {
    let within = THREAD.with(|thread| thread.net.get() <= thread.ceiling.get());
    if within && PROCESS.state.load(Relaxed) != OVER { Ok(()) } else { look() }
}

#[cold]
fn look() -> Result<()> {
    let (held, ceiling) = THREAD.with(|thread| {
        let base = thread.base.get();
        (thread.net.get().wrapping_sub(base), thread.ceiling.get().wrapping_sub(base))
    });
    // Nobody's operation: the monitor, the sweeper, a test.
    if THREAD.with(|thread| thread.ceiling.get() == isize::MAX) {
        return Ok(());
    }
    if held > ceiling {
        return refused(format!(
            "the operation needs more than {ceiling} bytes of memory; see the parameter maxOperationMemoryBytes"
        ));
    }
    let limit = PROCESS.limit.load(Relaxed);
    if is_over() && held > LITTLE.max(limit / 1024) {
        return refused(format!(
            "the server has no memory left for an operation that holds {held} bytes; see the parameter memoryLimitMB"
        ));
    }
    Ok(())
}

fn refused(text: String) -> Result<()> {
    PROCESS.refused.fetch_add(1, Relaxed);
    Err(Error::new(ErrorCode::ExceededMemoryLimit, text))
}

/// The process may hold so many bytes; `usize::MAX` for as many as there are.
pub fn set_process_limit(bytes: usize) {
    PROCESS.whole.store(bytes, Relaxed);
    divide();
}

/// So many bytes of what the process may hold are others': an engine that does not allocate here.
pub fn set_others(bytes: usize) {
    PROCESS.others.store(bytes, Relaxed);
    divide();
}

fn divide() {
    let own = match PROCESS.whole.load(Relaxed) {
        usize::MAX => usize::MAX,
        whole => whole.saturating_sub(PROCESS.others.load(Relaxed)).max(LEAST_LIMIT),
    };
    PROCESS.limit.store(isize::try_from(own).unwrap_or(isize::MAX), Relaxed);
    judge(TOTAL.load(Relaxed));
}

/// What the process may hold; `usize::MAX` where nobody says.
pub fn process_limit() -> usize {
    PROCESS.whole.load(Relaxed)
}

/// How much of that is there for what is counted here.
pub fn limit() -> usize {
    PROCESS.limit.load(Relaxed).unsigned_abs()
}

/// What the process holds.
pub fn total() -> usize {
    usize::try_from(TOTAL.load(Relaxed)).unwrap_or(0)
}

/// How many operations were ended because of what they held.
pub fn refusals() -> u64 {
    PROCESS.refused.load(Relaxed)
}

/// Whether whoever can do with less memory should.
#[inline]
pub fn is_short() -> bool {
    PROCESS.state.load(Relaxed) != ENOUGH
}

/// Whether the process holds more than it may.
#[inline]
pub fn is_over() -> bool {
    PROCESS.state.load(Relaxed) == OVER
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    // One test: the process is one for all.
    #[test]
    fn what_is_held_is_bounded() {
        assert!(check().is_ok() && held() == 0);
        allocated(10 * MB);
        let operation = begin(8 * MB);
        assert_eq!(held(), 0);
        allocated(8 * MB);
        assert!(check().is_ok());
        elsewhere(|| allocated(5 * MB));
        assert_eq!(held(), 8 * MB);
        allocated(1);
        assert_eq!(check().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        allow(1);
        assert!(check().is_ok());
        freed(1);
        // A part of an operation, with what was there before.
        let inner = begin(4 * MB);
        carry(4 * MB);
        assert!(held() == 4 * MB && check().is_ok());
        allocated(1);
        assert!(check().is_err());
        freed(1);
        drop(inner);
        assert_eq!(held(), 8 * MB);
        let mut kept = Kept::default();
        let here = mark();
        allocated(3 * MB);
        kept.grown_since(here, MB);
        assert_eq!(kept.bytes(), 2 * MB);
        let here = mark();
        freed(3 * MB);
        kept.grown_since(here, 0);
        assert_eq!(kept.bytes(), 0);
        // What others free here.
        freed(9 * MB);
        assert!(held() == 0 && check().is_ok());
        allocated(9 * MB);

        tell();
        let before = total();
        assert_eq!(before, 23 * MB);
        set_others(100 * MB);
        set_process_limit(200 * MB);
        assert!(limit() == 100 * MB && !is_short());
        let other = std::thread::spawn(|| {
            allocated(65 * MB);
            tell();
        });
        other.join().unwrap();
        assert!(is_short() && !is_over() && check().is_ok());
        allow(100 * MB);
        allocated(13 * MB);
        assert!(is_over());
        assert_eq!(check().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        // Whoever holds little goes on.
        let little = begin(8 * MB);
        allocated(MB / 2);
        assert!(check().is_ok());
        freed(MB / 2);
        drop(little);
        freed(13 * MB);
        tell();
        assert!(!is_over() && refusals() == 3);
        freed(8 * MB);
        drop(operation);
        freed(15 * MB);
        std::thread::spawn(|| {
            freed(65 * MB);
            tell();
        })
        .join()
        .unwrap();
        assert!(!is_short());
        set_process_limit(usize::MAX);
        assert_eq!(limit(), isize::MAX.unsigned_abs());
    }
}

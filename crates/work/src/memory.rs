//! Memory accounting: how many bytes allocated by Rust an operation holds, and how many the process
//! holds.
//!
//! The allocator of the binary calls [`allocated`] and [`freed`], which count per thread and report
//! to the process after each change of [`GRAIN`]. An operation runs on one thread, so it holds what
//! that thread has allocated and not freed since the operation began. [`check`], which every long
//! loop calls, fails an operation that exceeds its own limit, or that holds a large share when the
//! process has reached its limit. Code that builds a large value therefore does not have to know
//! any limit; operators that can spill ask [`is_short`] and do so earlier.
//!
//! Where the system has little memory, what is not counted (the engine's allocations, threads,
//! freed memory that the allocators still hold) is measured: the watcher of threads calls
//! [`measure`], and the more memory is resident and not counted, the less of the process's limit
//! remains for what is counted. The allocators must return freed pages at once there; otherwise the
//! pages that they keep for later would count.
//!
//! In a process with another allocator nothing is counted and nothing is refused.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU64, AtomicUsize};

use mayfly_base::{Error, ErrorCode, Result};

/// Changes of up to this many bytes stay with the thread.
const GRAIN: isize = 64 << 10;
/// The least that remains for Rust's allocations, however large the engine's share is, or a quarter
/// of the process's limit if that is less.
const LEAST_LIMIT: usize = 64 << 20;
/// When the process is over its limit, an operation that holds less than this, or less than 1/1024
/// of the limit, continues.
const SMALL_OPERATION: isize = 1 << 20;

const ENOUGH: u8 = 0;
const SHORT: u8 = 1;
const OVER: u8 = 2;

/// The sum of what all threads have reported.
static TOTAL: AtomicIsize = AtomicIsize::new(0);
/// Read often by all threads and rarely changed.
static PROCESS: Process = Process {
    limit: AtomicIsize::new(isize::MAX),
    whole: AtomicUsize::new(usize::MAX),
    others: AtomicUsize::new(0),
    uncounted: AtomicUsize::new(0),
    is_measured: AtomicBool::new(false),
    state: AtomicU8::new(ENOUGH),
    refused: AtomicU64::new(0),
};

#[repr(align(128))]
struct Process {
    /// The limit for the bytes that are counted here.
    limit: AtomicIsize,
    whole: AtomicUsize,
    /// The share of `whole` that is set aside for the engine and for what is not counted.
    others: AtomicUsize,
    /// Resident bytes that are not counted, as last measured.
    uncounted: AtomicUsize,
    /// Whether the watcher measures.
    is_measured: AtomicBool,
    state: AtomicU8,
    refused: AtomicU64,
}

struct Thread {
    /// Bytes allocated and not freed.
    net: Cell<isize>,
    /// The value of `net` that was last reported to the process.
    reported: Cell<isize>,
    /// The value of `net` when the current operation began.
    base: Cell<isize>,
    /// The value of `net` at which the operation fails.
    ceiling: Cell<isize>,
    /// Whether the thread has reported since it last returned memory to the system.
    has_reported: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            net: Cell::new(0),
            reported: Cell::new(0),
            base: Cell::new(0),
            ceiling: Cell::new(isize::MAX),
            has_reported: Cell::new(false),
        }
    };
}

/// Returns freed memory of the calling thread to the system; set by the binary.
static RETURN_FREED: OnceLock<fn()> = OnceLock::new();

impl Thread {
    #[inline]
    fn count(&self, more: isize) {
        let net = self.net.get().wrapping_add(more);
        self.net.set(net);
        let unreported = net.wrapping_sub(self.reported.get());
        if !(-GRAIN..=GRAIN).contains(&unreported) {
            self.report();
        }
    }

    #[cold]
    fn report(&self) {
        let net = self.net.get();
        let more = net.wrapping_sub(self.reported.replace(net));
        self.has_reported.set(true);
        update_state(TOTAL.fetch_add(more, Relaxed).wrapping_add(more));
    }
}

/// Derives the state of the process from the bytes it holds.
fn update_state(total: isize) {
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

/// Counts an allocation on this thread.
#[inline]
pub fn allocated(bytes: usize) {
    THREAD.with(|thread| thread.count(bytes.cast_signed()));
}

/// Counts a deallocation on this thread.
#[inline]
pub fn freed(bytes: usize) {
    THREAD.with(|thread| thread.count(bytes.cast_signed().wrapping_neg()));
}

/// Counts a reallocation on this thread.
#[inline]
pub fn resized(before: usize, now: usize) {
    THREAD.with(|thread| thread.count(now.wrapping_sub(before).cast_signed()));
}

/// Sets the function that returns freed memory of the calling thread to the system, where the
/// system has little. It is called at the end of each operation that allocated or freed more than a
/// little, because the thread may be idle when memory becomes short.
pub fn set_return_freed(call: fn()) {
    let _ = RETURN_FREED.set(call);
}

/// Reports the thread's count to the process. A thread calls it before it ends.
pub fn report() {
    THREAD.with(Thread::report);
}

/// The accounting of one operation on this thread; dropping it ends the operation.
pub struct Counted {
    base: isize,
    ceiling: isize,
    _thread: PhantomData<*const ()>,
}

/// Starts an operation on this thread that may hold `limit` bytes, until the guard is dropped.
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
            if thread.has_reported.replace(false)
                && let Some(return_freed) = RETURN_FREED.get()
            {
                return_freed();
            }
        });
    }
}

/// Charges the operation with bytes that an earlier command allocated: those of its cursor or
/// transaction.
pub fn carry(bytes: usize) {
    THREAD.with(|thread| {
        thread.base.set(thread.base.get().saturating_sub_unsigned(bytes));
        if thread.ceiling.get() != isize::MAX {
            thread.ceiling.set(thread.ceiling.get().saturating_sub_unsigned(bytes));
        }
    });
}

/// Raises the limit of the current operation, for an operator that has a limit of its own.
pub fn allow(bytes: usize) {
    THREAD.with(|thread| thread.ceiling.set(thread.ceiling.get().saturating_add_unsigned(bytes)));
}

/// Bytes allocated and not freed by this thread. The difference of two marks is the growth between
/// them.
pub fn mark() -> isize {
    THREAD.with(|thread| thread.net.get())
}

/// Bytes that a cursor or transaction retains from one command to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetainedBytes(usize);

impl RetainedBytes {
    /// The number of bytes retained.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// Updates the count at the end of a command that began at `mark` and whose reply has
    /// `reply_bytes`. Changes below [`GRAIN`] are not counted: they belong to the command itself,
    /// and would add up.
    pub fn grown_since(&mut self, mark: isize, reply_bytes: usize) {
        let grown = self::mark().wrapping_sub(mark).saturating_sub_unsigned(reply_bytes);
        if grown.unsigned_abs() > GRAIN.unsigned_abs() {
            self.0 = self.0.saturating_add_signed(grown);
        }
    }
}

/// Bytes that the thread's operation holds.
pub fn held() -> usize {
    THREAD.with(|thread| {
        let held = thread.net.get().wrapping_sub(thread.base.get());
        usize::try_from(held).unwrap_or(0)
    })
}

/// Runs `work` without charging its allocations to the operation. For caches, which outlive the
/// operation and have limits of their own.
pub fn uncharged<T>(work: impl FnOnce() -> T) -> T {
    THREAD.with(|thread| {
        let before = thread.net.get();
        let result = work();
        let more = thread.net.get().wrapping_sub(before);
        // The operation is not charged; the process still is.
        thread.net.set(before);
        thread.reported.set(thread.reported.get().wrapping_sub(more));
        result
    })
}

/// Whether the thread's operation may continue.
///
/// # Errors
/// 146 ExceededMemoryLimit.
#[inline]
pub fn check() -> Result<()> {
    let within = THREAD.with(|thread| thread.net.get() <= thread.ceiling.get());
    if within && PROCESS.state.load(Relaxed) != OVER { Ok(()) } else { check_slowly() }
}

#[cold]
fn check_slowly() -> Result<()> {
    let (held, ceiling) = THREAD.with(|thread| {
        let base = thread.base.get();
        (thread.net.get().wrapping_sub(base), thread.ceiling.get().wrapping_sub(base))
    });
    // Not a client's operation: the TTL monitor, the sweeper, a test.
    if THREAD.with(|thread| thread.ceiling.get() == isize::MAX) {
        return Ok(());
    }
    if held > ceiling {
        return refused(format!(
            "the operation needs more than {ceiling} bytes of memory; see the parameter maxOperationMemoryBytes"
        ));
    }
    let limit = PROCESS.limit.load(Relaxed);
    if is_over() && held > SMALL_OPERATION.max(limit / 1024) {
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

/// Sets the limit of the process in bytes; `usize::MAX` for none.
pub fn set_process_limit(bytes: usize) {
    PROCESS.whole.store(bytes, Relaxed);
    divide();
}

/// Sets the share of the limit that belongs to an engine with its own allocator.
pub fn set_others(bytes: usize) {
    PROCESS.others.store(bytes, Relaxed);
    divide();
}

/// Measures the resident memory of the process. The part that is not counted here lowers the limit
/// for what is, if it is more than the share that was set aside.
pub fn measure() {
    if let Some(resident) = resident_bytes() {
        PROCESS.uncounted.store(resident.saturating_sub(total()), Relaxed);
        divide();
    }
}

/// Makes the watcher of threads call [`measure`] at each of its ticks. Called where the system has
/// little memory.
pub fn begin_measuring() {
    PROCESS.is_measured.store(true, Relaxed);
}

/// Whether the watcher measures.
pub(crate) fn is_measured() -> bool {
    PROCESS.is_measured.load(Relaxed)
}

/// The resident bytes of the process without its files; `None` where the system does not say.
#[cfg(target_os = "linux")]
fn resident_bytes() -> Option<usize> {
    use std::os::unix::fs::FileExt;

    static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::fs::File::open("/proc/self/statm").ok()).as_ref()?;
    let mut text = [0; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    // Pages: size, resident, shared (those of files).
    let mut pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').skip(1);
    let mut next = || pages.next()?.parse::<usize>().ok();
    let (resident, files) = (next()?, next()?);
    Some(resident.saturating_sub(files).saturating_mul(rustix::param::page_size()))
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> Option<usize> {
    None
}

fn divide() {
    let others = PROCESS.others.load(Relaxed).max(PROCESS.uncounted.load(Relaxed));
    let own = match PROCESS.whole.load(Relaxed) {
        usize::MAX => usize::MAX,
        whole => whole.saturating_sub(others).max(LEAST_LIMIT.min(whole / 4)),
    };
    PROCESS.limit.store(isize::try_from(own).unwrap_or(isize::MAX), Relaxed);
    update_state(TOTAL.load(Relaxed));
}

/// The limit of the process in bytes; `usize::MAX` when there is none.
pub fn process_limit() -> usize {
    PROCESS.whole.load(Relaxed)
}

/// The part of the limit that Rust's allocations may use.
pub fn limit() -> usize {
    PROCESS.limit.load(Relaxed).unsigned_abs()
}

/// Bytes that the process holds, as far as the threads have reported.
pub fn total() -> usize {
    usize::try_from(TOTAL.load(Relaxed)).unwrap_or(0)
}

/// How many operations failed because of a memory limit.
pub fn refusals() -> u64 {
    PROCESS.refused.load(Relaxed)
}

/// Whether operators that can spill should do so: the process is above seven eighths of its limit.
#[inline]
pub fn is_short() -> bool {
    PROCESS.state.load(Relaxed) != ENOUGH
}

/// Whether the process is above its limit.
#[inline]
pub fn is_over() -> bool {
    PROCESS.state.load(Relaxed) == OVER
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    // One test, because the counters are global to the process.
    #[test]
    fn allocations_are_limited() {
        assert!(check().is_ok() && held() == 0);
        allocated(10 * MB);
        let operation = begin(8 * MB);
        assert_eq!(held(), 0);
        allocated(8 * MB);
        assert!(check().is_ok());
        uncharged(|| allocated(5 * MB));
        assert_eq!(held(), 8 * MB);
        allocated(1);
        assert_eq!(check().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        allow(1);
        assert!(check().is_ok());
        freed(1);
        // A nested operation that is charged with bytes allocated before it.
        let inner = begin(4 * MB);
        carry(4 * MB);
        assert!(held() == 4 * MB && check().is_ok());
        allocated(1);
        assert!(check().is_err());
        freed(1);
        drop(inner);
        assert_eq!(held(), 8 * MB);
        let mut kept = RetainedBytes::default();
        let here = mark();
        allocated(3 * MB);
        kept.grown_since(here, MB);
        assert_eq!(kept.bytes(), 2 * MB);
        let here = mark();
        freed(3 * MB);
        kept.grown_since(here, 0);
        assert_eq!(kept.bytes(), 0);
        // Freeing memory that another thread allocated.
        freed(9 * MB);
        assert!(held() == 0 && check().is_ok());
        allocated(9 * MB);

        report();
        let before = total();
        assert_eq!(before, 23 * MB);
        set_others(100 * MB);
        set_process_limit(200 * MB);
        assert!(limit() == 100 * MB && !is_short());
        let other = std::thread::spawn(|| {
            allocated(65 * MB);
            report();
        });
        other.join().unwrap();
        assert!(is_short() && !is_over() && check().is_ok());
        allow(100 * MB);
        allocated(13 * MB);
        assert!(is_over());
        assert_eq!(check().unwrap_err().code(), ErrorCode::ExceededMemoryLimit);
        // An operation that holds little continues.
        let little = begin(8 * MB);
        allocated(MB / 2);
        assert!(check().is_ok());
        freed(MB / 2);
        drop(little);
        freed(13 * MB);
        report();
        assert!(!is_over() && refusals() == 3);
        freed(8 * MB);
        drop(operation);
        freed(15 * MB);
        std::thread::spawn(|| {
            freed(65 * MB);
            report();
        })
        .join()
        .unwrap();
        assert!(!is_short());
        // What is resident and not counted, of which the test process has some,
        // lowers the limit.
        set_others(0);
        set_process_limit(200 * MB);
        assert_eq!(limit(), 200 * MB);
        measure();
        assert!((50 * MB..200 * MB).contains(&limit()), "{}", limit());
        set_process_limit(40 * MB);
        assert!(limit() >= 10 * MB);
        static RETURNED: AtomicUsize = AtomicUsize::new(0);
        set_return_freed(|| {
            RETURNED.fetch_add(1, Relaxed);
        });
        report();
        drop(begin(MB));
        assert_eq!(RETURNED.load(Relaxed), 1);
        drop(begin(MB));
        assert_eq!(RETURNED.load(Relaxed), 1, "it has allocated nothing");
        let operation = begin(100 * MB);
        allocated(39 * MB);
        drop(operation);
        assert_eq!(RETURNED.load(Relaxed), 2);
        freed(39 * MB);
        report();
        set_process_limit(usize::MAX);
        assert_eq!(limit(), isize::MAX.unsigned_abs());
    }
}

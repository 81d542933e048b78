//! Memory for messages in transit: requests that have not arrived completely, and replies that
//! clients have not received.
//!
//! Small messages are not counted. A large request reserves its announced size before more of it is
//! read, in order of arrival, so that admitted requests can complete; its buffer is allocated as
//! the bytes arrive. A connection whose request is slow is closed when others wait for memory.
//!
//! The size of a reply is not known in advance, and replies must not wait for clients that do not
//! read theirs: when replies occupy much memory, the unsent part of a reply is written to a file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mayfly_work::memory;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;

/// Messages up to this size are not counted.
pub const LARGE_BYTES: usize = 64 << 10;
/// The time that a large request may take while others wait, in addition to a second per megabyte.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause between two parts of a request while one other waits.
const STALLED: Duration = Duration::from_secs(2);
/// The same while many others wait.
const SHORT_STALLED: Duration = Duration::from_millis(250);
/// How often a message is examined that may be overdue.
const TICK: Duration = Duration::from_millis(100);

/// The messages of all connections.
#[derive(Default)]
pub struct Buffers {
    requests: Pool,
    replies: Pool,
    /// Admits one request at a time, in order of arrival.
    turn: Mutex<()>,
    /// Lets one reply at a time be written to a file.
    filing: Mutex<()>,
    closed: AtomicU64,
}

/// The memory of large messages in one direction.
#[derive(Default)]
struct Pool {
    bytes: AtomicUsize,
    /// The number of requests or replies that wait for memory.
    waiting: AtomicUsize,
    freed: Notify,
}

/// A message that waits for memory.
struct Waits<'p>(&'p AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A large message in transit; dropping it releases its memory.
pub struct UnderWay<'b> {
    pool: &'b Pool,
    bytes: usize,
    since: Instant,
}

impl Pool {
    /// Whether the pool is in use, and `more` bytes would exceed its share.
    fn is_full(&self, more: usize) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        held > 0 && held.saturating_add(more) > memory::limit() / 4
    }

    /// Counts a message that waits for memory, until the guard is dropped.
    fn wait(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(&self.waiting)
    }

    async fn wait_for(&self, more: usize) {
        loop {
            let freed = self.freed.notified();
            if !self.is_full(more) {
                return;
            }
            freed.await;
        }
    }

    fn hold(&self, bytes: usize) -> UnderWay<'_> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        UnderWay { pool: self, bytes, since: Instant::now() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.pool.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.pool.freed.notify_waiters();
    }
}

impl UnderWay<'_> {
    /// Waits until the message is stalled (for a while from now on, nothing has arrived) or late,
    /// and others wait for its memory.
    ///
    /// Requests are admitted in order of arrival, so the pauses of stalled ones add up for those
    /// that follow: the more requests wait, the shorter a pause may be.
    pub async fn overdue(&self) {
        let paused = Instant::now();
        let late = self.since + PATIENCE + Duration::from_secs((self.bytes >> 20) as u64);
        loop {
            tokio::time::sleep(TICK).await;
            let waiting = self.pool.waiting.load(Ordering::Relaxed);
            let stalled = paused + longest_pause(waiting);
            if waiting > 0 && Instant::now() >= stalled.min(late) {
                return;
            }
        }
    }
}

/// The longest pause between two parts of a request while so many others wait.
fn longest_pause(waiting: usize) -> Duration {
    let parts = u32::try_from(1 + waiting / 4).unwrap_or(u32::MAX);
    (STALLED / parts).max(SHORT_STALLED)
}

impl Buffers {
    /// Reserves memory for a request of this size; waits until it is available.
    pub async fn request(&self, bytes: usize) -> UnderWay<'_> {
        if self.requests.is_full(bytes) {
            let _waits = self.requests.wait();
            let _turn = self.turn.lock().await;
            self.requests.wait_for(bytes).await;
        }
        self.requests.hold(bytes)
    }

    /// Counts a reply of this size until it is sent.
    pub fn reply(&self, bytes: usize) -> UnderWay<'_> {
        self.replies.hold(bytes)
    }

    /// Whether replies occupy so much memory that unsent ones should be written to files.
    pub fn is_crowded(&self) -> bool {
        self.replies.is_full(memory::limit() / 8)
    }

    /// Waits while replies occupy more memory than files can absorb at once.
    pub async fn room_for_reply(&self) {
        if self.replies.is_full(0) {
            let _waits = self.replies.wait();
            self.replies.wait_for(0).await;
        }
    }

    /// Waits until no other reply is being written to a file.
    pub async fn filing(&self) -> MutexGuard<'_, ()> {
        self.filing.lock().await
    }

    /// Counts a connection that was closed because it was too slow.
    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// The bytes of large requests (as announced) and of large replies, and the number of
    /// connections that were closed because they were too slow.
    pub fn counts(&self) -> (usize, usize, u64) {
        let bytes = |pool: &Pool| pool.bytes.load(Ordering::Relaxed);
        (bytes(&self.requests), bytes(&self.replies), self.closed.load(Ordering::Relaxed))
    }
}

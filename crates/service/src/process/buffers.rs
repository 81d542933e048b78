//! Memory for messages that are under way: requests that have not arrived whole, replies that their clients have not taken.
//!
//! Small ones are free. Large requests take room for all that they announce before more of them is read, first come, first served, so
//! that those that have room arrive; the bytes themselves are allocated as they come. Whoever is slow while others wait is closed.
//!
//! Of replies nobody knows beforehand how large they get, and nobody should wait because others do not take theirs: when many are
//! held, what a client does not take at once goes into a file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mayfly_work::memory;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;

/// Messages up to this size are free.
pub const LARGE_BYTES: usize = 64 << 10;
/// So long a large request may take while others wait, beside a second for each megabyte.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long nothing of it may arrive while others wait.
const STALLED: Duration = Duration::from_secs(2);

/// The messages of all connections.
#[derive(Default)]
pub struct Buffers {
    requests: Pool,
    replies: Pool,
    /// Requests get room one after the other.
    turn: Mutex<()>,
    /// Replies are written into files one after the other.
    filing: Mutex<()>,
    closed: AtomicU64,
}

/// What large messages of one direction take.
#[derive(Default)]
struct Pool {
    bytes: AtomicUsize,
    /// Those who wait for room.
    waiting: AtomicUsize,
    freed: Notify,
}

/// A large message that is under way.
pub struct UnderWay<'b> {
    pool: &'b Pool,
    bytes: usize,
    since: Instant,
}

impl Pool {
    /// Whether it holds something, and would hold more than its share with so many bytes in addition.
    fn is_full(&self, more: usize) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        held > 0 && held.saturating_add(more) > memory::limit() / 4
    }

    async fn wait_for(&self, more: usize) {
        struct Waits<'p>(&'p AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
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
    /// Waits until nothing of it has arrived for a while, from now on, or it takes too long altogether, and others wait for its room.
    pub async fn overdue(&self) {
        let longest = PATIENCE + Duration::from_secs((self.bytes >> 20) as u64);
        tokio::time::sleep_until((self.since + longest).min(Instant::now() + STALLED)).await;
        while self.pool.waiting.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(STALLED / 10).await;
        }
    }
}

impl Buffers {
    /// Waits for room for a request that announces so many bytes.
    pub async fn request(&self, bytes: usize) -> UnderWay<'_> {
        if self.requests.is_full(bytes) {
            let _turn = self.turn.lock().await;
            self.requests.wait_for(bytes).await;
        }
        self.requests.hold(bytes)
    }

    /// A reply of so many bytes is there and has to be sent.
    pub fn reply(&self, bytes: usize) -> UnderWay<'_> {
        self.replies.hold(bytes)
    }

    /// Whether so much is held for replies that those that are not taken should go elsewhere.
    pub fn is_crowded(&self) -> bool {
        self.replies.is_full(memory::limit() / 8)
    }

    /// Waits while more is held for replies than files take up at once.
    pub async fn room_for_reply(&self) {
        if self.replies.is_full(0) {
            self.replies.wait_for(0).await;
        }
    }

    /// Waits until no other reply is being written into a file.
    pub async fn filing(&self) -> MutexGuard<'_, ()> {
        self.filing.lock().await
    }

    /// Counts a connection that is closed because it was too slow.
    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of large requests, as announced; bytes of large replies; connections closed because they were too slow.
    pub fn counts(&self) -> (usize, usize, u64) {
        let bytes = |pool: &Pool| pool.bytes.load(Ordering::Relaxed);
        (bytes(&self.requests), bytes(&self.replies), self.closed.load(Ordering::Relaxed))
    }
}

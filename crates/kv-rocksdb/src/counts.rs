//! Counts reads that found their data in a cache, reads that did not, and commits that waited for
//! compactions.
//!
//! Reads are counted by thread, without a shared counter: RocksDB counts the blocks that a thread
//! found in the cache and those that it read from files, and the record cache's hits and misses
//! are in thread-local cells. Every [`FLUSH_EVERY`]th transaction or single read of a thread adds
//! its counts to the store's. The counts are therefore a little late, and exact otherwise.
//!
//! If a process has several stores open, a thread's counts are added to the store that it uses at
//! that moment.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rocksdb::perf::{PerfContext, PerfMetric};

/// How many transactions of a thread pass before its counts are added.
const FLUSH_EVERY: u32 = 64;

/// Counts of all threads since the engine was opened. They outlive a store that is reopened.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) record_hits: AtomicU64,
    pub(crate) record_misses: AtomicU64,
    pub(crate) block_hits: AtomicU64,
    pub(crate) block_misses: AtomicU64,
    /// Commits that waited for compactions, and their waits in microseconds.
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_micros: AtomicU64,
}

/// The counts of a thread.
struct OfThread {
    /// Transactions since the counts were last added.
    transactions: Cell<u32>,
    record_hits: Cell<u32>,
    record_misses: Cell<u32>,
    /// RocksDB's counts of this thread when they were last added.
    block_hits: Cell<u64>,
    block_misses: Cell<u64>,
}

thread_local! {
    static OF_THREAD: OfThread = const {
        OfThread {
            transactions: Cell::new(0),
            record_hits: Cell::new(0),
            record_misses: Cell::new(0),
            block_hits: Cell::new(0),
            block_misses: Cell::new(0),
        }
    };
}

/// Counts a look-up in the record cache.
#[inline]
pub(crate) fn record_hit() {
    OF_THREAD.with(|own| own.record_hits.set(own.record_hits.get().wrapping_add(1)));
}

/// Counts a look-up of a record that was not in the record cache.
#[inline]
pub(crate) fn record_miss() {
    OF_THREAD.with(|own| own.record_misses.set(own.record_misses.get().wrapping_add(1)));
}

impl Counts {
    /// Counts the beginning of a transaction or of a single read.
    #[inline]
    pub(crate) fn begin(&self) {
        OF_THREAD.with(|own| {
            let transactions = own.transactions.get() + 1;
            own.transactions.set(transactions);
            if transactions >= FLUSH_EVERY {
                self.add(own);
            }
        });
    }

    #[cold]
    fn add(&self, own: &OfThread) {
        own.transactions.set(0);
        self.record_hits.fetch_add(own.record_hits.take().into(), Relaxed);
        self.record_misses.fetch_add(own.record_misses.take().into(), Relaxed);
        let context = PerfContext::default();
        let added = |last: &Cell<u64>, metric| {
            let now = context.metric(metric);
            now.saturating_sub(last.replace(now))
        };
        let hits = added(&own.block_hits, PerfMetric::BlockCacheHitCount);
        self.block_hits.fetch_add(hits, Relaxed);
        let misses = added(&own.block_misses, PerfMetric::BlockReadCount);
        self.block_misses.fetch_add(misses, Relaxed);
    }

    /// Counts a commit that waited for compactions.
    pub(crate) fn stalled(&self, micros: i64) {
        self.stalls.fetch_add(1, Relaxed);
        self.stalled_micros.fetch_add(micros.max(0).unsigned_abs(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_adds_its_counts_from_time_to_time() {
        let counts = Counts::default();
        record_hit();
        record_hit();
        record_miss();
        (0..FLUSH_EVERY - 1).for_each(|_| counts.begin());
        assert_eq!(counts.record_hits.load(Relaxed), 0);
        counts.begin();
        let records = [&counts.record_hits, &counts.record_misses].map(|count| count.load(Relaxed));
        assert_eq!(records, [2, 1]);
        (0..FLUSH_EVERY).for_each(|_| counts.begin());
        assert_eq!(counts.record_hits.load(Relaxed), 2);
    }
}

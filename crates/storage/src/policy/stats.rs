//! The monitor's counters (`serverStatus().metrics.ttl` and `batchedDeletes`), monotonic since
//! start.

use std::sync::atomic::AtomicI64;

/// Counters of the monitor since start.
#[derive(Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct TtlStats {
    pub passes: AtomicI64,
    pub sub_passes: AtomicI64,
    pub deleted_documents: AtomicI64,
    pub deleted_keys: AtomicI64,
    pub examined_documents: AtomicI64,
    pub examined_keys: AtomicI64,
    pub duration_micros: AtomicI64,
    pub invalid_ttl_index_skips: AtomicI64,
    /// Passes that deleted nothing because the clock was not trusted; `passes` does not count them.
    pub suspended_passes: AtomicI64,
    /// The number of batches, each of which is a write unit.
    pub batches: AtomicI64,
    pub batch_docs: AtomicI64,
    pub staged_size_bytes: AtomicI64,
    pub time_in_batch_micros: AtomicI64,
}

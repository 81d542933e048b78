//! Bulk loading.

use crate::KvResult;
#[cfg(doc)]
use crate::{Caps, Engine, KvError, RETIRED, Txn};

/// Bulk loading of a keyspace, without transactions, for building a new object. An embedded engine
/// needs no write-ahead log for it.
///
/// The caller ensures that none of the keys is present, and that the range is neither read nor
/// written before [`Ingest::finish`] has returned: some entries may be visible earlier. Dropping it
/// abandons the load. After that, or after a failure, some of the entries may exist nevertheless:
/// the caller sweeps the range. No entry appears later.
pub trait Ingest: Send {
    /// Adds an entry; its key must be greater than the previous one. A value with the bit
    /// [`RETIRED`] is that of a retired record, as [`Txn::scan_retired`] returns it.
    ///
    /// # Errors
    /// [`KvError::TooLarge`] beyond [`Caps`], [`KvError::Invalid`] for a key out of order and, in
    /// some engines, for one that is present, IO errors.
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()>;

    /// Makes all entries visible to transactions that begin from now on. They are durable at the
    /// latest when the next [`Engine::sync`] has returned.
    ///
    /// # Errors
    /// Errors of the engine.
    fn finish(self: Box<Self>) -> KvResult<()>;
}

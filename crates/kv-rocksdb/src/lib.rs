//! The embedded engine: the byte-store contract over RocksDB.
//!
//! A plain database with one column family per keyspace. RocksDB gives snapshots, atomic batches, the write-ahead log
//! and compaction; what makes transactions of it is shared with the memory engine: the conflict tracker and the write
//! buffer of `mayfly-kv`. RocksDB's own transaction classes are not used: they lock on every write, hide range
//! deletes from their checks, and their handles lack file deletion, checkpoints and a shared sync.
//!
//! * [`RocksOptions`] and how they become RocksDB's: `options`.
//! * The open database and the lifetimes that the compiler cannot see (the only unsafe code): `store`.
//! * The folder's format marker: `format`; why a folder cannot be opened: [`OpenError`].
//! * What a power cut left of the log: `log_tail`.
//! * Which failures stop writing: `health`. Keeping room for deletions: `room`. One fsync for many callers: `group_sync`.
//! * Reads of many keys together: `many`; of many ranges with one iterator: `ranges`; whole records in memory: `record_cache`.
//! * [`RocksEngine`]: `engine`; its transactions: `txn`; clearing dropped ranges: `sweep`; adding
//!   many entries at once: `ingest`.

mod engine;
mod format;
mod group_sync;
mod health;
mod ingest;
mod log_tail;
mod many;
mod open_error;
mod options;
mod ranges;
mod record_cache;
mod room;
mod store;
mod sweep;
mod txn;

pub use engine::RocksEngine;
pub use format::{FORMAT, FORMAT_FILE, UNFINISHED_FORMAT_FILE};
pub use ingest::SCRATCH_FOLDER;
pub use open_error::OpenError;
pub use options::RocksOptions;
pub use room::{RESERVE_FILE, has_room};

//! The embedded engine: the byte-store contract over RocksDB.
//!
//! A plain database with one column family per keyspace. RocksDB provides snapshots, atomic
//! batches, the write-ahead log and compaction. Transactions are built from parts shared with the
//! memory engine: the conflict tracker and the write buffer of `mayfly-kv`. RocksDB's own
//! transaction classes are not used: they lock on every write, do not check range deletes, and
//! their handles lack file deletion, checkpoints and a shared sync. The README of the crate
//! explains how the store survives power cuts and a full disk.
//!
//! * [`RocksOptions`] and the RocksDB options derived from them: `options`.
//! * The open database and the lifetimes that the compiler cannot check (the only unsafe code):
//!   `store`.
//! * The folder's format marker: `format`; why a folder cannot be opened: [`OpenError`].
//! * Truncation of the write-ahead log after a power cut: `log_tail`.
//! * Failures that stop writes: `health`. The disk reserve for deletions: `room`. One fsync for
//!   many callers: `group_sync`.
//! * Reads of many keys: `many`; of many ranges with one iterator: `ranges`; the cache of records:
//!   `record_cache`.
//! * [`RocksEngine`]: `engine`; its transactions: `txn`; clearing dropped ranges: `sweep`; bulk
//!   loading: `ingest`.
//! * Statistics: `figures`; what is counted for them: `counts`.

mod checkpoint;
mod compactions;
mod counts;
mod cursor;
mod engine;
mod figures;
mod format;
mod group_sync;
mod health;
mod held;
mod held_files;
mod ingest;
mod log_tail;
mod many;
mod open_error;
mod options;
mod ranges;
mod record_cache;
mod retired;
mod room;
mod store;
mod sweep;
mod txn;
mod upgrade;

pub use engine::RocksEngine;
pub use format::{FORMAT, FORMAT_FILE, UNFINISHED_FORMAT_FILE};
pub use ingest::SCRATCH_FOLDER;
pub use open_error::OpenError;
pub use options::RocksOptions;
pub use room::{RESERVE_FILE, has_room};
pub use upgrade::{OlderFormat, copy_by_links};

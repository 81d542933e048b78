//! The byte-store contract ([`contract`]), a memory engine, a chaos engine, and the conformance
//! suite that every engine must pass.
//!
//! The embedded engines share three parts: the conflict tracker ([`conflict`]), the buffer of a
//! transaction's own writes ([`write_buffer`]), and the scan that merges it with what is stored
//! ([`scan`]).

mod caps;
pub mod chaos;
mod checkpoint;
pub mod conflict;
pub mod conformance;
pub mod contract;
mod error;
mod held;
mod ingest;
pub mod key_hash;
mod keyspace;
mod log;
pub mod memory;
mod named_key;
mod range;
mod retired;
pub mod round_trips;
pub mod scan;
mod several;
mod sharing;
mod stats;
mod txn_options;
pub mod wrapper;
pub mod write_buffer;

pub use chaos::{ChaosEngine, ChaosOptions};
pub use checkpoint::CheckpointFile;
pub use contract::*;
pub use error::{KvError, KvResult};
pub use keyspace::Keyspace;
pub use log::{GAP_BYTES, Gap, LogClock, LogEntries, LogPlace, LoggedCommit, Which};
pub use memory::MemoryEngine;
pub use range::{
    Direction, FIRST_PAGE, KeyRange, MAX_PAGE, ScanEnd, ScanLimit, next_page, prefix_end,
};
pub use retired::{RETIRED, is_retired};
pub use round_trips::{RoundTripCounter, RoundTrips};
pub use sharing::{Member, Members, NotShared, OnAnnouncement, Sharing};
pub use stats::{
    BackgroundStats, CacheStats, EngineStats, FileStats, Files, HitStats, KeyspaceStats, RoomStats,
    StandbyStats,
};
pub use wrapper::EngineWrapper;

//! Copying a store into another engine while clients use it.
//!
//! The source gives the entries of one point ([`export`]), and then its log. The target takes the
//! entries, replays the log, and becomes a store of its own ([`target`]). Between them is a program
//! that can be interrupted at any time: the target's catalog has the state of the copy
//! ([`CopyState`]), and no server opens a store with that row. [`digest`] compares two stores.
//!
//! ```text
//! catalog  | 'x' |    {copy: UUID, store: UUID, time: timestamp, phase: string,
//!                      keyspace: int64, key: binary}
//! ```

mod digest;
mod export;
mod state;
mod target;
#[cfg(test)]
mod tests;

pub use digest::{CollectionDigest, IndexDigest};
pub(crate) use export::CopyExport;
pub use export::{COPY_LEASE, CopyHold, CopyPoint, SessionsPart};
pub use state::{CopyPhase, CopyState, EntriesPosition};
pub use target::{
    CopyEnd, CopyTarget, identity_of, last_log_time, moved_by, note_copying, note_moved,
};

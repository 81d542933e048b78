//! Backups of stores whose engine has no files: all entries of one snapshot, in runs.
//!
//! A *run* is a sequence of entries of one keyspace in the order of their keys. An entry that is
//! retired ([`mayfly_kv::RETIRED`]) stays so. Integers are little-endian:
//!
//! ```text
//! run    | keyspace: u8 | entry | entry | ...
//! entry  | key bytes: u32 | value bytes: u32 | key | value |
//! ```
//!
//! [`EntriesReader`] makes the runs of any engine, and [`EntriesWriter`] writes them into any other
//! one: entries mean the same in every engine. A run ends where the hash of a key says so. Two
//! snapshots of a store therefore have most runs in common, and a repository, which names content
//! by its checksum, stores those once.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use mayfly_base::{Error, ErrorCode};
use mayfly_kv::{Engine, KeyRange, Keyspace};

use crate::backup::EntriesPosition;
use crate::record::error::from_kv;

pub use reader::EntriesReader;
pub use writer::EntriesWriter;
pub(crate) use writer::refuse_unfinished;
pub(super) use writer::{in_txn, is_empty, sweep, write_batches};

/// The most bytes of a run before its last entry.
pub const RUN_BYTES: usize = 8 << 20;
/// The most bytes of an entry: those of the largest key and value that an engine takes, and its
/// two lengths.
const MAX_ENTRY_BYTES: usize = 96 << 20;
/// The most bytes of a run.
pub const MAX_RUN_BYTES: usize = RUN_BYTES + MAX_ENTRY_BYTES;

pub(super) fn all_keys() -> KeyRange {
    KeyRange::all()
}

/// The approximate size of all entries in bytes.
///
/// # Errors
/// Errors of the engine.
pub fn approximate_entry_bytes(engine: &dyn Engine) -> Result<u64, Error> {
    let sizes = Keyspace::ALL.map(|keyspace| engine.entry_bytes(keyspace));
    sizes.into_iter().sum::<mayfly_kv::KvResult<u64>>().map_err(from_kv)
}

pub(super) fn append_entry(run: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // Engines take less than 4 GB.
    run.extend_from_slice(&(key.len() as u32).to_le_bytes());
    run.extend_from_slice(&(value.len() as u32).to_le_bytes());
    run.extend_from_slice(key);
    run.extend_from_slice(value);
}

/// The keyspace of a run, and its entries.
pub(super) fn open_run(run: &[u8]) -> Result<(Keyspace, Entries<'_>), Error> {
    let (number, rest) = run.split_first().ok_or_else(damaged)?;
    let keyspace = Keyspace::ALL.into_iter().find(|keyspace| *keyspace as u8 == *number);
    Ok((keyspace.ok_or_else(damaged)?, Entries(rest)))
}

/// The last entry of a run; `None` for a run without entries.
///
/// # Errors
/// 301 DataCorruptionDetected for bytes that are no run.
pub fn end_of_run(run: &[u8]) -> Result<Option<EntriesPosition>, Error> {
    let (keyspace, entries) = open_run(run)?;
    let mut last = None;
    for entry in entries {
        last = Some(entry?.0);
    }
    Ok(last.map(|key| EntriesPosition { keyspace, key: key.to_vec() }))
}

/// The entries of a run: key, value.
pub(super) struct Entries<'r>(&'r [u8]);

impl<'r> Iterator for Entries<'r> {
    type Item = Result<(&'r [u8], &'r [u8]), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = split_entry(&mut self.0).ok_or_else(damaged);
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

fn split_entry<'r>(rest: &mut &'r [u8]) -> Option<(&'r [u8], &'r [u8])> {
    let mut take = |bytes: usize| {
        let (part, later) = rest.split_at_checked(bytes)?;
        *rest = later;
        Some(part)
    };
    let lengths = take(8)?;
    let (key, value) = lengths.split_at(4);
    let length = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
    let (key, value) = (length(key)? as usize, length(value)? as usize);
    Some((take(key)?, take(value)?))
}

fn damaged() -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, "a run of entries is damaged")
}

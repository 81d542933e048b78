//! Applies the archived log after the files of a backup, up to a time.

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use mayfly_query::PartialFilters;
use mayfly_storage::Replay;
use mayfly_value::{RawDoc, RawValue};

use super::open_engine;
use crate::offline::of_store;

/// The replay of a log into a folder with the files of a backup, or the rest of one that was
/// interrupted.
pub(super) struct LogReplay {
    replay: Replay,
    /// Entries up to this time are in the files, and entries after `until` are left out.
    from: u64,
    until: u64,
    /// The number of entries that were applied.
    entries: u64,
}

impl LogReplay {
    /// Opens the folder.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn open(folder: &Path, from: u64, until: u64) -> anyhow::Result<LogReplay> {
        let engine = open_engine(folder)?;
        let replay =
            Replay::open(engine, Arc::new(PartialFilters)).map_err(|error| of_store(&error))?;
        Ok(LogReplay { replay, from, until, entries: 0 })
    }

    /// Applies the entries of a segment.
    ///
    /// # Errors
    /// Bytes that are no entry; errors of an entry, with its time.
    pub(super) fn segment(&mut self, mut entries: &[u8]) -> anyhow::Result<()> {
        while !entries.is_empty() {
            let length = entries.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
            let split = length.and_then(|length| entries.split_at_checked(length));
            let entry = split.and_then(|(entry, rest)| Some((RawDoc::new(entry)?, rest)));
            let Some((entry, rest)) = entry else {
                return Err(anyhow!("a segment of the log contains bytes that are no entry"));
            };
            entries = rest;
            let Some(RawValue::Timestamp(time)) = entry.get("ts") else {
                return Err(anyhow!("a segment of the log contains an entry without a time"));
            };
            if time > self.from && time <= self.until {
                self.replay.apply(entry).map_err(|error| of_store(&error))?;
                self.entries += 1;
            }
        }
        Ok(())
    }

    /// Makes the replay durable and closes the folder; returns the number of entries.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn end(self) -> anyhow::Result<u64> {
        self.replay.finish().map_err(|error| of_store(&error))?;
        Ok(self.entries)
    }
}

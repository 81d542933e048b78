//! Applies the archived log after the files of a backup, up to a time.

use std::path::Path;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::PartialFilters;
use mayfly_repository::Repository;
use mayfly_storage::Replay;
use mayfly_value::{RawDoc, RawValue};

use super::store::{self, open_engine};
use super::target::Target;
use crate::backup::failed;

/// The replay of a log into a folder with the files of a backup, or the rest of one that was
/// interrupted.
struct LogReplay {
    replay: Replay,
    /// Entries up to this time are in the files, and entries after `until` are left out.
    from: u64,
    until: u64,
    /// The number of entries that were applied.
    entries: u64,
}

/// Applies the segments of a target to a folder with the files of a backup, whose last time is
/// `from`. Returns the number of entries.
///
/// # Errors
/// A [`Failure`](crate::failure::Failure).
pub(super) async fn replay(
    repository: &Repository,
    target: &Target,
    (folder, from): (&Path, u64),
    tried: &dyn Fn() -> String,
) -> anyhow::Result<u64> {
    let of_store = |error: Error| store::failed(&error, tried());
    let until = target.until.unwrap_or(from);
    let mut replay = LogReplay::open(folder, from, until).map_err(of_store)?;
    for name in &target.segments {
        let segment = repository.read_segment(name).await;
        let segment = segment.map_err(|error| failed::repository(tried(), error))?;
        replay.segment(&segment.entries).map_err(of_store)?;
    }
    replay.end().map_err(of_store)
}

impl LogReplay {
    /// Opens the folder.
    ///
    /// # Errors
    /// Errors of the engine.
    fn open(folder: &Path, from: u64, until: u64) -> Result<LogReplay> {
        let engine = open_engine(folder)?;
        let replay = Replay::open(engine, Arc::new(PartialFilters))?;
        Ok(LogReplay { replay, from, until, entries: 0 })
    }

    /// Applies the entries of a segment.
    ///
    /// # Errors
    /// Bytes that are no entry; errors of an entry, with its time.
    fn segment(&mut self, mut entries: &[u8]) -> Result<()> {
        let mut read = Vec::new();
        while !entries.is_empty() {
            let length = entries.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
            let split = length.and_then(|length| entries.split_at_checked(length));
            let entry = split.and_then(|(entry, rest)| Some((RawDoc::new(entry)?, rest)));
            let Some((entry, rest)) = entry else {
                return Err(damaged("bytes that are no entry"));
            };
            entries = rest;
            let Some(RawValue::Timestamp(time)) = entry.get("ts") else {
                return Err(damaged("an entry without a time"));
            };
            if time > self.from && time <= self.until {
                read.push(entry);
            }
        }
        self.replay.apply_all(&read)?;
        self.entries += read.len() as u64;
        Ok(())
    }

    /// Makes the replay durable and closes the folder; returns the number of entries.
    ///
    /// # Errors
    /// Errors of the engine.
    fn end(self) -> Result<u64> {
        self.replay.finish()?;
        Ok(self.entries)
    }
}

fn damaged(what: &str) -> Error {
    let text = format!("a segment of the log contains {what}");
    Error::new(ErrorCode::DataCorruptionDetected, text)
}

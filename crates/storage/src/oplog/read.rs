//! Reads the operation log as a collection: a range of timestamps, in either direction.
//!
//! Reads stop at the settled timestamp (`clock`), like those of change streams. Entries at the low
//! end may be cut meanwhile; a forward reader that has not passed them gets an error.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, Txn, TxnOptions};

use super::resolve::Resolver;
use super::{LogEntry, Oplog, decode};
use crate::record::error::from_kv;

/// The name under which clients read the log.
pub const OPLOG: &str = "local.oplog.rs";

/// A range of timestamps, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The lowest timestamp.
    pub first: u64,
    /// The highest timestamp.
    pub last: u64,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The visitor stopped it.
    Paused,
    /// All present entries were visited, up to this timestamp.
    Reached(u64),
}

/// The size of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSizes {
    /// The number of entries.
    pub entries: i64,
    /// Bytes of the entries with the documents of their records.
    pub bytes: i64,
    /// The approximate number of bytes that entries and kept versions take in the engine.
    pub stored_bytes: u64,
}

/// Called for each entry in order of timestamps; `Break` ends the scan after this entry.
pub type EntryVisitor<'v> = dyn FnMut(&LogEntry<'_>) -> Result<ControlFlow<()>> + 'v;

impl Oplog {
    /// Visits the entries of a range until the visitor breaks.
    ///
    /// # Errors
    /// Errors of the engine and of the visitor.
    pub fn read(
        &self,
        range: LogRange,
        direction: Direction,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<LogEnd> {
        // Read before the snapshot is taken, which then contains everything up to it.
        let settled = self.settled();
        let last = range.last.min(settled);
        if range.first > last {
            return Ok(LogEnd::Reached(settled));
        }
        let txn = self.engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let resolver = Resolver::new(&*self.engine, &*txn, &self.cut);
        let start = range.first.to_be_bytes().to_vec();
        let mut keys = KeyRange { start, end: last.saturating_add(1).to_be_bytes().to_vec() };
        loop {
            let mut flow = ControlFlow::Continue(());
            let scanned = self.scan(&resolver, &*txn, &keys, direction, &mut |entry| {
                flow = visit(entry)?;
                Ok(flow)
            })?;
            match scanned {
                ScanEnd::Exhausted => return Ok(LogEnd::Reached(settled)),
                ScanEnd::More { .. } if flow.is_break() => return Ok(LogEnd::Paused),
                ScanEnd::More { last_key } => keys = keys.after(&last_key, direction),
            }
        }
    }

    /// Visits one page of entries.
    pub(super) fn scan<'t>(
        &self,
        resolver: &Resolver<'t>,
        txn: &'t dyn Txn,
        keys: &KeyRange,
        direction: Direction,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ScanEnd> {
        let mut failed = None;
        let see = &mut |key: &[u8], value: &[u8]| {
            let timestamp = key.try_into().ok().map(u64::from_be_bytes);
            let shown = match (timestamp, decode(value)) {
                (Some(timestamp), Some(stored)) => {
                    visit(&LogEntry::new(timestamp, stored, resolver))
                }
                _ => Err(unreadable()),
            };
            shown.unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        let scanned =
            txn.scan(Keyspace::Oplog, keys, direction, ScanLimit::NONE, see).map_err(from_kv)?;
        failed.map_or(Ok(scanned), Err)
    }

    /// Whether the log has never had an entry.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn is_new(&self) -> Result<bool> {
        let mut empty = self.cut() == 0;
        let whole = LogRange { first: 1, last: u64::MAX };
        self.read(whole, Direction::Forward, &mut |_| {
            empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(empty)
    }

    /// The size of the log.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn sizes(&self) -> Result<LogSizes> {
        let (bytes, entries) = self.clock.logged();
        let whole = KeyRange { start: vec![0], end: vec![0xFF; 9] };
        let stored = |keyspace| self.engine.approximate_bytes(keyspace, &whole).map_err(from_kv);
        Ok(LogSizes {
            entries: i64::try_from(entries).unwrap_or(i64::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            stored_bytes: stored(Keyspace::Oplog)? + stored(Keyspace::Versions)?,
        })
    }
}

pub(super) fn unreadable() -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, "an entry of the operation log cannot be read")
}

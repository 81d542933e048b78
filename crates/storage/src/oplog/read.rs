//! Reading the operation log as a collection: a range of timestamps, in either direction.
//!
//! Only what [`super::OplogClock::settled`] covers is read, as by those who follow changes. Entries are cut off at the low end
//! meanwhile; a reader that goes upwards and has not come that far learns of it.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, Txn, TxnOptions};

use super::resolve::Resolver;
use super::{LogEntry, Oplog, decode};
use crate::record::error::from_kv;

/// The name under which clients read the log.
pub const OPLOG: &str = "local.oplog.rs";

/// Timestamps to be read, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The lowest.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// How far a reading came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The visitor broke it off.
    Paused,
    /// Everything was shown that there is for now, up to this timestamp.
    Reached(u64),
}

/// How large the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSizes {
    /// Entries.
    pub entries: i64,
    /// Their bytes, with the documents that stand in records.
    pub bytes: i64,
    /// Bytes that they take in the engine, and what is kept for them, roughly.
    pub stored_bytes: u64,
}

/// Sees entries.
pub type EntryVisitor<'v> = dyn FnMut(&LogEntry<'_>) -> Result<ControlFlow<()>> + 'v;

impl Oplog {
    /// Shows the entries of a range until the visitor breaks.
    ///
    /// # Errors
    /// Those of the engine and of the visitor.
    pub fn read(
        &self,
        range: LogRange,
        direction: Direction,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<LogEnd> {
        // Asked before the snapshot, which then has everything below.
        let settled = self.settled();
        let last = range.last.min(settled);
        if range.first > last {
            return Ok(LogEnd::Reached(settled));
        }
        let txn = self.engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
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

    /// One page of entries.
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

    /// Whether it has no entry and never had one.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn is_new(&self) -> Result<bool> {
        let mut empty = self.cut() == 0;
        let whole = LogRange { first: 1, last: u64::MAX };
        self.read(whole, Direction::Forward, &mut |_| {
            empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(empty)
    }

    /// How large the log is.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn sizes(&self) -> Result<LogSizes> {
        let (bytes, entries) = self.clock.logged();
        let whole = KeyRange { start: vec![0], end: vec![0xFF; 9] };
        let stored = |keyspace| self.engine.approximate_bytes(keyspace, &whole).map_err(from_kv);
        Ok(LogSizes {
            entries: i64::try_from(entries).unwrap_or(i64::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            stored_bytes: stored(Keyspace::Oplog)? + stored(Keyspace::Kept)?,
        })
    }
}

pub(super) fn unreadable() -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, "an entry of the operation log cannot be read")
}

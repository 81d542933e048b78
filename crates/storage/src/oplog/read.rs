//! Reading the operation log as a collection: a range of timestamps, in either direction.
//!
//! Only what [`super::OplogClock::settled`] covers is read, as by those who follow changes. Entries are cut off at the low end
//! meanwhile; a reader that goes upwards and has not come that far learns of it.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::RawDoc;

use super::Oplog;
use crate::record::error::from_kv;

/// The name under which clients read the log.
pub const OPLOG: &str = "local.oplog.rs";

/// Entries from which sizes are estimated where there are more.
const SAMPLE_ENTRIES: usize = 10_000;

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
    /// Entries; estimated when there are many.
    pub entries: i64,
    /// Their bytes; estimated when there are many.
    pub bytes: i64,
    /// Bytes that they take in the engine.
    pub stored_bytes: u64,
}

impl Oplog {
    /// Shows the entries of a range until the visitor breaks.
    ///
    /// # Errors
    /// Those of the engine and of the visitor.
    pub fn read(
        &self,
        range: LogRange,
        direction: Direction,
        visit: &mut dyn FnMut(u64, RawDoc<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<LogEnd> {
        // Asked before the snapshot, which then has everything below.
        let settled = self.settled();
        let last = range.last.min(settled);
        if range.first > last {
            return Ok(LogEnd::Reached(settled));
        }
        let txn = self.engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
        let start = range.first.to_be_bytes().to_vec();
        let mut keys = KeyRange { start, end: last.saturating_add(1).to_be_bytes().to_vec() };
        loop {
            let mut outcome = Ok(ControlFlow::Continue(()));
            let see = &mut |key: &[u8], value: &[u8]| {
                let timestamp = key.try_into().ok().map(u64::from_be_bytes);
                outcome = match (timestamp, RawDoc::new(value)) {
                    (Some(timestamp), Some(entry)) => visit(timestamp, entry),
                    _ => Err(Error::new(
                        ErrorCode::DataCorruptionDetected,
                        "an entry of the operation log cannot be read",
                    )),
                };
                match outcome {
                    Ok(flow) => flow,
                    Err(_) => ControlFlow::Break(()),
                }
            };
            let scanned = txn
                .scan(Keyspace::Oplog, &keys, direction, ScanLimit::NONE, see)
                .map_err(from_kv)?;
            let flow = outcome?;
            match scanned {
                ScanEnd::Exhausted => return Ok(LogEnd::Reached(settled)),
                ScanEnd::More { .. } if flow.is_break() => return Ok(LogEnd::Paused),
                ScanEnd::More { last_key } => keys = keys.after(&last_key, direction),
            }
        }
    }

    /// Whether it has no entry and never had one.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn is_new(&self) -> Result<bool> {
        let mut empty = self.cut() == 0;
        let whole = LogRange { first: 1, last: u64::MAX };
        self.read(whole, Direction::Forward, &mut |_, _| {
            empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(empty)
    }

    /// How large the log is. Of a long one some entries at its low end stand for all.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn sizes(&self) -> Result<LogSizes> {
        let (mut entries, mut bytes, mut end) = (0usize, 0i64, 0);
        let whole = LogRange { first: 1, last: u64::MAX };
        let read = self.read(whole, Direction::Forward, &mut |timestamp, entry| {
            (entries, end) = (entries + 1, timestamp);
            bytes += entry.as_bytes().len() as i64;
            Ok(if entries < SAMPLE_ENTRIES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        let stored = |end: Vec<u8>| {
            let range = KeyRange { start: vec![0], end };
            self.engine.approximate_bytes(Keyspace::Oplog, &range).map_err(from_kv)
        };
        let stored_bytes = stored(vec![0xFF; 9])?;
        let sample = stored(end.saturating_add(1).to_be_bytes().to_vec())?;
        let times = match read {
            LogEnd::Paused if sample > 0 => (stored_bytes as f64 / sample as f64).max(1.0),
            _ => 1.0,
        };
        let estimated = |number: i64| (number as f64 * times) as i64;
        Ok(LogSizes { entries: estimated(entries as i64), bytes: estimated(bytes), stored_bytes })
    }
}

//! Finds the document that an entry of the log refers to.
//!
//! It is searched in this order:
//! 1. in its record, if the record still has the version of the entry, even if it is retired;
//! 2. in [`Keyspace::Versions`], where the unit that overwrote or removed the record copied it. In
//!    one snapshot it is in one of the two;
//! 3. in the latest state of [`Keyspace::Versions`], because ranges of dropped collections are
//!    swept under snapshots, after their versions were kept;
//! 4. If it is in none of them, the log was cut meanwhile.
//!
//! Otherwise the data is damaged; the error names the entry and the record.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, Engine, KeyRange, Keyspace, ScanEnd, ScanLimit, Txn, TxnOptions};
use mayfly_value::DocBuf;

use super::stored::KeyInLog;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::kept::{kept_range, visit_kept};
use crate::record::layout::{decode_retired, prefixed};

/// A run of at least this many numbers is scanned instead of read one by one.
const SCANNED: u64 = 4;
/// The limits of what is read ahead in a run.
const AHEAD_RECORDS: u64 = 256;
const AHEAD_BYTES: usize = 1 << 20;

/// Reads the documents of references in a reader's snapshot.
pub(super) struct Resolver<'t> {
    engine: &'t dyn Engine,
    txn: &'t dyn Txn,
    cut: &'t AtomicU64,
    ahead: RefCell<Ahead>,
    kept_ahead: RefCell<KeptAhead>,
}

/// A record in the version of an entry.
#[derive(Clone, Copy)]
pub(super) struct Reference<'v> {
    /// The timestamp of the entry.
    pub(super) timestamp: u64,
    pub(super) version: u64,
    pub(super) collection: u64,
    pub(super) key: KeyInLog<'v>,
}

/// Records of a run that were read together.
#[derive(Default)]
struct Ahead {
    collection: u64,
    version: u64,
    /// The range of numbers, end exclusive, that were read.
    numbers: (u64, u64),
    found: VecDeque<(u64, DocBuf)>,
}

/// Kept versions that were read together.
#[derive(Default)]
struct KeptAhead {
    collection: u64,
    version: u64,
    found: HashMap<RecordKey, DocBuf>,
}

impl Ahead {
    /// The document of this number, if the number was read: `Some(None)` when it was not found.
    fn take(&mut self, reference: &Reference<'_>, number: u64) -> Option<Option<DocBuf>> {
        let (first, end) = self.numbers;
        let same = (self.collection, self.version) == (reference.collection, reference.version);
        if !same || number < first || number >= end {
            return None;
        }
        while self.found.front().is_some_and(|(found, _)| *found < number) {
            self.found.pop_front();
        }
        // A reader that goes back reads again.
        self.numbers.0 = number + 1;
        let is_next = self.found.front().is_some_and(|(found, _)| *found == number);
        Some(if is_next { self.found.pop_front().map(|(_, document)| document) } else { None })
    }
}

impl<'t> Resolver<'t> {
    pub(super) fn new(engine: &'t dyn Engine, txn: &'t dyn Txn, cut: &'t AtomicU64) -> Self {
        Resolver { engine, txn, cut, ahead: RefCell::default(), kept_ahead: RefCell::default() }
    }

    /// Reads the document.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when the entry was cut meanwhile; 301 DataCorruptionDetected
    /// when the entry is kept and there is no document; errors of the engine.
    pub(super) fn document(&self, reference: &Reference<'_>) -> Result<DocBuf> {
        let numbered;
        let key = match reference.key {
            KeyInLog::Bytes(key) => key,
            KeyInLog::Number { number, left } => {
                numbered = number.to_be_bytes();
                if let Some(document) = self.of_run(reference, number, left)? {
                    return Ok(document);
                }
                &numbered[..]
            }
        };
        let in_place = match reference.key {
            // It was searched together with others.
            KeyInLog::Number { left, .. } if left >= SCANNED => None,
            _ => self.in_place(reference, key)?,
        };
        if let Some(document) = in_place {
            return Ok(document);
        }
        self.kept(reference, key)
    }

    /// The document of the record, if it has the version of the entry.
    fn in_place(&self, reference: &Reference<'_>, key: &[u8]) -> Result<Option<DocBuf>> {
        let mut found = None;
        let key = prefixed(reference.collection, key);
        let is_there = self
            .txn
            .get(Keyspace::Record, &key, &mut |value| found = in_version(value, reference.version))
            .map_err(from_kv)?;
        if !is_there {
            let end = [&key[..], &[0]].concat();
            let range = KeyRange { start: key, end };
            self.txn
                .scan_retired(Keyspace::Record, &range, ScanLimit::NONE, &mut |_, value| {
                    found = in_version(value, reference.version);
                    ControlFlow::Continue(())
                })
                .map_err(from_kv)?;
        }
        Ok(found)
    }

    /// The document of a number in a run, whose records are read together while they are
    /// consecutive.
    fn of_run(&self, reference: &Reference<'_>, number: u64, left: u64) -> Result<Option<DocBuf>> {
        let mut ahead = self.ahead.borrow_mut();
        if let Some(resolved) = ahead.take(reference, number) {
            return Ok(resolved);
        }
        if left < SCANNED {
            return Ok(None);
        }
        let Reference { collection, version, .. } = *reference;
        let end = number.saturating_add(left.min(AHEAD_RECORDS));
        let key = |number: u64| prefixed(collection, &number.to_be_bytes());
        let range = KeyRange { start: key(number), end: key(end) };
        let limit = ScanLimit::ALL.bytes(AHEAD_BYTES);
        let number_of = |key: &[u8]| key.get(8..)?.try_into().ok().map(u64::from_be_bytes);
        ahead.found.clear();
        let found = &mut ahead.found;
        let scanned = self
            .txn
            .scan_retired(Keyspace::Record, &range, limit, &mut |key, value| {
                found.extend(number_of(key).zip(in_version(value, version)));
                ControlFlow::Continue(())
            })
            .map_err(from_kv)?;
        let end = match scanned {
            ScanEnd::Exhausted => end,
            ScanEnd::More { last_key } => number_of(&last_key).map_or(end, |last| last + 1),
        };
        (ahead.collection, ahead.version, ahead.numbers) = (collection, version, (number, end));
        Ok(ahead.take(reference, number).flatten())
    }

    fn kept(&self, reference: &Reference<'_>, record_key: &[u8]) -> Result<DocBuf> {
        let Reference { timestamp, version, collection, .. } = *reference;
        let mut ahead = self.kept_ahead.borrow_mut();
        if (ahead.collection, ahead.version) == (collection, version)
            && let Some(document) = ahead.found.remove(record_key)
        {
            return Ok(document);
        }
        (ahead.collection, ahead.version) = (collection, version);
        let mut found = self.read_kept(self.txn, reference, record_key, &mut ahead.found)?;
        if found.is_none() {
            let now = self.engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
            found = self.read_kept(&*now, reference, record_key, &mut ahead.found)?;
        }
        match found {
            Some(document) => Ok(document),
            None if timestamp <= self.cut.load(Ordering::Acquire) => Err(history_lost()),
            None => Err(dangling(timestamp, collection, record_key)),
        }
    }

    /// Reads rows of kept versions until one has this record; in a run also those of the following
    /// numbers. The other versions of these rows are put into `ahead`.
    fn read_kept(
        &self,
        txn: &dyn Txn,
        reference: &Reference<'_>,
        record_key: &[u8],
        ahead: &mut HashMap<RecordKey, DocBuf>,
    ) -> Result<Option<DocBuf>> {
        ahead.clear();
        let last = match reference.key {
            KeyInLog::Number { number, left } => {
                Some(number.saturating_add(left.min(AHEAD_RECORDS) - 1).to_be_bytes())
            }
            KeyInLog::Bytes(_) => None,
        };
        let run = last.is_some_and(|last| last != record_key);
        let last = last.as_ref().map_or(record_key, |last| &last[..]);
        let mut range = kept_range(reference.version, reference.collection, record_key, last);
        let (mut document, mut bytes) = (None, 0);
        loop {
            let mut flow = ControlFlow::Continue(());
            let see = &mut |key: &[u8], value: &[u8]| {
                visit_kept(key, value, &mut |kept_key, kept| {
                    if kept_key == record_key {
                        document = Some(kept.to_owned());
                    } else if kept_key > record_key && bytes < AHEAD_BYTES {
                        ahead.insert(kept_key.to_vec(), kept.to_owned());
                    }
                });
                bytes += value.len();
                if document.is_some() && (!run || bytes >= AHEAD_BYTES) {
                    flow = ControlFlow::Break(());
                }
                flow
            };
            let scanned = txn
                .scan(Keyspace::Versions, &range, Direction::Forward, ScanLimit::NONE, see)
                .map_err(from_kv)?;
            match scanned {
                ScanEnd::More { last_key } if flow.is_continue() => {
                    range = range.after(&last_key, Direction::Forward);
                }
                ScanEnd::More { .. } | ScanEnd::Exhausted => break,
            }
        }
        Ok(document)
    }
}

/// The document of a record's value, if it has the version that an entry refers to.
fn in_version(value: &[u8], version: u64) -> Option<DocBuf> {
    let record = decode_retired(value).ok().filter(|record| record.logged_at == Some(version))?;
    Some(record.document.to_owned())
}

pub(super) fn history_lost() -> Error {
    Error::new(
        ErrorCode::ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
    )
}

fn dangling(timestamp: u64, collection: u64, record_key: &[u8]) -> Error {
    let shown = hex::encode(record_key);
    Error::new(
        ErrorCode::DataCorruptionDetected,
        format!(
            "the entry of the operation log at Timestamp({}, {}) refers to the record {shown} of the collection with the id \
             {collection}, whose document is neither in the record nor among the kept versions",
            timestamp >> 32,
            timestamp & 0xFFFF_FFFF
        ),
    )
}

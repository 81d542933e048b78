//! Reading the recent past: which snapshot shows a cluster time.
//!
//! A time that was asked for is read from
//!
//! 1. the snapshot that was handed out for it;
//! 2. one of another time, or a new one, when the log says that nothing was committed between the two.
//!
//! Anything else is too old: of what was overwritten and never handed out there is no copy.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::RawValue;

use crate::catalog::{Core, Held};
use crate::isolation::ReadView;
use crate::oplog::decode;
use crate::record::error::from_kv;

fn too_old(time: u64) -> Error {
    Error::new(
        ErrorCode::SnapshotTooOld,
        format!(
            "Read timestamp Timestamp({}, {}) is older than the oldest available timestamp.",
            time >> 32,
            time & 0xFFFF_FFFF
        ),
    )
}

impl Core {
    /// A view that is pinned to now. Commits that begin meanwhile wait for those under way.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn pin_reads(&self) -> Result<ReadView> {
        let held = self.hold_now()?;
        ReadView::pinned(&held, held.time)
    }

    /// A view that is pinned to a time in the past, or to one up to which the log is complete.
    ///
    /// # Errors
    /// 239 SnapshotTooOld when no snapshot shows that time; those of the engine.
    pub fn pin_reads_at(&self, time: u64) -> Result<ReadView> {
        self.history.expire(self.clock.monotonic_micros());
        let (before, behind) = self.history.around(time);
        for held in behind.into_iter().chain(before) {
            if self.shows(&held, time)? {
                return ReadView::pinned(&held, time);
            }
        }
        // Whoever asks for what is gone takes no snapshot.
        if self.is_quiet(time, self.oplog.settled())? {
            let now = self.hold_now()?;
            if self.shows(&now, time)? {
                return ReadView::pinned(&now, time);
            }
        }
        Err(too_old(time))
    }

    /// Whether what was read as of one time is what this time shows, too.
    ///
    /// # Errors
    /// 239 SnapshotTooOld, those of the engine.
    pub fn check_shows(&self, read: u64, time: u64) -> Result<()> {
        match read == time || self.is_quiet(read.min(time), read.max(time))? {
            true => Ok(()),
            false => Err(too_old(time)),
        }
    }

    /// The store as of now, kept for others.
    fn hold_now(&self) -> Result<Arc<Held>> {
        // Asked before the snapshot: see the definitions.
        let edition = self.definitions.edition();
        let held = self.oplog.clock.at_rest(|time| match self.history.of(time) {
            Some(same) if same.edition == edition => Ok(same),
            _ => self.engine().hold().map(|snapshot| Held { snapshot, time, edition }.into()),
        });
        let held: Arc<Held> = held.map_err(from_kv)?;
        let now = self.clock.monotonic_micros();
        self.history.expire(now);
        self.history.keep(&held, now);
        Ok(held)
    }

    /// Whether a snapshot shows this time: it is its own, or nothing was committed between the two.
    fn shows(&self, held: &Held, time: u64) -> Result<bool> {
        if held.time == time {
            return Ok(true);
        }
        self.is_quiet(held.time.min(time), held.time.max(time))
    }

    /// Whether nothing was committed behind the first time and up to the last one, for all that is known.
    fn is_quiet(&self, first: u64, last: u64) -> Result<bool> {
        // The log must be complete up to there; then whatever snapshot has all entries between them.
        if last > self.oplog.settled() {
            return Ok(false);
        }
        let txn = self.engine().begin(TxnOptions { read_only: true }).map_err(from_kv)?;
        let key = |after: u64| after.saturating_add(1).to_be_bytes().to_vec();
        let mut range = KeyRange { start: key(first), end: key(last) };
        let mut quiet = true;
        while quiet && !range.is_empty() {
            let see = &mut |_: &[u8], entry: &[u8]| {
                let does = decode(entry).and_then(|entry| entry.fields.get("op"));
                quiet = does == Some(RawValue::String("n"));
                if quiet { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let limit = ScanLimit::NONE;
            match txn
                .scan(Keyspace::Oplog, &range, Direction::Forward, limit, see)
                .map_err(from_kv)?
            {
                ScanEnd::Exhausted => break,
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
        }
        // Asked behind the reading: of what was cut off nobody knows whether there was something.
        Ok(quiet && self.oplog.cut() <= first)
    }
}

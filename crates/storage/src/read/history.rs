//! Reads of the recent past: finding a snapshot that shows a cluster time.
//!
//! A requested time is read from
//!
//! 1. the snapshot that was taken for it;
//! 2. a snapshot of another time, or a new one, if by the log nothing was committed between the
//!    two.
//!
//! Any other time is too old: there is no copy of versions that were overwritten and never part of
//! a kept snapshot.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::RawValue;

use crate::catalog::{Core, PastSnapshot};
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
    /// A view that is pinned to the present. Commits that begin meanwhile wait for those under way.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn pin_reads(&self) -> Result<ReadView> {
        let held = self.hold_now()?;
        ReadView::pinned(&held, held.time)
    }

    /// A view that is pinned to a past time, or to one up to which the log is complete.
    ///
    /// # Errors
    /// 239 SnapshotTooOld when no snapshot shows that time; errors of the engine.
    pub fn pin_reads_at(&self, time: u64) -> Result<ReadView> {
        self.history.expire(self.clock.monotonic_micros());
        let (before, later) = self.history.neighbours(time);
        for held in later.into_iter().chain(before) {
            if self.shows(&held, time)? {
                return ReadView::pinned(&held, time);
            }
        }
        // A read that is too old anyway takes no snapshot.
        if self.is_quiet(time, self.oplog.settled())? {
            let now = self.hold_now()?;
            if self.shows(&now, time)? {
                return ReadView::pinned(&now, time);
            }
        }
        Err(too_old(time))
    }

    /// Checks that a read as of `read` also shows the state at `time`.
    ///
    /// # Errors
    /// 239 SnapshotTooOld, errors of the engine.
    pub fn check_shows(&self, read: u64, time: u64) -> Result<()> {
        match read == time || self.is_quiet(read.min(time), read.max(time))? {
            true => Ok(()),
            false => Err(too_old(time)),
        }
    }

    /// Takes a snapshot of the present and keeps it.
    fn hold_now(&self) -> Result<Arc<PastSnapshot>> {
        // Read before the snapshot is taken; see [`crate::catalog::Definitions`].
        let edition = self.definitions.edition();
        let held = self.oplog.clock.at_rest(|time| match self.history.of(time) {
            Some(same) if same.edition == edition => Ok(same),
            _ => {
                self.engine().hold().map(|snapshot| PastSnapshot { snapshot, time, edition }.into())
            }
        });
        let held: Arc<PastSnapshot> = held.map_err(from_kv)?;
        let now = self.clock.monotonic_micros();
        self.history.expire(now);
        self.history.keep(&held, now);
        Ok(held)
    }

    /// Whether a snapshot shows this time: it is its own, or nothing was committed between the two.
    fn shows(&self, held: &PastSnapshot, time: u64) -> Result<bool> {
        if held.time == time {
            return Ok(true);
        }
        self.is_quiet(held.time.min(time), held.time.max(time))
    }

    /// Whether it is certain that nothing was committed after the first time and up to the last
    /// one.
    fn is_quiet(&self, first: u64, last: u64) -> Result<bool> {
        // The log must be complete up to there; then any snapshot has all entries between them.
        if last > self.oplog.settled() {
            return Ok(false);
        }
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
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
        // Checked after the scan, because entries may have been cut meanwhile.
        Ok(quiet && self.oplog.cut() <= first)
    }
}

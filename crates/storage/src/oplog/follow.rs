//! Reads the operation log forwards, for change streams and log-fed indexes.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, ScanEnd, TxnOptions};

use super::Oplog;
use super::read::EntryVisitor;
use super::resolve::{Resolver, history_lost};
use crate::record::error::from_kv;

impl Oplog {
    /// Visits the entries after a timestamp in order, as far as the log is complete and until the
    /// visitor breaks. Returns the timestamp up to which all entries were visited.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when entries after the timestamp were cut; errors of the
    /// visitor.
    pub fn read_changes(&self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64> {
        // Read before the snapshot is taken, which then contains everything up to it.
        let settled = self.settled();
        if settled <= after {
            self.check_not_cut(after)?;
            return Ok(after);
        }
        let txn = self.engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let resolver = Resolver::new(&*self.engine, &*txn, &self.cut);
        let end = settled.saturating_add(1).to_be_bytes().to_vec();
        let mut range = KeyRange { start: after.saturating_add(1).to_be_bytes().to_vec(), end };
        let mut reached = after;
        loop {
            let mut flow = ControlFlow::Continue(());
            let scanned =
                self.scan(&resolver, &*txn, &range, Direction::Forward, &mut |entry| {
                    self.followed.fetch_add(1, Ordering::Relaxed);
                    flow = visit(entry)?;
                    reached = entry.timestamp();
                    Ok(flow)
                })?;
            // Checked after the scan, which may have missed entries that were cut meanwhile.
            self.check_not_cut(after)?;
            match scanned {
                ScanEnd::Exhausted => return Ok(settled),
                ScanEnd::More { .. } if flow.is_break() => return Ok(reached),
                ScanEnd::More { last_key } => {
                    range = range.after(&last_key, Direction::Forward);
                }
            }
        }
    }

    /// Checks that no entry after this timestamp was cut, and that a restore has not lost it.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost.
    pub fn check_not_cut(&self, after: u64) -> Result<()> {
        let is_lost = self.lost.iter().any(|lost| lost.contains(after));
        match after < self.cut() || is_lost {
            false => Ok(()),
            true => Err(history_lost()),
        }
    }
}

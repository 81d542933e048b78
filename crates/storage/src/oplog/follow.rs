//! Reading the operation log in its order, for those who follow it.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, ScanEnd, TxnOptions};

use super::Oplog;
use super::read::EntryVisitor;
use super::resolve::{Resolver, history_lost};
use crate::record::error::from_kv;

impl Oplog {
    /// Shows the entries behind a timestamp, in their order, as far as the log is complete and until the visitor breaks; gives
    /// the timestamp up to which everything was shown.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when entries behind the timestamp are not kept any more; those of the visitor.
    pub fn read_changes(&self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64> {
        // Asked before the snapshot, which then has everything below.
        let settled = self.settled();
        if settled <= after {
            self.check_kept(after)?;
            return Ok(after);
        }
        let txn = self.engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
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
            // Asked behind the reading: what was cut meanwhile may have been missed.
            self.check_kept(after)?;
            match scanned {
                ScanEnd::Exhausted => return Ok(settled),
                ScanEnd::More { .. } if flow.is_break() => return Ok(reached),
                ScanEnd::More { last_key } => {
                    range = range.after(&last_key, Direction::Forward);
                }
            }
        }
    }

    /// # Errors
    /// 286 ChangeStreamHistoryLost.
    pub fn check_kept(&self, after: u64) -> Result<()> {
        match after < self.cut() {
            false => Ok(()),
            true => Err(history_lost()),
        }
    }
}

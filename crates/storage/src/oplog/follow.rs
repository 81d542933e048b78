//! Reading the operation log in its order, for those who follow it.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::RawDoc;

use super::Oplog;
use crate::record::error::from_kv;

impl Oplog {
    /// Shows the entries behind a timestamp, in their order, as far as the log is complete and until the visitor breaks; gives
    /// the timestamp up to which everything was shown.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when entries behind the timestamp are not kept any more; those of the visitor.
    pub fn read_changes(
        &self,
        after: u64,
        visit: &mut dyn FnMut(u64, RawDoc<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        // Asked before the snapshot, which then has everything below.
        let settled = self.settled();
        if settled <= after {
            self.check_kept(after)?;
            return Ok(after);
        }
        let txn = self.engine.begin(TxnOptions { read_only: true }).map_err(from_kv)?;
        let end = settled.saturating_add(1).to_be_bytes().to_vec();
        let mut range = KeyRange { start: after.saturating_add(1).to_be_bytes().to_vec(), end };
        let mut reached = after;
        loop {
            let mut outcome = Ok(ControlFlow::Continue(()));
            let see = &mut |key: &[u8], value: &[u8]| {
                let timestamp = key.try_into().ok().map(u64::from_be_bytes);
                let (Some(timestamp), Some(entry)) = (timestamp, RawDoc::new(value)) else {
                    outcome = Err(Error::new(
                        ErrorCode::DataCorruptionDetected,
                        "an entry of the operation log cannot be read",
                    ));
                    return ControlFlow::Break(());
                };
                outcome = visit(timestamp, entry);
                match outcome {
                    Ok(flow) => {
                        reached = timestamp;
                        flow
                    }
                    Err(_) => ControlFlow::Break(()),
                }
            };
            let scanned = txn
                .scan(Keyspace::Oplog, &range, Direction::Forward, ScanLimit::NONE, see)
                .map_err(from_kv)?;
            let flow = outcome?;
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
            true => Err(Error::new(
                ErrorCode::ChangeStreamHistoryLost,
                "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
            )),
        }
    }
}

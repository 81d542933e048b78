//! Removes the recorded statements of sessions that have timed out.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use mayfly_base::{Result, limits};
use mayfly_kv::{Direction, Guard, KeyRange, Keyspace, ScanLimit, TxnOptions};

use crate::Store;
use crate::record::error::from_kv;
use crate::write::recorded_at;

/// The number of rows that are deleted in one transaction.
const SWEEP_ROWS: usize = 1000;
const SESSION_MS: i64 = limits::SESSION_TIMEOUT_MINUTES as i64 * 60_000;

impl Store {
    /// Removes recorded statements of sessions that have timed out; scans them only when some may
    /// be due.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn sweep_statements(&self) -> Result<()> {
        let now_ms = self.clock.now_ms();
        if now_ms < self.next_statement_due.load(Ordering::Acquire) {
            return Ok(());
        }
        // Statements recorded from now on are due later than this.
        self.next_statement_due.store(now_ms.saturating_add(SESSION_MS), Ordering::Release);
        let mut oldest_kept = i64::MAX;
        let mut range = KeyRange { start: Vec::new(), end: vec![0xFF; 24] };
        loop {
            let mut due = Vec::new();
            let mut last = None;
            let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
            let limit = ScanLimit::rows(SWEEP_ROWS);
            txn.scan(Keyspace::Session, &range, Direction::Forward, limit, &mut |key, value| {
                last = Some(key.to_vec());
                match recorded_at(key, value) {
                    Some(wall_ms) if wall_ms.saturating_add(SESSION_MS) > now_ms => {
                        oldest_kept = oldest_kept.min(wall_ms);
                    }
                    _ => due.push((key.to_vec(), value.to_vec())),
                }
                ControlFlow::Continue(())
            })
            .map_err(from_kv)?;
            drop(txn);
            if !due.is_empty() {
                self.change(|txn, _| {
                    for (key, value) in &due {
                        let mut same = false;
                        txn.get_locked(Keyspace::Session, key, &mut |now| same = now == value)
                            .map_err(from_kv)?;
                        if same {
                            txn.delete(Keyspace::Session, key, Guard::Checked).map_err(from_kv)?;
                        }
                    }
                    Ok(())
                })?;
            }
            match last {
                Some(last) => range = range.after(&last, Direction::Forward),
                None => break,
            }
        }
        if oldest_kept != i64::MAX {
            let due = oldest_kept.saturating_add(SESSION_MS);
            self.next_statement_due.fetch_min(due, Ordering::AcqRel);
        }
        Ok(())
    }
}

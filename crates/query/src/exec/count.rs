//! Counting results. If the bounds of an index scan are equivalent to the filter, its entries are
//! counted without being decoded; otherwise the plan runs and the documents are dropped.

use mayfly_storage::StoreSession;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{ErrorCode, Result};
use mayfly_storage::{Direction, ScanResult, Snapshot};

use super::{Executor, Flow, note_use};
use crate::plan::{IndexScan, Plan};

/// Entries counted between two checks of the deadline.
const CHUNK_ENTRIES: usize = 10_000;

impl Executor {
    /// Counts the remaining results, with skip and limit applied, and finishes the executor.
    ///
    /// # Errors
    /// Errors of [`Executor::run`].
    pub fn count(mut self, session: StoreSession<'_>) -> Result<u64> {
        self.count_only();
        self.settle(session)?;
        if self.trial.is_some() {
            // A cached choice is used as it is: a count does not run far enough to doubt it.
            note_use(&self.collection, &self.plan);
        }
        if let Plan::Keys(input) = &self.plan
            && let Plan::Index(scan) = &**input
            && let Some(counted) = self.count_entries(scan, session)?
        {
            return Ok(counted);
        }
        let mut counted = 0;
        while !self.is_done() {
            self.expect(usize::MAX);
            self.run(session, &mut |_, _, _| {
                counted += 1;
                Ok(Flow::More)
            })?;
        }
        Ok(counted)
    }

    /// Counts the entries in the ranges of a scan; `None` if a document may have several of them,
    /// or if some are hidden.
    fn count_entries(&self, scan: &IndexScan, session: StoreSession<'_>) -> Result<Option<u64>> {
        match self.count_over(scan, session, StoreSession::snapshot_again) {
            Err(error) if error.code() == ErrorCode::QueryPlanKilled => {
                self.count_over(scan, session, StoreSession::snapshot)
            }
            counted => counted,
        }
    }

    /// [`Executor::count_entries`], with this way to take the snapshot.
    fn count_over<'s>(
        &self,
        scan: &IndexScan,
        session: StoreSession<'s>,
        take: fn(&StoreSession<'s>) -> Result<Snapshot>,
    ) -> Result<Option<u64>> {
        let plain = scan.checks.is_empty() && scan.key_filter.is_none() && !scan.repeats;
        if !plain || self.collection.hides_expired() {
            return Ok(None);
        }
        let index = &scan.index;
        self.collection.check_alive()?;
        index.check_alive()?;
        let snapshot = take(&session)?;
        // This must come after the snapshot: an index is marked multikey before its array keys are
        // visible.
        if index.is_multikey() {
            return Ok(None);
        }
        let mut counted = 0;
        for range in &scan.ranges {
            let mut range = range.clone();
            loop {
                session.op.check()?;
                let (entries, end) = snapshot.count_entries(index, &range, CHUNK_ENTRIES)?;
                session.op.keys_examined.fetch_add(entries, Relaxed);
                counted += entries;
                match end {
                    ScanResult::Exhausted => break,
                    ScanResult::Paused(last) => range = range.after(&last, Direction::Forward),
                }
            }
        }
        // As after every scan: the range of a dropped index is cleared even under open snapshots.
        self.collection.check_alive()?;
        index.check_alive()?;
        Ok(Some(counted))
    }
}

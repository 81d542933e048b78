//! Counting. Where the bounds of an index say all that the filter says, its entries are counted without a look into
//! them; everywhere else the documents are run through and not kept.

use mayfly_storage::StoreSession;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::Result;
use mayfly_storage::{Direction, ScanLimit, Scanned};

use super::{Executor, Flow, note_use};
use crate::plan::{IndexScan, Plan};

/// Entries counted between two checks of the deadline.
const CHUNK_ENTRIES: usize = 10_000;

impl Executor {
    /// How many results there are, skip and limit considered. The executor is done then.
    ///
    /// # Errors
    /// Those of [`Executor::run`].
    pub fn count(mut self, session: StoreSession<'_>) -> Result<u64> {
        self.count_only();
        self.settle(session)?;
        if self.trial.is_some() {
            // What was cached is taken as it is: nothing is read by it.
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

    /// Counts the entries of a scan's ranges; nothing when a document may have several of them, and when some are hidden.
    fn count_entries(&self, scan: &IndexScan, session: StoreSession<'_>) -> Result<Option<u64>> {
        let plain = scan.checks.is_empty() && scan.key_filter.is_none() && !scan.repeats;
        if !plain || self.collection.hides_expired() {
            return Ok(None);
        }
        let index = &scan.index;
        self.collection.check_alive()?;
        index.check_alive()?;
        let snapshot = session.snapshot()?;
        // Asked behind the snapshot: an index says that it has become multikey before anybody sees the keys.
        if index.is_multikey() {
            return Ok(None);
        }
        let mut counted = 0;
        for range in &scan.ranges {
            let mut range = range.clone();
            loop {
                session.op.check()?;
                let limit = ScanLimit::rows(CHUNK_ENTRIES);
                let (entries, end) = snapshot.count_entries(index, &range, limit)?;
                session.op.keys_examined.fetch_add(entries, Relaxed);
                counted += entries;
                match end {
                    Scanned::Exhausted => break,
                    Scanned::Paused(last) => range = range.after(&last, Direction::Forward),
                }
            }
        }
        // As behind every scan: what was dropped meanwhile is cleared under open snapshots, too.
        self.collection.check_alive()?;
        index.check_alive()?;
        Ok(Some(counted))
    }
}

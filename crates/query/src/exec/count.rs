//! Counting. Where the bounds of an index say all that the filter says, its entries are counted without a look into
//! them; everywhere else the documents are run through and not kept.

use mayfly_base::{OpCtx, Result};
use mayfly_storage::{Direction, ScanLimit, Scanned, Store};

use super::{Executor, Flow, count};
use crate::plan::Access;

/// Entries counted between two checks of the deadline.
const CHUNK_ENTRIES: usize = 10_000;

impl Executor {
    /// How many results there are, skip and limit considered. The executor is done then.
    ///
    /// # Errors
    /// Those of [`Executor::run`].
    pub fn count(mut self, store: &Store, op: &OpCtx) -> Result<u64> {
        self.count_only();
        let hides = self.collection.hides_expired();
        let plain = self.keys_only && !hides && self.query.skip == 0 && self.query.limit.is_none();
        if plain && let Some(counted) = self.count_entries(store, op)? {
            return Ok(counted);
        }
        let mut counted = 0;
        while !self.is_done() {
            self.expect(usize::MAX);
            self.run(store, op, &mut |_, _, _| {
                counted += 1;
                Ok(Flow::More)
            })?;
        }
        Ok(counted)
    }

    /// Counts the entries of the plan's ranges; nothing when a document may have several of them.
    fn count_entries(&mut self, store: &Store, op: &OpCtx) -> Result<Option<u64>> {
        let Access::Index { index, .. } = &self.plan.access else { return Ok(None) };
        self.collection.check_alive()?;
        index.check_alive()?;
        let snapshot = store.snapshot()?;
        // Asked behind the snapshot: an index says that it has become multikey before anybody sees the keys.
        if index.is_multikey() {
            return Ok(None);
        }
        let mut counted = 0;
        for range in &self.ranges {
            let mut range = range.clone();
            loop {
                op.check()?;
                let limit = ScanLimit::rows(CHUNK_ENTRIES);
                let (entries, end) = snapshot.count_entries(index, &range, limit)?;
                count(op, entries, 0);
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

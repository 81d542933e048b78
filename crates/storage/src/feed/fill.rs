//! Fills a new log-fed index from the records of its collection.
//!
//! 1. The settled timestamp is written as the position of an index that is not filled. From then
//!    on the log is kept after this timestamp.
//! 2. All records are read in order, a page in each step, and their documents are indexed.
//! 3. The index is marked as filled, with the position of point 1. Documents that changed meanwhile
//!    are in the log after it.
//!
//! A crash in between begins again at point 2, with the same position. What the first attempt has
//! indexed remains: if such a document is gone, its deletion is in the log after the position.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::RawValue;
use mayfly_work::OpCtx;

use super::{FeedJob, FeedStep, FilledTo, feed_of};
use crate::Store;
use crate::catalog::{Collection, FeedRow, Index};
use crate::read::{ScanResult, whole_range};
use crate::record::Record;

/// The size of a page.
const PAGE: ScanLimit = ScanLimit::rows(if cfg!(test) { 7 } else { 1_000 }).bytes(4 << 20);

impl FeedJob<'_> {
    /// Fills the index by one page.
    pub(super) fn fill(&self, filled_to: &mut FilledTo) -> Result<FeedStep> {
        let store = self.store;
        let position = match self.feed.row() {
            Some(row) => row.position,
            None => {
                // An empty log has no timestamp; the first one is greater than 1.
                let position = store.oplog.settled().max(1);
                self.apply(&[], Some(FeedRow { position, filled: false }))?;
                position
            }
        };
        store.oplog.check_not_cut(position)?;
        let mut range = whole_range();
        let forward = Direction::Forward;
        if let Some(last) = filled_to {
            range = range.after(last, forward);
        }
        let mut ids = Vec::new();
        let snapshot = store.latest()?;
        let see = &mut |_: &[u8], record: Record<'_>| {
            let id = record.document.get("_id").unwrap_or(RawValue::Null);
            ids.push(self.collection.id_key(id));
            Ok(ControlFlow::Continue(()))
        };
        let scanned = snapshot.scan_stored(self.collection, &range, forward, PAGE, see)?;
        drop(snapshot);
        match scanned {
            ScanResult::Paused(last) => {
                self.apply(&ids, None)?;
                *filled_to = Some(last);
            }
            ScanResult::Exhausted => {
                self.apply(&ids, Some(FeedRow { position, filled: true }))?;
                *filled_to = None;
            }
        }
        Ok(FeedStep::More)
    }
}

impl Store {
    /// Fills an index that is being built, and follows the log up to the end of the filling, while
    /// `may_continue` returns true.
    pub(crate) fn fill_log_fed(
        &self,
        op: &OpCtx,
        collection: &Collection,
        index: &Index,
        may_continue: &dyn Fn() -> Result<bool>,
    ) -> Result<()> {
        let feed = feed_of(index)?;
        let mut end = None;
        while may_continue()? {
            let reached = feed.reached(&self.oplog, collection);
            if let Some(reached) = reached
                && reached >= *end.get_or_insert_with(|| self.oplog.settled())
            {
                break;
            }
            match self.feed_index(op, collection, index) {
                // The next check decides what this means for the build.
                Err(_) if index.is_dropped() || collection.is_dropped() => {}
                step => drop(step?),
            }
        }
        Ok(())
    }
}

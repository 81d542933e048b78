//! Locks a collection at a moment when its log-fed indexes have all of its writes.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::Result;
use mayfly_work::{OpCtx, current};

use crate::catalog::{ChangedState, Collection, Core, Feed, SearchVersion};

/// How long a check waits for an index, in checks, and the time between two of them.
const MOST_CHECKS: usize = if cfg!(test) { 3 } else { 200 };
const BETWEEN: Duration = Duration::from_millis(5);

/// A collection at a moment when no write to it is under way.
pub(super) struct AtRest<'c> {
    /// The lock that keeps writes out.
    pub(super) _no_writers: ChangedState<'c>,
    /// The ids of log-fed indexes that lag even after a wait.
    pub(super) lagging: Vec<u64>,
    /// The versions of search indexes that have all writes.
    pub(super) current: Vec<Arc<SearchVersion>>,
}

impl Core {
    /// Locks the state exclusively, if possible at a moment when the indexes that follow the log
    /// have all writes.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(super) fn lock_log_fed<'c>(
        &self,
        op: &OpCtx,
        collection: &'c Collection,
        versions: &[Arc<SearchVersion>],
    ) -> Result<AtRest<'c>> {
        let fed = collection.log_fed();
        // The lock of a secondary does not stop the owner's writes, which its files follow later.
        let versions = if self.follows_owner { &[] } else { versions };
        let mut checks = 0;
        loop {
            let state = collection.change_state()?;
            if fed.is_empty() && versions.is_empty() {
                return Ok(AtRest { _no_writers: state, lagging: Vec::new(), current: Vec::new() });
            }
            // No write to the collection is under way. Others end, without this lock.
            let last = self.oplog.clock.at_rest(|last| last);
            let lags = |feed: &Feed| feed.reached(&self.oplog, collection) < Some(last);
            let mut lagging = fed.clone();
            lagging.retain(|index| index.feed().is_none_or(lags));
            let (lagging_versions, current): (Vec<_>, Vec<_>) =
                versions.iter().cloned().partition(|version| lags(&version.feed));
            checks += 1;
            let mut feeds = lagging.iter().filter_map(|index| index.feed());
            let first = feeds.next().or_else(|| Some(&*lagging_versions.first()?.feed));
            let Some(first) = first.filter(|_| checks < MOST_CHECKS) else {
                let lagging = lagging.iter().map(|index| index.id()).collect();
                return Ok(AtRest { _no_writers: state, lagging, current });
            };
            drop(state);
            op.check()?;
            let _ = current::wait(|| first.wait(BETWEEN));
        }
    }
}

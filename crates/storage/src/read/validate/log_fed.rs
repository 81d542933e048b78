//! Locks a collection at a moment when its log-fed indexes have all of its writes.

use std::time::Duration;

use mayfly_base::Result;
use mayfly_work::{OpCtx, current};

use crate::catalog::{ChangedState, Collection, Core};

/// How long a check waits for an index, in checks, and the time between two of them.
const MOST_CHECKS: usize = if cfg!(test) { 3 } else { 200 };
const BETWEEN: Duration = Duration::from_millis(5);

impl Core {
    /// Locks the state exclusively. Also returns the ids of log-fed indexes that lag even after a
    /// wait.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(super) fn lock_log_fed<'c>(
        &self,
        op: &OpCtx,
        collection: &'c Collection,
    ) -> Result<(ChangedState<'c>, Vec<u64>)> {
        let fed = collection.log_fed();
        let mut checks = 0;
        loop {
            let state = collection.change_state()?;
            if fed.is_empty() {
                return Ok((state, Vec::new()));
            }
            // No write to the collection is under way. Others end, without this lock.
            let last = self.oplog.clock.at_rest(|last| last);
            let mut lagging = fed.clone();
            lagging.retain(|index| {
                let feed = index.feed();
                feed.and_then(|feed| feed.reached(&self.oplog, collection)) < Some(last)
            });
            checks += 1;
            let Some(first) = lagging.first().filter(|_| checks < MOST_CHECKS) else {
                return Ok((state, lagging.iter().map(|index| index.id()).collect()));
            };
            drop(state);
            op.check()?;
            if let Some(feed) = first.feed() {
                let _ = current::wait(|| feed.wait(BETWEEN));
            }
        }
    }
}

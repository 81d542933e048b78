//! Waits: of readers for an index's position, and of the follower for work.

use std::time::Duration;

use mayfly_base::Result;
use mayfly_work::{OpCtx, current};

use super::feed_of;
use crate::Store;
use crate::catalog::{Collection, Index};

/// The shortest and the longest time between two checks of a waiting reader. The position of an
/// index is notified, the timestamp of a commit elsewhere that is under way is not.
pub(super) const SHORTEST_CHECK: Duration = Duration::from_micros(200);
pub(super) const LONGEST_CHECK: Duration = Duration::from_millis(50);

impl Store {
    /// Waits until a log-fed index has every write that was acknowledged before this call. A
    /// snapshot that is taken afterwards has these entries.
    ///
    /// # Errors
    /// Errors of the operation's deadline; 175 QueryPlanKilled when the index or its collection is
    /// dropped, or the index is built again under a new id, meanwhile; 11600 when the store closes.
    pub fn await_fed(&self, op: &OpCtx, collection: &Collection, index: &Index) -> Result<()> {
        let feed = feed_of(index)?;
        // The settled timestamp is not enough: an acknowledged write may have a later one while an
        // earlier commit is under way.
        let needed = self.oplog.clock.last();
        let mut longest = SHORTEST_CHECK;
        loop {
            op.check()?;
            self.check_fed(collection, index)?;
            if feed.reached(&self.oplog, collection).is_some_and(|reached| reached >= needed) {
                return Ok(());
            }
            let _ = current::wait(|| feed.wait(longest));
            longest = (2 * longest).min(LONGEST_CHECK);
        }
    }

    /// Waits until [`Store::feed`] or [`Store::feed_search`] has something to do for this
    /// collection.
    pub async fn wait_for_feed(&self, collection: &Collection) {
        let mut slowest = None;
        for feed in collection.followed() {
            match (feed.row().filter(|row| row.filled), feed.watch()) {
                (Some(row), Some(watch)) => {
                    let slower =
                        slowest.as_ref().is_none_or(|(position, _)| row.position < *position);
                    if slower {
                        slowest = Some((row.position, watch));
                    }
                }
                _ => return,
            }
        }
        if let Some((position, watch)) = slowest {
            self.oplog.wait_past_for(&watch, position).await;
        }
    }

    /// Waits until a definition has changed since this edition: a log-fed index may be new.
    pub async fn wait_for_definitions(&self, edition: u64) {
        self.definitions.wait_past(edition).await;
    }

    /// The edition of the definitions, for [`Store::wait_for_definitions`].
    pub fn definitions_edition(&self) -> u64 {
        self.definitions.edition()
    }
}

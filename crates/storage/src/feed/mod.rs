//! Log-fed indexes: their entries are brought forward from the operation log, after the writes.
//!
//! 1. [`Store::feed`] brings the log-fed indexes of a collection forward by one step. The follower
//!    of the layer above calls it while [`Store::wait_for_feed`] reports work.
//! 2. An index without entries is filled from the records (`fill`), a page in each step.
//! 3. After that a step reads the log after the index's position (`follow`), and indexes the
//!    documents that it names in their present version (`apply`). Entries and position are one
//!    engine transaction.
//! 4. A reader waits until the position has passed the last timestamp that was assigned before it
//!    began (`wait`).
//! 5. The log is cut up to the position of the slowest index. Beyond a limit it is cut further; the
//!    index is then stale, and is built again under a new id (`retention`).
//!
//! `README.md` in this folder has an example.

mod apply;
mod fill;
mod follow;
mod retention;
mod reverse;
#[cfg(test)]
mod tests;
mod wait;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::{OpCtx, current};

use crate::Store;
use crate::catalog::{Collection, Feed, Index};
use crate::record::RecordKey;

/// What a step has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FeedStep {
    /// There is more to do at once.
    More,
    /// The indexes have all entries that the log had when the step began.
    Current,
    /// Nothing was done, because `fsync` has locked the store.
    Locked,
}

impl FeedStep {
    fn and(self, other: FeedStep) -> FeedStep {
        if self == FeedStep::More { self } else { other }
    }
}

impl Store {
    /// Brings the log-fed indexes of a collection forward by one step. Indexes that are being built
    /// are left to their build.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline; 175 QueryPlanKilled when the
    /// collection is dropped meanwhile. A later step continues.
    pub fn feed(&self, op: &OpCtx, collection: &Collection) -> Result<FeedStep> {
        let Some(_writing) = self.fsync_lock.try_enter() else { return Ok(FeedStep::Locked) };
        let mut left = FeedStep::Current;
        for index in collection.log_fed() {
            let step = match self.feed_index(op, collection, &index) {
                Err(error) if error.code() == ErrorCode::ChangeStreamHistoryLost => {
                    self.build_again(collection, &index)?;
                    FeedStep::More
                }
                // Another one may have taken its place.
                Err(_) if index.is_dropped() && !collection.is_dropped() => FeedStep::More,
                other => other?,
            };
            left = left.and(step);
        }
        Ok(left)
    }

    /// Brings one index forward by one step.
    pub(crate) fn feed_index(
        &self,
        op: &OpCtx,
        collection: &Collection,
        index: &Index,
    ) -> Result<FeedStep> {
        let feed = feed_of(index)?;
        let mut turn = current::acquire(|longest| feed.turn.try_lock_for(longest))?;
        op.check()?;
        self.check_fed(collection, index)?;
        feed.begin_watch(&self.oplog, collection);
        let job = FeedJob { store: self, op, collection, index, feed };
        match feed.row().is_some_and(|row| row.filled) {
            false => job.fill(&mut turn),
            true => job.follow(),
        }
    }

    /// Checks that an index may be written.
    fn check_fed(&self, collection: &Collection, index: &Index) -> Result<()> {
        self.check_open()?;
        collection.check_alive()?;
        index.check_alive()
    }
}

/// A step of one index. The caller holds the index's turn.
struct FeedJob<'j> {
    store: &'j Store,
    op: &'j OpCtx,
    collection: &'j Collection,
    index: &'j Index,
    feed: &'j Feed,
}

/// The last record that was indexed, while an index is being filled.
type FilledTo = Option<RecordKey>;

fn feed_of(index: &Index) -> Result<&Feed> {
    index.feed().ok_or_else(|| Error::internal("an index that is not log-fed has no feed"))
}

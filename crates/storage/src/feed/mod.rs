//! Indexes that follow the operation log, after the writes: log-fed indexes, whose entries are in
//! the byte store, and search indexes, whose files belong to a higher layer (`files`).
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
mod files;
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
use crate::catalog::{Collection, Feed, FeedRow, Index, SearchVersion};
use crate::record::{IdKey, RecordKey};

pub use files::{FedDocument, FeedFiles};

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
    /// What two steps together have left to do. A locked store is reported even when the other step
    /// had nothing to do, so that the caller pauses until the unlock.
    pub fn and(self, other: FeedStep) -> FeedStep {
        match (self, other) {
            (FeedStep::More, _) | (_, FeedStep::More) => FeedStep::More,
            (FeedStep::Locked, _) | (_, FeedStep::Locked) => FeedStep::Locked,
            (FeedStep::Current, FeedStep::Current) => FeedStep::Current,
        }
    }
}

impl Store {
    /// Brings the log-fed indexes of a collection forward by one step. Indexes that are being built
    /// are left to their build, and those of a secondary to the owner.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline; 175 QueryPlanKilled when the
    /// collection is dropped meanwhile. A later step continues.
    pub fn feed(&self, op: &OpCtx, collection: &Collection) -> Result<FeedStep> {
        let Some(_writing) = self.fsync_lock.try_enter() else { return Ok(FeedStep::Locked) };
        let mut left = FeedStep::Current;
        if self.is_secondary() {
            return Ok(left);
        }
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
        let target = Target::Entries(index);
        FeedJob { store: self, op, collection, target, feed }.run(&mut turn)
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
    target: Target<'j>,
    feed: &'j Feed,
}

/// The index that a step brings forward.
#[derive(Clone, Copy)]
enum Target<'j> {
    /// A log-fed index, whose entries are in the byte store.
    Entries(&'j Index),
    /// A search index, whose files belong to a higher layer.
    Files(&'j SearchVersion, &'j dyn FeedFiles),
}

impl FeedJob<'_> {
    /// Runs the step.
    fn run(&self, filled_to: &mut FilledTo) -> Result<FeedStep> {
        match self.feed.row().is_some_and(|row| row.filled) {
            false => self.fill(filled_to),
            true => self.follow(),
        }
    }

    /// Brings these documents up to date, and then notes the row.
    fn apply(&self, ids: &[IdKey], row: Option<FeedRow>) -> Result<()> {
        match self.target {
            Target::Entries(index) => self.apply_entries(index, ids, row),
            Target::Files(version, files) => self.apply_to_files(version, files, ids, row),
        }
    }
}

/// The last record that was indexed, while an index is being filled.
type FilledTo = Option<RecordKey>;

fn feed_of(index: &Index) -> Result<&Feed> {
    index.feed().ok_or_else(|| Error::internal("an index that is not log-fed has no feed"))
}

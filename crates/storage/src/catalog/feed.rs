//! The run-time state of a log-fed index: the position up to which its entries have the commits of
//! the operation log. See [`crate::feed`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mayfly_base::Namespace;
use parking_lot::{Condvar, Mutex};

use crate::catalog::{Collection, Core, Index};
use crate::oplog::{ChangeScope, Oplog, Watch};
use crate::record::RecordKey;

/// The row of a log-fed index in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedRow {
    /// Entries have all commits up to this timestamp; while the index is being filled, all commits
    /// after it are still to be followed.
    pub(crate) position: u64,
    /// Whether all records have been indexed once.
    pub(crate) filled: bool,
}

impl FeedRow {
    /// Encodes the row's value.
    pub(crate) fn encode(self) -> [u8; 9] {
        let mut value = [u8::from(self.filled); 9];
        value[..8].copy_from_slice(&self.position.to_be_bytes());
        value
    }

    /// Decodes a row's value; `None` for an unreadable one, whose index is filled again.
    pub(crate) fn decode(value: &[u8]) -> Option<FeedRow> {
        let (position, flag) = value.split_first_chunk::<8>()?;
        let position = u64::from_be_bytes(*position);
        match flag {
            [filled @ (0 | 1)] => Some(FeedRow { position, filled: *filled == 1 }),
            _ => None,
        }
    }
}

/// The state of one log-fed index.
#[derive(Default)]
pub(crate) struct Feed {
    /// The position as in [`FeedRow`]; 0 before there is a row.
    position: AtomicU64,
    filled: AtomicBool,
    /// The position in the catalog.
    stored: AtomicU64,
    /// Held by the thread that brings the index forward; while the index is being filled, the last
    /// record that was indexed.
    pub(crate) turn: Mutex<Option<RecordKey>>,
    /// The watch of the log's entries about the collection of this name.
    watch: Mutex<Option<(Namespace, Arc<Watch>)>>,
    moving: Mutex<()>,
    moved: Condvar,
}

impl Feed {
    /// Notes the state of the entries, which the catalog has in this row.
    pub(crate) fn note_row(&self, row: FeedRow) {
        self.note_stored(row.position);
        self.note(row);
    }

    /// Notes the state of the entries, and wakes waiting readers.
    pub(crate) fn note(&self, row: FeedRow) {
        self.position.store(row.position, Ordering::Release);
        self.filled.store(row.filled, Ordering::Release);
        drop(self.moving.lock());
        self.moved.notify_all();
    }

    /// Notes that the catalog has this position.
    fn note_stored(&self, position: u64) {
        self.stored.store(position, Ordering::Release);
    }

    /// The state of the entries; `None` before filling has begun.
    pub(crate) fn row(&self) -> Option<FeedRow> {
        let position = self.position.load(Ordering::Acquire);
        let filled = self.filled.load(Ordering::Acquire);
        (position > 0).then_some(FeedRow { position, filled })
    }

    /// Waits until the position moves, or until this time has passed.
    pub(crate) fn wait(&self, longest: Duration) {
        self.moved.wait_for(&mut self.moving.lock(), longest);
    }

    /// Watches the entries about a collection, before the caller reads the log.
    pub(crate) fn begin_watch(&self, oplog: &Oplog, collection: &Collection) {
        let ns = collection.namespace();
        let mut watch = self.watch.lock();
        if watch.as_ref().is_none_or(|(watched, _)| *watched != ns) {
            *watch = Some((ns.clone(), oplog.watch(ChangeScope::Collection(ns))));
        }
    }

    /// Ends the watch: after a rename there may be entries that it has not noted.
    pub(crate) fn end_watch(&self) {
        *self.watch.lock() = None;
    }

    /// The watch, if there is one.
    pub(crate) fn watch(&self) -> Option<Arc<Watch>> {
        self.watch.lock().as_ref().map(|(_, watch)| watch.clone())
    }

    /// The timestamp up to which the entries have all commits; `None` before the index is filled.
    /// Commits that the watch knows to concern other collections need not be read.
    pub(crate) fn reached(&self, oplog: &Oplog, collection: &Collection) -> Option<u64> {
        let row = self.row().filter(|row| row.filled)?;
        let watch = self.watch.lock().clone();
        let Some((ns, watch)) = watch else { return Some(row.position) };
        let quiet = oplog.quiet_until(&watch, row.position);
        // Compared last: writes under a new name are not settled before the name has changed.
        Some(if collection.namespace() == ns { quiet } else { row.position })
    }
}

impl Index {
    /// The state of a log-fed index.
    pub(crate) fn feed(&self) -> Option<&Feed> {
        self.runtime.feed.as_deref()
    }
}

impl Collection {
    /// Its log-fed indexes, including those that are being built.
    pub(crate) fn all_log_fed(&self) -> Vec<Arc<Index>> {
        let mut fed = self.indexes();
        fed.retain(|index| index.feed().is_some());
        fed
    }

    /// Whether it has log-fed indexes that the follower maintains.
    pub fn has_log_fed(&self) -> bool {
        !self.is_dropped() && !self.log_fed().is_empty()
    }

    /// Its log-fed indexes that the follower maintains: those that are built, or that came with
    /// the collection.
    pub(crate) fn log_fed(&self) -> Vec<Arc<Index>> {
        let mut fed = self.all_log_fed();
        fed.retain(|index| index.is_ready());
        fed
    }
}

impl Core {
    /// All log-fed indexes with their collections.
    fn all_log_fed(&self) -> Vec<(Arc<Collection>, Arc<Index>)> {
        if !self.catalog.may_be_log_fed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for collection in self.catalog.all().values() {
            let indexes = collection.all_log_fed().into_iter();
            found.extend(indexes.map(|index| (collection.clone(), index)));
        }
        found
    }

    /// Waits until the running steps have ended, at most this long for each. No further step may
    /// begin.
    pub(crate) fn await_steps_of_feeds(&self, longest: Duration) {
        for (_, index) in self.all_log_fed() {
            if let Some(feed) = index.feed() {
                drop(feed.turn.try_lock_for(longest));
            }
        }
    }

    /// The collections that have log-fed indexes for the follower.
    pub fn log_fed_collections(&self) -> Vec<Arc<Collection>> {
        if !self.catalog.may_be_log_fed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let all = self.catalog.all();
        all.values().filter(|collection| !collection.log_fed().is_empty()).cloned().collect()
    }

    /// The timestamp after which log-fed indexes still need the log; `None` if none needs it. A
    /// stale index, which lacks entries that were cut, is built again and needs nothing.
    pub(crate) fn slowest_feed(&self) -> Option<u64> {
        let needs = |(collection, index): &(Arc<Collection>, Arc<Index>)| {
            let feed = index.feed()?;
            feed.reached(&self.oplog, collection).or_else(|| Some(feed.row()?.position))
        };
        let cut = self.oplog.cut();
        self.all_log_fed().iter().filter_map(needs).filter(|position| *position >= cut).min()
    }

    /// The rows of indexes that the catalog has with a position before `least`, and that have got
    /// further meanwhile. They are written when the log is cut, so that an index without changes of
    /// its own is not stale after a restart, and at a clean close.
    pub(crate) fn feeds_to_store(&self, least: u64) -> Vec<(Arc<Index>, FeedRow)> {
        let due = |(collection, index): &(Arc<Collection>, Arc<Index>)| {
            let feed = index.feed()?;
            let position = feed.reached(&self.oplog, collection)?;
            let stored = feed.stored.load(Ordering::Acquire);
            let row = FeedRow { position, filled: true };
            (stored < least && stored < position).then(|| (index.clone(), row))
        };
        self.all_log_fed().iter().filter_map(due).collect()
    }
}

/// Notes that the catalog has these rows.
pub(crate) fn note_stored(feeds: &[(Arc<Index>, FeedRow)]) {
    for (index, row) in feeds {
        if let Some(feed) = index.feed() {
            feed.note_stored(row.position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        for row in
            [FeedRow { position: 7 << 32, filled: true }, FeedRow { position: 1, filled: false }]
        {
            assert_eq!(FeedRow::decode(&row.encode()), Some(row));
            assert_eq!(FeedRow::decode(&row.encode()[..8]), None);
        }
        assert_eq!(FeedRow::decode(&[2; 9]), None);
        assert_eq!(FeedRow::decode(&[0; 10]), None);
    }
}

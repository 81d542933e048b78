//! The run-time state of an index that follows the operation log: the position up to which it has
//! the commits of the log. Such indexes are log-fed indexes, whose entries are in the byte store,
//! and search indexes, whose files belong to a higher layer. See [`crate::feed`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mayfly_base::Namespace;
use parking_lot::{Condvar, Mutex};

use crate::catalog::{Collection, Core, Index, SearchIndex};
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

/// The row of a search index in the catalog: the log has no change of the index's documents between
/// two timestamps. Servers over one store have files of their own, so the position of the files of
/// one server says nothing about those of another one.
///
/// ```text
/// the later timestamp, 8 bytes big-endian | 1 | the earlier timestamp, 8 bytes big-endian
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuietPart {
    from: u64,
    to: u64,
}

impl QuietPart {
    /// Decodes a row's value; `None` for an unreadable one, and one of a program that did not note
    /// the earlier timestamp.
    fn decode(value: &[u8]) -> Option<QuietPart> {
        let (row, from) = value.split_at_checked(9)?;
        let row = FeedRow::decode(row).filter(|row| row.filled)?;
        Some(QuietPart { from: u64::from_be_bytes(from.try_into().ok()?), to: row.position })
    }

    /// The last position that files of this position are complete up to.
    fn extend(self, position: u64) -> u64 {
        if (self.from..self.to).contains(&position) { self.to } else { position }
    }
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

/// The state of one index that follows the log.
#[derive(Default)]
pub(crate) struct Feed {
    /// Whether the index is in files of a higher layer. Its position is known when it is opened.
    in_files: bool,
    /// Whether the files lack changes that searches already see.
    uncommitted: AtomicBool,
    /// Whether the files cannot be used, so that they need nothing of the log.
    unusable: AtomicBool,
    /// The position as in [`FeedRow`]; 0 before there is a row.
    position: AtomicU64,
    filled: AtomicBool,
    /// The position that a restart begins with: that in the catalog, or a later one in the files.
    stored: AtomicU64,
    /// The position of the last commit of the files; 0 if it is not known.
    committed: AtomicU64,
    /// The row of a search index, as the catalog had it when it was loaded.
    quiet: Mutex<QuietPart>,
    /// Held by the thread that brings the index forward; while the index is being filled, the last
    /// record that was indexed.
    pub(crate) turn: Mutex<Option<RecordKey>>,
    /// The watch of the log's entries about the collection of this name.
    watch: Mutex<Option<(Namespace, Arc<Watch>)>>,
    moving: Mutex<()>,
    moved: Condvar,
}

impl Feed {
    /// The state of an index in files.
    pub(crate) fn of_files() -> Feed {
        Feed { in_files: true, ..Feed::default() }
    }

    /// Notes the value of a row in the catalog. Unreadable ones are passed over.
    pub(crate) fn note_loaded(&self, value: &[u8]) {
        match self.in_files {
            true => *self.quiet.lock() = QuietPart::decode(value).unwrap_or_default(),
            false => FeedRow::decode(value).into_iter().for_each(|row| self.note_row(row)),
        }
    }

    /// The value of the row in the catalog that says this.
    pub(crate) fn row_value(&self, row: FeedRow) -> Vec<u8> {
        let mut value = row.encode().to_vec();
        if self.in_files {
            value.extend(self.committed.load(Ordering::Acquire).to_be_bytes());
        }
        value
    }

    /// Notes the position of files that were opened.
    pub(crate) fn note_opened(&self, position: u64) {
        self.committed.store(position, Ordering::Release);
        let position = self.quiet.lock().extend(position);
        self.note_row(FeedRow { position, filled: true });
    }

    /// The position that the catalog or the files have; 0 if it is not known.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// The latest position that is known.
    pub(crate) fn last(&self) -> u64 {
        self.position.load(Ordering::Acquire).max(self.stored()).max(self.quiet.lock().to)
    }

    /// Notes that the files will lack a change that is applied now.
    pub(crate) fn note_uncommitted(&self) {
        self.uncommitted.store(true, Ordering::Release);
    }

    /// Notes that the files have everything up to this position; 0 if they do not contain all
    /// documents yet.
    pub(crate) fn note_committed(&self, position: u64) {
        self.committed.store(position, Ordering::Release);
        if position == 0 {
            return;
        }
        self.note_stored(position);
        self.uncommitted.store(false, Ordering::Release);
    }

    /// Whether the files lack changes that searches see.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.uncommitted.load(Ordering::Acquire)
    }

    /// Forgets the state, because the index will be filled again.
    pub(crate) fn begin_again(&self) {
        self.position.store(0, Ordering::Release);
        self.filled.store(false, Ordering::Release);
        self.stored.store(0, Ordering::Release);
        self.committed.store(0, Ordering::Release);
        self.uncommitted.store(false, Ordering::Release);
        *self.watch.lock() = None;
    }

    /// Notes that the files cannot be used.
    pub(crate) fn give_up(&self) {
        self.unusable.store(true, Ordering::Release);
    }

    /// The timestamp after which the index still needs the log; `None` if it needs nothing. The log
    /// was cut up to `cut`.
    fn needs(&self, oplog: &Oplog, collection: &Collection, cut: u64) -> Option<u64> {
        if self.unusable.load(Ordering::Acquire) {
            return None;
        }
        let reached = self.reached(oplog, collection).or_else(|| Some(self.row()?.position));
        if !self.in_files {
            return reached;
        }
        match reached {
            // Read after the position: a change that follows it is noted before it is applied.
            // Without a commit, a restart fills the files again.
            Some(_) if self.is_uncommitted() && self.committed.load(Ordering::Acquire) > 0 => {
                Some(self.stored())
            }
            Some(reached) => Some(reached),
            // The files were not opened yet.
            None => Some(self.stored().max(self.quiet.lock().to).max(cut)),
        }
    }

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

    /// Waits until the position moves, or until this time has passed. Returns whether it has
    /// passed.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        self.moved.wait_for(&mut self.moving.lock(), longest).timed_out()
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

/// An index that follows the log.
pub(crate) struct Fed {
    collection: Arc<Collection>,
    /// The id of the index, or of the files of a search index.
    pub(crate) id: u64,
    feed: Arc<Feed>,
}

impl Fed {
    /// The value of the row in the catalog that says this.
    pub(crate) fn row_value(&self, row: FeedRow) -> Vec<u8> {
        self.feed.row_value(row)
    }
}

impl Collection {
    /// Its log-fed indexes, including those that are being built.
    pub(crate) fn all_log_fed(&self) -> Vec<Arc<Index>> {
        let mut fed = self.indexes();
        fed.retain(|index| index.feed().is_some());
        fed
    }

    /// The states of all indexes that follow the log, with their ids.
    pub(crate) fn feeds(&self) -> Vec<(u64, Arc<Feed>)> {
        let mut feeds = Vec::new();
        for index in self.now().indexes.iter() {
            feeds.extend(index.runtime.feed.clone().map(|feed| (index.id, feed)));
        }
        let versions = self.search.versions();
        feeds.extend(versions.into_iter().map(|version| (version.file, version.feed.clone())));
        feeds
    }

    /// The states of the indexes that the follower brings forward.
    pub(crate) fn followed(&self) -> Vec<Arc<Feed>> {
        let entries = self.log_fed().into_iter().filter_map(|index| index.runtime.feed.clone());
        let files = self.search.versions().into_iter();
        let usable = files.filter(|version| version.failure().is_none());
        entries.chain(usable.map(|version| version.feed.clone())).collect()
    }

    /// Whether it has indexes that the follower maintains.
    pub fn has_log_fed(&self) -> bool {
        !self.is_dropped() && (self.search.are_there() || !self.log_fed().is_empty())
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
    /// All indexes that follow the log.
    fn all_fed(&self) -> Vec<Fed> {
        if !self.catalog.may_be_log_fed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for collection in self.catalog.all().values() {
            let feeds = collection.feeds().into_iter();
            found.extend(feeds.map(|(id, feed)| Fed { collection: collection.clone(), id, feed }));
        }
        found
    }

    /// Waits until the running steps have ended, at most this long for each. No further step may
    /// begin.
    pub(crate) fn await_steps_of_feeds(&self, longest: Duration) {
        for fed in self.all_fed() {
            drop(fed.feed.turn.try_lock_for(longest));
        }
    }

    /// The collections that have indexes for the follower.
    pub fn log_fed_collections(&self) -> Vec<Arc<Collection>> {
        if !self.catalog.may_be_log_fed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let all = self.catalog.all();
        all.values().filter(|collection| collection.has_log_fed()).cloned().collect()
    }

    /// The search indexes of all collections.
    pub fn search_indexes(&self) -> Vec<Arc<SearchIndex>> {
        if !self.catalog.may_be_log_fed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let all = self.catalog.all();
        let there = all.values().filter(|collection| collection.search.are_there());
        there.flat_map(|collection| collection.search.all().to_vec()).collect()
    }

    /// The timestamp after which indexes still need the log; `None` if none needs it. A stale
    /// index, which lacks entries that were cut, is built again and needs nothing.
    pub(crate) fn slowest_feed(&self) -> Option<u64> {
        let cut = self.oplog.cut();
        let needs = |fed: &Fed| fed.feed.needs(&self.oplog, &fed.collection, cut);
        self.all_fed().iter().filter_map(needs).filter(|position| *position >= cut).min()
    }

    /// The rows of indexes that the catalog has with a position before `least`, and that have got
    /// further meanwhile. They are written when the log is cut, so that an index without changes of
    /// its own is not stale after a restart, and at a clean close.
    pub(crate) fn feeds_to_store(&self, least: u64) -> Vec<(Fed, FeedRow)> {
        let due = |fed: Fed| {
            let position = fed.feed.reached(&self.oplog, &fed.collection)?;
            // Files that lack changes have the position of their last commit.
            if fed.feed.is_uncommitted() {
                return None;
            }
            let stored = fed.feed.stored();
            let row = FeedRow { position, filled: true };
            (stored < least && stored < position).then_some((fed, row))
        };
        self.all_fed().into_iter().filter_map(due).collect()
    }
}

/// Notes that the catalog has these rows.
pub(crate) fn note_stored(feeds: &[(Fed, FeedRow)]) {
    feeds.iter().for_each(|(fed, row)| fed.feed.note_stored(row.position));
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

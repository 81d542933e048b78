//! Search indexes: the follower reads the log and the records as for log-fed indexes, and hands the
//! documents to a higher layer, which keeps them in files of its own.
//!
//! The position of such an index is that of the last commit of its files, or a later one if the
//! catalog has noted that they lack nothing up to it. After a restart, the follower continues
//! there.

use std::time::Duration;

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawDoc};
use mayfly_work::{OpCtx, current};

use super::wait::{LONGEST_CHECK, SHORTEST_CHECK};
use super::{FeedJob, FeedStep, Target};
use crate::Store;
use crate::catalog::{Collection, FeedRow, SearchVersion};
use crate::read::Snapshot;
use crate::record::IdKey;

/// The present version of a document.
pub struct FedDocument {
    /// The ordered key of its `_id`.
    pub id_key: IdKey,
    /// The document with the time of its last change, in milliseconds since 1970; `None` if it does
    /// not exist any more.
    pub document: Option<(i64, DocBuf)>,
}

/// The files of a search index.
pub trait FeedFiles {
    /// Applies the present versions of documents. To apply them again changes nothing.
    ///
    /// # Errors
    /// Errors of the files. The step is repeated.
    fn apply(&self, documents: &[FedDocument]) -> Result<()>;
}

/// The most bytes of documents that are handed over at once, unless one is larger.
const UNIT_BYTES: usize = 4 << 20;

impl Store {
    /// Brings the files of a search index forward by one step. The caller has noted the state of
    /// the files with [`Store::open_search`].
    ///
    /// # Errors
    /// Errors of the engine, of the files and of the operation's deadline; 175 QueryPlanKilled when
    /// the index is dropped meanwhile; 286 when the log was cut before the index had followed it,
    /// so that it must be filled again ([`Store::fill_search_again`]).
    pub fn feed_search(
        &self,
        op: &OpCtx,
        collection: &Collection,
        version: &SearchVersion,
        files: &dyn FeedFiles,
    ) -> Result<FeedStep> {
        let Some(_writing) = self.fsync_lock.try_enter() else { return Ok(FeedStep::Locked) };
        let feed = &*version.feed;
        let mut turn = current::acquire(|longest| feed.turn.try_lock_for(longest))?;
        op.check()?;
        self.check_open()?;
        collection.check_alive()?;
        version.check_alive()?;
        feed.begin_watch(&self.oplog, collection);
        let target = Target::Files(version, files);
        FeedJob { store: self, op, collection, target, feed }.run(&mut turn)
    }

    /// Notes the state of files that were opened: the position of their last commit, 0 if they did
    /// not contain all documents yet. Returns whether they can be used as they are; otherwise they
    /// must be emptied, and are filled again.
    pub fn open_search(&self, version: &SearchVersion, position: Option<u64>) -> bool {
        let feed = &*version.feed;
        let is_known = |position: &u64| (1..=self.oplog.clock.last()).contains(position);
        // A secondary has files of its own, which may be complete before or after the owner's.
        let is_usable = version.is_ready() || self.is_secondary();
        match position.filter(|_| is_usable).filter(is_known) {
            Some(position) => {
                feed.note_opened(position);
                version.mark_ready();
                true
            }
            None => {
                feed.begin_again();
                position.is_none()
            }
        }
    }

    /// Forgets the position of a search index whose files are empty.
    pub fn fill_search_again(&self, version: &SearchVersion) {
        *version.feed.turn.lock() = None;
        version.feed.begin_again();
    }

    /// The position up to which the files can be committed: everything up to it is applied, and is
    /// durable in the log; 0 for files that do not contain all documents yet. `None` while they
    /// have not been opened.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn search_position(
        &self,
        collection: &Collection,
        version: &SearchVersion,
    ) -> Result<Option<u64>> {
        let feed = &*version.feed;
        let Some(position) = feed.reached(&self.oplog, collection) else {
            // A start with a part of the documents must not take the files for complete.
            return Ok(feed.row().map(|_| 0));
        };
        // Files must not know of commits that a power failure takes back. A secondary sees only
        // commits that the byte store has made durable.
        if !self.is_secondary() && !self.is_durable(position) {
            self.sync_all()?;
        }
        Ok(Some(position))
    }

    /// Notes that the files were committed at this position. Nothing was applied meanwhile.
    pub fn note_search_committed(&self, version: &SearchVersion, position: u64) {
        version.feed.note_committed(position);
    }

    /// Notes that the files of a version cannot be used.
    pub fn give_up_search(&self, version: &SearchVersion, why: String) {
        version.fail(why);
        version.feed.give_up();
    }

    /// The timestamp that a search which begins now waits for: no write that was acknowledged
    /// before has a later one. On a secondary the definitions are brought up to date as well.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn newest_write(&self) -> Result<u64> {
        match self.is_secondary() {
            true => self.oplog.newest_visible(),
            false => Ok(self.oplog.clock.last()),
        }
    }

    /// Waits until a search index has every write up to this timestamp, a result of
    /// [`Store::newest_write`], at most for this time. Returns whether it has.
    ///
    /// # Errors
    /// Errors of the operation's deadline; 175 QueryPlanKilled when the index or its collection is
    /// dropped meanwhile; 11600 when the store closes.
    pub fn await_search(
        &self,
        op: &OpCtx,
        collection: &Collection,
        version: &SearchVersion,
        (needed, longest): (u64, Duration),
    ) -> Result<bool> {
        let feed = &*version.feed;
        let end = self.clock.monotonic_micros().saturating_add(longest.as_micros() as i64);
        // The clock of a test may stand still.
        let (mut pause, mut waited) = (SHORTEST_CHECK, Duration::ZERO);
        loop {
            op.check()?;
            self.check_open()?;
            collection.check_alive()?;
            version.check_alive()?;
            if feed.reached(&self.oplog, collection).is_some_and(|reached| reached >= needed) {
                return Ok(true);
            }
            if waited >= longest || self.clock.monotonic_micros() >= end {
                return Ok(false);
            }
            if self.is_secondary() && self.oplog.settled() < needed {
                // The thread that follows the owner reads the row only from time to time.
                self.follow_settled()?;
            }
            if current::wait(|| feed.wait(pause)) {
                waited += pause;
            }
            pause = (2 * pause).min(LONGEST_CHECK);
        }
    }
}

impl FeedJob<'_> {
    /// Hands the present versions of these documents to the files, and then notes the position.
    pub(super) fn apply_to_files(
        &self,
        version: &SearchVersion,
        files: &dyn FeedFiles,
        ids: &[IdKey],
        row: Option<FeedRow>,
    ) -> Result<()> {
        let mut ids = ids.iter().peekable();
        while ids.peek().is_some() {
            self.op.check()?;
            let snapshot = self.store.latest()?;
            let (mut unit, mut bytes) = (Vec::new(), 0);
            while bytes < UNIT_BYTES
                && let Some(id) = ids.next()
            {
                let document = self.present_document(&snapshot, id)?;
                bytes += 64 + document.as_ref().map_or(0, |(_, it)| it.as_bytes().len());
                unit.push(FedDocument { id_key: id.clone(), document });
            }
            drop(snapshot);
            version.check_alive()?;
            self.feed.note_uncommitted();
            files.apply(&unit)?;
        }
        if let Some(row) = row {
            self.feed.note(row);
        }
        Ok(())
    }

    /// The present version of a document, hidden or not.
    fn present_document(&self, snapshot: &Snapshot, id: &IdKey) -> Result<Option<(i64, DocBuf)>> {
        let Some(record_key) = snapshot.locate_stored(self.collection, id)? else {
            return Ok(None);
        };
        let mut found = None;
        snapshot.stored_record(self.collection, &record_key, &mut |record| {
            found = Some((record.modified_ms, RawDoc::to_owned(record.document)));
            Ok(())
        })?;
        Ok(found)
    }
}

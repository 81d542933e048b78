//! The byte-store contract: the guarantees that storage requires of any engine.
//!
//! 1. Snapshot isolation; a transaction that may write takes its view at its first read at the
//!    latest, a read-only one when it begins. Two overlapping transactions that both put or delete
//!    the same existing or inserted key conflict; deleting an absent key need not. Write skew is
//!    possible.
//! 2. The embedded engines report a conflict at the write (first writer wins), others may report it
//!    at commit.
//! 3. A scan continues from its last key in any later snapshot.
//! 4. Transaction bodies can be run again; they have no side effects.
//! 5. After a failed durable write the engine refuses further writes ([`KvError::Fenced`]).
//! 6. A call that reads may be a round trip over a network; writes are sent with the commit.
//!    Therefore one call reads many keys, a key and the one that its value names, many ranges, or
//!    the number of entries; and an insert looks nothing up before the commit, where the engine
//!    allows it ([`InsertCheck`]). `round_trips` counts the calls.
//!
//! The contract is synchronous: an embedded engine answers in microseconds, and an engine across a
//! network is called from sections that are allowed to block.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(doc)]
use crate::RETIRED;
pub use crate::caps::Caps;
pub use crate::held::{HeldSnapshot, SweepEnd};
pub use crate::ingest::Ingest;
use crate::log::{Gap, LogClock, LogEntries, LoggedCommit};
pub use crate::named_key::{Expected, NamedKey, ShortBytes};
use crate::range::{Direction, KeyRange, ScanEnd, ScanLimit};
use crate::several::read_through;
pub use crate::several::scan_each;
pub use crate::txn_options::TxnOptions;
use crate::{CheckpointFile, EngineStats, Keyspace, KvError, KvResult, NotShared, Sharing};

/// Whether the engine checks a written key for conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The engine checks it, as the contract says.
    Checked,
    /// No check is needed: the transaction holds the key's lock, or only the transaction that
    /// writes a certain other, checked key ever writes this one (an index entry that contains its
    /// record's key, an oplog entry under a fresh timestamp). An engine may skip its own check.
    Derived,
}

/// When an insert of a key that is present is refused: [`Txn::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertCheck {
    /// By the insert.
    AtOnce,
    /// By the insert, or by the commit if [`Caps::late_inserts`] is true.
    AtCommit,
}

/// Receives a scan's entries: key, value. The slices are valid only during the call.
pub type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Receives entries of several ranges: index of the range, key, value. The slices are valid only
/// during the call.
pub type RangesVisitor<'v> = dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Receives values of several keys: index of the key, value. The slices are valid only during the
/// call.
pub type EachValue<'v> = dyn FnMut(usize, &[u8]) -> ControlFlow<()> + 'v;

/// Receives a value, and the value of the key that it names, if there is one. The slices are valid
/// only during the call.
pub type ThroughVisitor<'v> = dyn FnMut(&[u8], Option<&[u8]>) + 'v;

/// A transaction over a snapshot. Dropping it rolls back.
pub trait Txn: Send {
    /// Reads one key, own writes included. The closure receives the value; returns false when the
    /// key is absent.
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool>;

    /// Reads one key and the key that its value names ([`Txn::get`]). Returns false when the first
    /// key is absent.
    fn get_through(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        read_through(
            &|keyspace, key, see| self.get(keyspace, key, see),
            (keyspace, key),
            named,
            see,
        )
    }

    /// Counts the entries of a range, own writes included, up to `max`. Returns the end of the
    /// range that was counted, as a scan would.
    fn count(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        max: usize,
    ) -> KvResult<(usize, ScanEnd)> {
        let (mut entries, forward) = (0, Direction::Forward);
        let end = self.scan(keyspace, range, forward, ScanLimit::rows(max), &mut |_, _| {
            entries += 1;
            ControlFlow::Continue(())
        })?;
        Ok((entries, end))
    }

    /// Reads many keys, own writes included. The closure receives (index in `keys`, value) of the
    /// present ones in the order of `keys`, which may be any order, until it breaks off. An engine
    /// may read in another order and buffer several values meanwhile, but not many large ones.
    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        for (at, key) in keys.iter().enumerate() {
            let mut flow = ControlFlow::Continue(());
            self.get(keyspace, key, &mut |value| flow = see(at, value))?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Locks a key and reads it, for a body that is going to write the key. An engine may read its
    /// newest state if the transaction has read nothing else, because no other transaction can
    /// change a locked key.
    fn get_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.lock(keyspace, key)?;
        self.get(keyspace, key, see)
    }

    /// [`Txn::get_locked`] for many keys; the closure receives (index in `keys`, value) of the
    /// present ones.
    fn multi_get_locked(
        &mut self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, &[u8]),
    ) -> KvResult<()> {
        for key in keys {
            self.lock(keyspace, key)?;
        }
        self.multi_get(keyspace, keys, &mut |at, value| {
            see(at, value);
            ControlFlow::Continue(())
        })
    }

    /// Reads one key, and the key that its value names under its lock, for a body that is going to
    /// write the latter ([`Txn::get_locked`]). Both are read in one state.
    fn get_through_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        let mut named_key = None;
        let found = self.get_through(keyspace, key, named, &mut |first, second| {
            named_key = named.of(first);
            see(first, second);
        })?;
        if let Some(key) = named_key {
            self.lock(named.keyspace, &key)?;
        }
        Ok(found)
    }

    /// Visits the entries of a range in order, own writes included.
    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd>;

    /// Visits the stored entries of a range in ascending order, retired ones included, and without
    /// own writes.
    fn scan_retired(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd>;

    /// Visits the entries of several ranges like one call of [`Txn::scan`] for each; the closure
    /// receives the index of the range. The ranges are disjoint, and in the order of the scan.
    /// `page` is the number of rows that the visitor probably wants of all ranges together, as in
    /// [`ScanLimit`]. Returns the index of the range at which it ended, and how that one ended; all
    /// ranges before it are exhausted.
    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        scan_each(self, keyspace, ranges, (direction, page), visit)
    }

    /// Announces that about this many bytes of keys and values will be written, so that the engine
    /// can allocate once.
    fn reserve(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Writes a key.
    fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8], guard: Guard) -> KvResult<()>;

    /// Writes a key that must be absent. If the key is present, returns false, passes its value to
    /// `taken`, and writes nothing.
    ///
    /// With [`InsertCheck::AtCommit`] it may return true although the key is present; then the
    /// commit fails with [`KvError::Conflict`]. The body is run again with
    /// [`InsertCheck::AtOnce`], and only then reads the present value.
    fn insert(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        check: InsertCheck,
        taken: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        let _ = check;
        if self.get_locked(keyspace, key, taken)? {
            return Ok(false);
        }
        // The look-up holds the lock.
        self.put(keyspace, key, value, Guard::Derived)?;
        Ok(true)
    }

    /// Writes a key with gaps that the commit fills ([`Txn::commit_logged`]). Until then reads of
    /// the transaction return key and value as passed.
    ///
    /// # Errors
    /// As [`Txn::put`]; [`KvError::Invalid`] when a gap is not within the key or the value.
    fn put_with_gaps(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        guard: Guard,
        gaps: &[Gap],
    ) -> KvResult<()>;

    /// Removes a key.
    fn delete(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()>;

    /// Removes a record for all reads but [`Txn::scan_retired`], without rewriting its value, which
    /// stays where it is until the key is deleted. Conflicts as a write does.
    ///
    /// Only for keys of [`Keyspace::Record`] whose value is stored, was not written by this
    /// transaction, and begins with a byte below [`RETIRED`], as all values of that keyspace must.
    /// The key must not be put again.
    fn retire(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()>;

    /// Makes the transaction conflict with other writers of the key as a write would.
    fn lock(&mut self, keyspace: Keyspace, key: &[u8]) -> KvResult<()>;

    /// Bytes and keys written so far.
    fn size(&self) -> (usize, usize);

    /// The keys of a range that this transaction has put or deleted so far, each once and in order.
    fn written_keys(&self, keyspace: Keyspace, range: &KeyRange) -> Vec<Vec<u8>>;

    /// Applies all writes or none. The commit is in the write-ahead log, but durable only after
    /// [`Engine::sync`].
    ///
    /// # Errors
    /// [`KvError::Invalid`] for gaps; errors of the engine.
    fn commit(self: Box<Self>) -> KvResult<()> {
        self.commit_logged(LogEntries::NONE).result
    }

    /// Commits a transaction that has written entries of the log: they get the next timestamps,
    /// which are filled into all gaps ([`Txn::put_with_gaps`]). Until the caller releases the place
    /// of the commit, readers of the log stop before it, and later ones wait for it: the engine
    /// takes what it may have to wait for before it takes the place.
    ///
    /// A commit without entries takes no place, and must have no gaps.
    fn commit_logged(self: Box<Self>, entries: LogEntries) -> LoggedCommit;
}

/// A transactional, ordered store of byte keys and values.
pub trait Engine: Send + Sync {
    /// Its name in `serverStatus().storageEngine` and logs.
    fn name(&self) -> &'static str;

    /// Its limits and properties.
    fn caps(&self) -> Caps;

    /// The clock that orders the log. All stores over the engine share it.
    fn log(&self) -> &Arc<LogClock>;

    /// Begins a transaction. A read-only one takes its snapshot now.
    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>>;

    /// Begins a transaction that only reads, if a key has the expected value in its snapshot. The
    /// engine may take the snapshot and look at the key with the first read.
    ///
    /// # Errors
    /// [`KvError::Changed`] if the key has another value or is absent, from this call or from the
    /// first read; errors of the engine.
    fn begin_if(&self, expected: &Expected<'_>) -> KvResult<Box<dyn Txn>> {
        let txn = self.begin(TxnOptions::READ_ONLY)?;
        match expected.holds_in(&*txn)? {
            true => Ok(txn),
            false => Err(KvError::Changed),
        }
    }

    /// Takes a snapshot of the current state, which lives until it is dropped.
    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>>;

    /// Takes a snapshot for reading all entries, which may take hours: unlike one of
    /// [`Engine::hold`], neither its age nor the number of others ends it. In an engine without
    /// files ([`Engine::scratch`]) ranges that are swept do not disappear from it.
    fn hold_for_export(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.hold()
    }

    /// Reads one key in the current state, outside transactions; false when the key is absent.
    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool>;

    /// Reads one key and the key that its value names, as [`Engine::get_once`] does. The two
    /// values may be of different states. Returns false when the first key is absent.
    fn get_through_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        let read =
            &|keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])| self.get_once(keyspace, key, see);
        read_through(read, (keyspace, key), named, see)
    }

    /// Reads one key if another key has the expected value, both in one state. Returns `None` if
    /// the other key has another value or is absent, and does not call the visitor then.
    fn get_if(
        &self,
        expected: &Expected<'_>,
        (keyspace, key): (Keyspace, &[u8]),
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<Option<bool>> {
        let txn = self.begin(TxnOptions::READ_ONLY)?;
        if !expected.holds_in(&*txn)? {
            return Ok(None);
        }
        txn.get(keyspace, key, see).map(Some)
    }

    /// Reads as [`Engine::get_through_once`] if another key has the expected value. All values are
    /// of one state. Returns `None` if the key has another value or is absent, and does not call
    /// the visitor then.
    fn get_through_if(
        &self,
        expected: &Expected<'_>,
        (keyspace, key): (Keyspace, &[u8]),
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<Option<bool>> {
        let txn = self.begin(TxnOptions::READ_ONLY)?;
        if !expected.holds_in(&*txn)? {
            return Ok(None);
        }
        txn.get_through(keyspace, key, named, see).map(Some)
    }

    /// Removes keys of a range that is no longer read or written, at most about `max` keys a call.
    /// The removal is not transactional, and a crash may undo it; the caller then calls again.
    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd>;

    /// Begins a bulk load with ascending keys; `None` for engines in which it would not be faster.
    ///
    /// # Errors
    /// Errors of the engine.
    fn begin_ingest(&self, _: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        Ok(None)
    }

    /// A folder for temporary files, with room for this many bytes more; `None` for engines without
    /// a disk. Files that a crash leaves in it are removed when the engine is opened.
    ///
    /// # Errors
    /// [`KvError::Unavailable`] when the disk has no such room.
    fn scratch(&self, _bytes: u64) -> KvResult<Option<PathBuf>> {
        Ok(None)
    }

    /// Makes all commits before this call durable: they survive a later crash of the machine.
    fn sync(&self) -> KvResult<()>;

    /// Approximate size of the entries in a range, in bytes.
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64>;

    /// Approximate size of all keys and values of a keyspace before compression, in bytes.
    fn entry_bytes(&self, keyspace: Keyspace) -> KvResult<u64>;

    /// Starts reclaiming space, for engines that otherwise do so only at the next flush or write.
    /// Called regularly; must return soon.
    ///
    /// # Errors
    /// Errors of the engine; only space is lost.
    fn reclaim_space(&self) -> KvResult<()> {
        Ok(())
    }

    /// Rewrites a range without its tombstones and deleted entries, for engines that retain them.
    /// May take long.
    ///
    /// # Errors
    /// Errors of the engine; only space is lost.
    fn compact_range(&self, _: Keyspace, _: &KeyRange) -> KvResult<()> {
        Ok(())
    }

    /// Makes the space of deleted entries of these keyspaces usable again, for engines that store
    /// them in tables of a database. May take long, and ends with the operation of the thread.
    ///
    /// # Errors
    /// Errors of the engine; only space is lost.
    fn vacuum(&self, _: &[Keyspace]) -> KvResult<()> {
        Ok(())
    }

    /// Keeps the engine's files as they are, so that another program can copy them: writes what is
    /// buffered, begins no compaction, and deletes no file. Returns whether running compactions
    /// have ended; the caller calls again until they have, and does not write until it has called
    /// [`Engine::release_files`], also after an error.
    fn hold_files(&self) -> KvResult<bool> {
        Ok(true)
    }

    /// Ends [`hold_files`](Engine::hold_files); fails with errors of the engine.
    fn release_files(&self) -> KvResult<()> {
        Ok(())
    }

    /// What it knows of the other servers over the same byte store.
    #[inline]
    fn sharing(&self) -> &dyn Sharing {
        &NotShared
    }

    /// Whether the disk is nearly full, so that transactions that put records are refused.
    fn is_nearly_full(&self) -> bool {
        false
    }

    /// Writes what is buffered to files, so that a checkpoint has little else to copy.
    fn flush(&self) -> KvResult<()> {
        Ok(())
    }

    /// Writes a consistent copy into a new folder without a flush. It can be opened as a store.
    fn checkpoint(&self, folder: &Path) -> KvResult<Vec<CheckpointFile>>;

    /// The time of the store's own clock, if it has one, in milliseconds since 1970.
    fn wall_ms(&self) -> KvResult<Option<i64>> {
        Ok(None)
    }

    /// Statistics for `serverStatus`.
    fn stats(&self) -> EngineStats;

    /// The store is about to be closed: an engine across a network ends all calls, also those that
    /// are under way, after a short time, so that a process ends although nothing answers.
    fn begin_to_close(&self) {}

    /// Flushes and closes; later calls fail with [`KvError::Unavailable`].
    fn close(&self) -> KvResult<()>;
}

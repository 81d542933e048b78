//! The byte-store contract: what storage may rely on from any engine.
//!
//! 1. Snapshot isolation; a transaction that may write takes its view at its first read at the latest, a read-only one
//!    when it begins. Two overlapping transactions that both put or delete the same existing or inserted key
//!    conflict; deleting an absent key need not. Write skew is possible.
//! 2. The embedded engines report a conflict at the write (first writer wins), others may report it at commit.
//! 3. A scan goes on from its last key in any later snapshot.
//! 4. Transaction bodies can be run again; they have no side effects.
//! 5. After a failed durable write the engine refuses further writes ([`KvError::Fenced`]).
//!
//! The contract is synchronous: an embedded engine answers in microseconds, and an engine behind a network is called
//! from sections that are allowed to block.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fixed handful of keyspaces. Keys of different objects share one; each begins with an object's 8-byte id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Keyspace {
    /// Documents.
    Record = 0,
    /// Index entries.
    Index = 1,
    /// The operation log.
    Oplog = 2,
    /// Collections, indexes, parameters, progress of background work.
    Catalog = 3,
    /// Sessions and retryable writes.
    Session = 4,
    /// Versions of records that the operation log refers to and that are gone from their place.
    Kept = 5,
}

impl Keyspace {
    /// All of them, by number.
    pub const ALL: [Keyspace; 6] = [
        Keyspace::Record,
        Keyspace::Index,
        Keyspace::Oplog,
        Keyspace::Catalog,
        Keyspace::Session,
        Keyspace::Kept,
    ];

    /// The name of its column family or table.
    pub fn name(self) -> &'static str {
        match self {
            Keyspace::Record => "record",
            Keyspace::Index => "index",
            Keyspace::Oplog => "oplog",
            Keyspace::Catalog => "catalog",
            Keyspace::Session => "session",
            Keyspace::Kept => "kept",
        }
    }
}

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvError {
    /// Another transaction wrote the same key; run the body again.
    Conflict,
    /// The snapshot is gone; run the body again.
    TooOld,
    /// A key, value or transaction is over [`Caps`].
    TooLarge(String),
    /// Nothing was applied; may work later (disk full, connection lost).
    Unavailable(String),
    /// The commit may or may not have been applied.
    CommitUnknown(String),
    /// The deadline passed; nothing was applied.
    Timeout,
    /// An earlier durable write failed, or another owner took over; writing is refused until a restart.
    Fenced(String),
    /// A call that the contract does not allow.
    Invalid(String),
    /// The stored bytes are damaged; names the file where known.
    Corrupt(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvError::Conflict => f.write_str("write conflict"),
            KvError::TooOld => f.write_str("snapshot too old"),
            KvError::Timeout => f.write_str("deadline passed in the byte store"),
            KvError::TooLarge(text) => write!(f, "too large: {text}"),
            KvError::Unavailable(text) => write!(f, "unavailable: {text}"),
            KvError::CommitUnknown(text) => write!(f, "commit outcome unknown: {text}"),
            KvError::Fenced(text) => write!(f, "writes are refused: {text}"),
            KvError::Invalid(text) => write!(f, "invalid use: {text}"),
            KvError::Corrupt(text) => write!(f, "corrupt: {text}"),
        }
    }
}

impl std::error::Error for KvError {}

/// The result of every call into an engine.
pub type KvResult<T> = Result<T, KvError>;

/// What differs between engines.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Largest key, in bytes.
    pub max_key_bytes: usize,
    /// Largest value, in bytes.
    pub max_value_bytes: usize,
    /// Largest transaction, in bytes written.
    pub max_txn_bytes: usize,
    /// Most keys written in one transaction.
    pub max_txn_keys: usize,
    /// Longest life of a transaction, in milliseconds.
    pub max_txn_age_ms: u64,
    /// Whether data outlives the process.
    pub durable: bool,
    /// Whether one look-up less by `_id` is worth more than records in the order of their insertion: where each costs a way
    /// through a network.
    pub clusters_records: bool,
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnOptions {
    /// Only reads; lets an engine skip what writing needs.
    pub read_only: bool,
}

/// Whose task it is to see conflicts on a written key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The engine's: the rule of the contract.
    Checked,
    /// Nobody's: the transaction holds the key's lock, or only the transaction that writes a certain other, checked key
    /// ever writes this one (an index entry that holds its record's key, an oplog entry under a fresh timestamp). An
    /// engine may skip its own check.
    Derived,
}

/// Length of what a value may leave open until shortly before the commit.
pub const GAP_BYTES: usize = 8;

/// Half-open: `start <= key < end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First key that belongs.
    pub start: Vec<u8>,
    /// First key that does not belong any more.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with these bytes.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { start: prefix.to_vec(), end: prefix_end(prefix) }
    }

    /// Whether no key can belong.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// What is left after this key in this direction.
    #[must_use]
    pub fn after(&self, last: &[u8], direction: Direction) -> KeyRange {
        match direction {
            Direction::Forward => {
                let mut start = Vec::with_capacity(last.len() + 1);
                start.extend_from_slice(last);
                start.push(0);
                KeyRange { start, end: self.end.clone() }
            }
            Direction::Backward => KeyRange { start: self.start.clone(), end: last.to_vec() },
        }
    }
}

/// The first key after all keys that begin with these bytes; sixteen `0xFF` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xFF; 16]
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// When a scan pauses by itself. It visits at least one entry if there is one.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimit {
    /// After this many entries.
    pub rows: usize,
    /// After this many bytes of keys and values.
    pub bytes: usize,
}

impl ScanLimit {
    /// No pause.
    pub const NONE: ScanLimit = ScanLimit { rows: usize::MAX, bytes: usize::MAX };

    /// After this many entries.
    pub fn rows(rows: usize) -> ScanLimit {
        ScanLimit { rows, bytes: usize::MAX }
    }
}

/// How a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// The range has no further entry.
    Exhausted,
    /// The limit was reached or the visitor broke off; go on with [`KeyRange::after`] this key. The range may
    /// prove to have no further entry.
    More {
        /// The last key that was visited.
        last_key: Vec<u8>,
    },
}

/// Sees a scan's entries: key, value. Slices live only for the call.
pub type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Sees entries of several ranges: the range's place, key, value. Slices live only for the call.
pub type RangesVisitor<'v> = dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Sees values of several keys: the key's place, value. Slices live only for the call.
pub type EachValue<'v> = dyn FnMut(usize, &[u8]) -> ControlFlow<()> + 'v;

/// A transaction over a snapshot. Dropping it rolls back.
pub trait Txn: Send {
    /// Reads one key, own writes included. The closure sees the value; false when the key is absent.
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool>;

    /// Reads many keys, own writes included. The closure sees (position in `keys`, value) of those present in the order of
    /// `keys`, whatever that is, until it breaks off. An engine reads in the order that suits it, and may hold several
    /// values meanwhile, but not many large ones.
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

    /// Locks a key and reads it: what a body calls that means to write the key. An engine may answer from its newest
    /// state as long as the transaction has read nothing else, because nobody can change the key any more.
    fn get_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.lock(keyspace, key)?;
        self.get(keyspace, key, see)
    }

    /// [`Txn::get_locked`] for many keys; the closure sees (position in `keys`, value) of those present.
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

    /// Visits the entries of a range in order, own writes included.
    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd>;

    /// Visits the entries of several ranges as so many calls of [`Txn::scan`] would; the closure is told the range's place
    /// among them. They are disjoint, and in the order of the scan. Gives the range at which it ended, and how that one did:
    /// nothing is left of those before it.
    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        direction: Direction,
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        for (at, range) in ranges.iter().enumerate() {
            let visit = &mut |key: &[u8], value: &[u8]| visit(at, key, value);
            let end = self.scan(keyspace, range, direction, ScanLimit::NONE, visit)?;
            if end != ScanEnd::Exhausted {
                return Ok((at, end));
            }
        }
        Ok((ranges.len().saturating_sub(1), ScanEnd::Exhausted))
    }

    /// About so many bytes of keys and values will be written: lets an engine make room once.
    fn reserve(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Writes a key.
    fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8], guard: Guard) -> KvResult<()>;

    /// Writes a key whose value has eight bytes at `gap` that are not known yet: [`Txn::fill_gaps`] writes them before the
    /// commit. Reads of the transaction see the value as it was given until then.
    ///
    /// # Errors
    /// As [`Txn::put`]; [`KvError::Invalid`] when the gap is not within the value.
    fn put_with_gap(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        guard: Guard,
        gap: usize,
    ) -> KvResult<()>;

    /// Writes these bytes into all gaps that were left so far. A commit with gaps is refused ([`KvError::Invalid`]).
    fn fill_gaps(&mut self, bytes: [u8; GAP_BYTES]);

    /// Removes a key.
    fn delete(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()>;

    /// A read that conflicts with other writers of the key as a write would.
    fn lock(&mut self, keyspace: Keyspace, key: &[u8]) -> KvResult<()>;

    /// Bytes and keys written so far.
    fn size(&self) -> (usize, usize);

    /// The keys of a range that this transaction has put or deleted so far, each once and in order.
    fn written_keys(&self, keyspace: Keyspace, range: &KeyRange) -> Vec<Vec<u8>>;

    /// Applies everything or nothing. The write is in the log, not yet synced ([`Engine::sync`]).
    fn commit(self: Box<Self>) -> KvResult<()>;
}

/// A snapshot that outlives the transaction it was taken in, for any number of readers.
///
/// It keeps what it shows from being given back, and an engine's files open: whoever holds one lets go of it soon, and before
/// the engine is closed. Ranges that are swept ([`Engine::sweep_range`]) may go from it.
pub trait HeldSnapshot: Send + Sync {
    /// Begins a transaction that reads this snapshot and does not write.
    fn begin(&self) -> KvResult<Box<dyn Txn>>;
}

/// Entries on their way into a keyspace past transactions and the log: what builds an object from scratch.
///
/// Nobody reads or writes the range that they go into before [`Ingest::finish`] has returned. Dropping it gives up. After that,
/// or a failure, some of the entries may be there all the same: whoever began it sweeps the range.
pub trait Ingest: Send {
    /// Adds an entry; its key is greater than that of the one before.
    ///
    /// # Errors
    /// [`KvError::TooLarge`] beyond [`Caps`], [`KvError::Invalid`] for a key out of order, those of the disk.
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()>;

    /// Makes all of them visible to transactions that begin from now on. They survive a crash at the latest when the next
    /// [`Engine::sync`] has returned.
    ///
    /// # Errors
    /// Those of the engine.
    fn finish(self: Box<Self>) -> KvResult<()>;
}

/// How far a sweep came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepEnd {
    /// The range is empty now.
    Done,
    /// Call again.
    More,
}

/// Figures for `serverStatus` and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Memory of caches and write buffers, in bytes.
    pub memory_bytes: u64,
    /// Files on disk, in bytes.
    pub disk_bytes: u64,
    /// Bytes written to files since start, compaction included.
    pub written_bytes: u64,
    /// Files of the write-ahead log, in bytes.
    pub log_bytes: u64,
    /// How its disk stands; nothing for engines without a disk of their own.
    pub room: Option<RoomStats>,
}

/// How the disk of an engine stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomStats {
    /// All bytes of the disk; 0 where the system does not say.
    pub total_bytes: u64,
    /// Bytes that are free for this process, without the reserve.
    pub free_bytes: u64,
    /// Bytes that are held for deletions and for opening the store.
    pub reserve_bytes: u64,
    /// Whether only deletions are accepted.
    pub nearly_full: bool,
    /// How often that began since the start.
    pub times_nearly_full: u64,
}

/// A byte store.
pub trait Engine: Send + Sync {
    /// Its name in `serverStatus().storageEngine` and logs.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn caps(&self) -> Caps;

    /// Begins a transaction: over a snapshot of now when it only reads.
    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>>;

    /// Takes a snapshot of now and keeps it until it is dropped.
    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>>;

    /// Reads one key as of now, outside transactions; false when the key is absent.
    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool>;

    /// Removes keys of a range that nobody reads or writes any more, at most about `max` keys a call; outside
    /// transactions, survives restarts only in so far as it can be called again.
    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd>;

    /// Begins to add many entries at once, ascending. Nothing for engines in which transactions do it as well.
    ///
    /// # Errors
    /// Those of the engine.
    fn begin_ingest(&self, _: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        Ok(None)
    }

    /// A folder for temporary files, with room for so many bytes more; nothing for engines without a disk. What a crash leaves
    /// in it goes when the engine is opened.
    ///
    /// # Errors
    /// [`KvError::Unavailable`] when the disk has no such room.
    fn scratch(&self, _bytes: u64) -> KvResult<Option<PathBuf>> {
        Ok(None)
    }

    /// Everything committed before this call survives a crash of the machine once it returns.
    fn sync(&self) -> KvResult<()>;

    /// Entries' bytes in a range, roughly.
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64>;

    /// Called now and then, for engines in which the space of what was deleted comes back only when something else
    /// happens. Must not take long: what is to be done is begun.
    ///
    /// # Errors
    /// Those of the engine; nothing is lost then but space.
    fn give_back_space(&self) -> KvResult<()> {
        Ok(())
    }

    /// Rewrites a range without what was deleted in it, for engines that keep that for a while. May take long.
    ///
    /// # Errors
    /// Those of the engine; nothing is lost then but space.
    fn compact_range(&self, _: Keyspace, _: &KeyRange) -> KvResult<()> {
        Ok(())
    }

    /// Whether the disk is nearly full: transactions that put records or index entries are refused, and what takes room without need
    /// should give it back.
    fn is_nearly_full(&self) -> bool {
        false
    }

    /// A consistent copy in a new folder that can be opened as a store.
    fn checkpoint(&self, folder: &Path) -> KvResult<()>;

    /// Figures for `serverStatus`.
    fn stats(&self) -> EngineStats;

    /// Flushes and closes; later calls answer [`KvError::Unavailable`].
    fn close(&self) -> KvResult<()>;
}

//! An engine in memory: for tests, and as the model that other engines are compared with.
//!
//! A persistent ordered map per keyspace makes a snapshot a copy of six pointers. Commits hold the
//! lock while they apply their batch; the tracker detects conflicts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imbl::OrdMap;
use parking_lot::{Mutex, RwLock};

use crate::conflict::{Claims, ConflictTracker};
use crate::scan::{Cursor, ScanRequest, merged_scan, stored_scan};
use crate::write_buffer::{OwnWrite, WriteBuffer};
use crate::{
    Caps, CheckpointFile, Direction, Engine, EngineStats, Files, HeldSnapshot, Ingest, KeyRange,
    Keyspace, KeyspaceStats, KvError, KvResult, LogClock, LogEntries, LoggedCommit, OnAnnouncement,
    RETIRED, ScanEnd, ScanLimit, Sharing, SweepEnd, Txn, TxnOptions, Visitor, is_retired,
};

type Bytes = Arc<[u8]>;
type Map = OrdMap<Bytes, Bytes>;
type Maps = [Map; Keyspace::ALL.len()];

/// The latest state, and the bytes of keys and values of each keyspace.
#[derive(Default)]
struct Stored {
    maps: Maps,
    bytes: [u64; Keyspace::ALL.len()],
}

impl Stored {
    fn insert(&mut self, keyspace: Keyspace, key: Bytes, value: Bytes) {
        let (added, key_bytes) = (entry_bytes(&key, &value), key.len());
        let replaced = self.maps[keyspace as usize].insert(key, value);
        let removed = replaced.map_or(0, |value| (key_bytes + value.len()) as u64);
        let bytes = &mut self.bytes[keyspace as usize];
        *bytes = *bytes + added - removed;
    }

    fn remove(&mut self, keyspace: Keyspace, key: &[u8]) {
        if let Some(value) = self.maps[keyspace as usize].remove(key) {
            self.bytes[keyspace as usize] -= entry_bytes(key, &value);
        }
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// Memory of an entry without its key and value.
const ENTRY_BYTES: u64 = 64;

const CAPS: Caps = Caps {
    max_key_bytes: 32 << 20,
    max_value_bytes: 64 << 20,
    max_txn_bytes: 512 << 20,
    max_txn_keys: 16 << 20,
    max_txn_age_ms: u64::MAX,
    max_open_txns: usize::MAX,
    durable: false,
    clusters_records: false,
    is_remote: false,
    late_inserts: false,
};

/// The engine. Dropping it discards its data.
pub struct MemoryEngine {
    stored: Arc<RwLock<Stored>>,
    conflicts: Arc<ConflictTracker>,
    log: Arc<LogClock>,
    /// What the stores over this engine call after an announcement.
    listeners: Mutex<Vec<OnAnnouncement>>,
    closed: AtomicBool,
}

impl MemoryEngine {
    /// An empty store.
    pub fn new() -> MemoryEngine {
        MemoryEngine {
            stored: Arc::default(),
            conflicts: ConflictTracker::new(),
            log: LogClock::new(),
            listeners: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn open(&self) -> KvResult<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(KvError::Unavailable("the store is closed".into()));
        }
        Ok(())
    }
}

impl Default for MemoryEngine {
    fn default() -> MemoryEngine {
        MemoryEngine::new()
    }
}

impl Sharing for MemoryEngine {
    fn announce(&self) {
        self.listeners.lock().iter().for_each(|call| call());
    }

    fn listen(&self, call: OnAnnouncement) -> Arc<AtomicBool> {
        self.listeners.lock().push(call);
        Arc::new(AtomicBool::new(true))
    }
}

impl Engine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    fn log(&self) -> &Arc<LogClock> {
        &self.log
    }

    fn sharing(&self) -> &dyn Sharing {
        self
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.open()?;
        // The tracker first, the snapshot second: see the module comment of the tracker.
        let claims = (!options.read_only).then(|| self.conflicts.begin());
        let snapshot = self.stored.read().maps.clone();
        let (stored, log) = (Arc::clone(&self.stored), Arc::clone(&self.log));
        Ok(Box::new(MemoryTxn { stored, log, snapshot, buffer: WriteBuffer::new(), claims }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.open()?;
        let snapshot = self.stored.read().maps.clone();
        let (stored, log) = (Arc::clone(&self.stored), Arc::clone(&self.log));
        Ok(Arc::new(MemoryHeld { stored, log, snapshot }))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.open()?;
        let value = self.stored.read().maps[keyspace as usize].get(key).cloned();
        let value = value.filter(|value| !is_retired(keyspace, value));
        Ok(value.inspect(|value| see(value)).is_some())
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.open()?;
        if range.is_empty() {
            return Ok(SweepEnd::Done);
        }
        let mut stored = self.stored.write();
        let map = &stored.maps[keyspace as usize];
        let mut keys: Vec<Arc<[u8]>> = within(map, range)
            .map(|(key, _)| Arc::clone(key))
            .take(max.saturating_add(1))
            .collect();
        let end = if keys.len() > max { SweepEnd::More } else { SweepEnd::Done };
        keys.truncate(max);
        for key in keys {
            stored.remove(keyspace, &key);
        }
        Ok(end)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.open()?;
        let stored = Arc::clone(&self.stored);
        Ok(Some(Box::new(MemoryIngest { stored, keyspace, entries: Vec::new() })))
    }

    fn sync(&self) -> KvResult<()> {
        self.open()
    }

    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.open()?;
        if range.is_empty() {
            return Ok(0);
        }
        let map = self.stored.read().maps[keyspace as usize].clone();
        Ok(within(&map, range).map(|(key, value)| (key.len() + value.len()) as u64).sum())
    }

    fn entry_bytes(&self, keyspace: Keyspace) -> KvResult<u64> {
        self.approximate_bytes(keyspace, &KeyRange::all())
    }

    fn checkpoint(&self, _: &Path) -> KvResult<Vec<CheckpointFile>> {
        Err(KvError::Unsupported("the memory engine has no files to copy".into()))
    }

    fn stats(&self) -> EngineStats {
        let stored = self.stored.read();
        let keyspaces = stored.bytes.map(|bytes| {
            let files = Files { count: 0, bytes };
            KeyspaceStats { files, memtable_bytes: 0 }
        });
        let entries: usize = stored.maps.iter().map(Map::len).sum();
        let memory_bytes = stored.bytes.iter().sum::<u64>() + entries as u64 * ENTRY_BYTES;
        EngineStats { memory_bytes, keyspaces: Some(keyspaces), ..EngineStats::default() }
    }

    fn close(&self) -> KvResult<()> {
        self.closed.store(true, Ordering::Release);
        self.listeners.lock().clear();
        Ok(())
    }
}

struct MemoryIngest {
    stored: Arc<RwLock<Stored>>,
    keyspace: Keyspace,
    entries: Vec<(Bytes, Bytes)>,
}

impl Ingest for MemoryIngest {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        CAPS.check_write(key, value, (0, 0))?;
        CAPS.check_ascending(self.entries.last().map(|(last, _)| &**last), key)?;
        self.entries.push((key.into(), value.into()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> KvResult<()> {
        let mut stored = self.stored.write();
        for (key, value) in self.entries {
            stored.insert(self.keyspace, key, value);
        }
        Ok(())
    }
}

struct MemoryHeld {
    stored: Arc<RwLock<Stored>>,
    log: Arc<LogClock>,
    snapshot: Maps,
}

impl HeldSnapshot for MemoryHeld {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        let (stored, log) = (Arc::clone(&self.stored), Arc::clone(&self.log));
        let (snapshot, buffer) = (self.snapshot.clone(), WriteBuffer::new());
        Ok(Box::new(MemoryTxn { stored, log, snapshot, buffer, claims: None }))
    }
}

struct MemoryTxn {
    stored: Arc<RwLock<Stored>>,
    log: Arc<LogClock>,
    snapshot: Maps,
    buffer: WriteBuffer,
    /// None when read-only.
    claims: Option<Claims>,
}

impl MemoryTxn {
    fn apply(self) {
        if !self.buffer.is_empty() {
            let mut stored = self.stored.write();
            for (keyspace, key, write) in self.buffer.ops() {
                match write {
                    OwnWrite::Put(value) => stored.insert(keyspace, key.into(), value.into()),
                    OwnWrite::Deleted => stored.remove(keyspace, key),
                    OwnWrite::Retired => {
                        if let Some(value) = stored.maps[keyspace as usize].get(key) {
                            let mut value = value.to_vec();
                            value.iter_mut().take(1).for_each(|first| *first |= RETIRED);
                            stored.insert(keyspace, key.into(), value.into());
                        }
                    }
                }
            }
        }
        if let Some(claims) = self.claims {
            claims.publish();
        }
    }
}

impl Txn for MemoryTxn {
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        let value = match self.buffer.get(keyspace, key) {
            Some(OwnWrite::Put(value)) => Some(value),
            Some(OwnWrite::Deleted | OwnWrite::Retired) => None,
            None => {
                let stored = self.snapshot[keyspace as usize].get(key).map(|value| &**value);
                stored.filter(|value| !is_retired(keyspace, value))
            }
        };
        Ok(value.inspect(|value| see(value)).is_some())
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        let mut entries = within(&self.snapshot[keyspace as usize], range);
        let request = ScanRequest { keyspace, range, direction, limit };
        match direction {
            Direction::Forward => {
                let mut cursor = MapCursor { at: entries.next(), rest: entries };
                merged_scan(&mut cursor, &self.buffer, request, visit)
            }
            Direction::Backward => {
                let mut entries = entries.rev();
                let mut cursor = MapCursor { at: entries.next(), rest: entries };
                merged_scan(&mut cursor, &self.buffer, request, visit)
            }
        }
    }

    fn scan_retired(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        let mut entries = within(&self.snapshot[keyspace as usize], range);
        let mut cursor = MapCursor { at: entries.next(), rest: entries };
        stored_scan(&mut cursor, limit, visit)
    }

    crate::buffered_writes!(CAPS);

    fn commit_logged(mut self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        let place = match self.buffer.take_place(Some(&self.log), entries) {
            Ok(place) => place,
            Err(error) => return LoggedCommit::failed(error),
        };
        self.apply();
        LoggedCommit { result: Ok(()), place }
    }
}

type Entry<'m> = (&'m Arc<[u8]>, &'m Arc<[u8]>);

fn within<'m>(
    map: &'m Map,
    range: &KeyRange,
) -> impl DoubleEndedIterator<Item = Entry<'m>> + use<'m> {
    map.range::<_, [u8]>((
        std::ops::Bound::Included(&range.start[..]),
        std::ops::Bound::Excluded(&range.end[..]),
    ))
}

struct MapCursor<'m, I> {
    at: Option<Entry<'m>>,
    rest: I,
}

impl<'m, I: Iterator<Item = Entry<'m>>> Cursor for MapCursor<'m, I> {
    fn entry(&self) -> KvResult<Option<(&[u8], &[u8])>> {
        Ok(self.at.map(|(key, value)| (&**key, &**value)))
    }

    fn advance(&mut self) {
        self.at = self.rest.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guard;

    #[test]
    fn bytes_are_counted_through_all_changes() {
        let engine = MemoryEngine::new();
        let bytes = || engine.stats().keyspaces.unwrap().map(|keyspace| keyspace.files.bytes);
        let change = |change: &dyn Fn(&mut dyn Txn)| {
            let mut txn = engine.begin(TxnOptions::default()).unwrap();
            change(&mut *txn);
            txn.commit().unwrap();
        };
        let put = |txn: &mut dyn Txn, key: u8, value: &[u8]| {
            txn.put(Keyspace::Index, &[1, key], value, Guard::Checked).unwrap();
        };
        change(&|txn| (0..4).for_each(|key| put(txn, key, &[7; 10])));
        assert_eq!(bytes()[1], 48);
        change(&|txn| put(txn, 0, &[7; 4]));
        change(&|txn| txn.delete(Keyspace::Index, &[1, 1], Guard::Checked).unwrap());
        assert_eq!(bytes()[1], 30);
        let mut ingest = engine.begin_ingest(Keyspace::Record).unwrap().unwrap();
        ingest.add(&[2], &[1; 5]).unwrap();
        ingest.finish().unwrap();
        assert_eq!(bytes()[..2], [6, 30]);
        engine.sweep_range(Keyspace::Index, &KeyRange::prefix(&[1]), 100).unwrap();
        assert_eq!((bytes()[..2].to_vec(), engine.stats().memory_bytes), (vec![6, 0], 70));
    }
}

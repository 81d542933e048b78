//! An engine in memory: for tests, and as the model that other engines are compared with.
//!
//! A persistent ordered map per keyspace makes a snapshot a copy of six pointers. Commits hold the
//! lock while they apply their batch; the tracker detects conflicts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imbl::OrdMap;
use parking_lot::RwLock;

use crate::conflict::{Claims, ConflictTracker};
use crate::scan::{Cursor, ScanRequest, merged_scan, stored_scan};
use crate::write_buffer::{OwnWrite, WriteBuffer};
use crate::{
    Caps, CheckpointFile, Direction, Engine, EngineStats, HeldSnapshot, Ingest, KeyRange, Keyspace,
    KvError, KvResult, RETIRED, ScanEnd, ScanLimit, SweepEnd, Txn, TxnOptions, Visitor, is_retired,
};

type Bytes = Arc<[u8]>;
type Map = OrdMap<Bytes, Bytes>;
type Maps = [Map; Keyspace::ALL.len()];

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
    maps: Arc<RwLock<Maps>>,
    conflicts: Arc<ConflictTracker>,
    closed: AtomicBool,
}

impl MemoryEngine {
    /// An empty store.
    pub fn new() -> MemoryEngine {
        MemoryEngine {
            maps: Arc::default(),
            conflicts: ConflictTracker::new(),
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

impl Engine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.open()?;
        // The tracker first, the snapshot second: see the module comment of the tracker.
        let claims = (!options.read_only).then(|| self.conflicts.begin());
        let snapshot = self.maps.read().clone();
        let buffer = WriteBuffer::new();
        Ok(Box::new(MemoryTxn { maps: Arc::clone(&self.maps), snapshot, buffer, claims }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.open()?;
        let snapshot = self.maps.read().clone();
        Ok(Arc::new(MemoryHeld { maps: Arc::clone(&self.maps), snapshot }))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.open()?;
        let value = self.maps.read()[keyspace as usize].get(key).cloned();
        let value = value.filter(|value| !is_retired(keyspace, value));
        Ok(value.inspect(|value| see(value)).is_some())
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.open()?;
        if range.is_empty() {
            return Ok(SweepEnd::Done);
        }
        let mut maps = self.maps.write();
        let map = &mut maps[keyspace as usize];
        let mut keys: Vec<Arc<[u8]>> = within(map, range)
            .map(|(key, _)| Arc::clone(key))
            .take(max.saturating_add(1))
            .collect();
        let end = if keys.len() > max { SweepEnd::More } else { SweepEnd::Done };
        keys.truncate(max);
        for key in keys {
            map.remove(&key);
        }
        Ok(end)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.open()?;
        let maps = Arc::clone(&self.maps);
        Ok(Some(Box::new(MemoryIngest { maps, keyspace, entries: Vec::new() })))
    }

    fn sync(&self) -> KvResult<()> {
        self.open()
    }

    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.open()?;
        if range.is_empty() {
            return Ok(0);
        }
        let map = self.maps.read()[keyspace as usize].clone();
        Ok(within(&map, range).map(|(key, value)| (key.len() + value.len()) as u64).sum())
    }

    fn checkpoint(&self, _: &Path) -> KvResult<Vec<CheckpointFile>> {
        Err(KvError::Unsupported("the memory engine has no files to copy".into()))
    }

    fn stats(&self) -> EngineStats {
        let maps = self.maps.read().clone();
        let entries = maps.iter().flat_map(Map::iter);
        let memory_bytes = entries.map(|(key, value)| (key.len() + value.len() + 64) as u64).sum();
        EngineStats { memory_bytes, ..EngineStats::default() }
    }

    fn close(&self) -> KvResult<()> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

struct MemoryIngest {
    maps: Arc<RwLock<Maps>>,
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
        self.maps.write()[self.keyspace as usize].extend(self.entries);
        Ok(())
    }
}

struct MemoryHeld {
    maps: Arc<RwLock<Maps>>,
    snapshot: Maps,
}

impl HeldSnapshot for MemoryHeld {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        let (maps, snapshot) = (Arc::clone(&self.maps), self.snapshot.clone());
        Ok(Box::new(MemoryTxn { maps, snapshot, buffer: WriteBuffer::new(), claims: None }))
    }
}

struct MemoryTxn {
    maps: Arc<RwLock<Maps>>,
    snapshot: Maps,
    buffer: WriteBuffer,
    /// None when read-only.
    claims: Option<Claims>,
}

impl MemoryTxn {}

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

    fn commit(self: Box<Self>) -> KvResult<()> {
        self.buffer.check_filled()?;
        if !self.buffer.is_empty() {
            let mut maps = self.maps.write();
            for (keyspace, key, write) in self.buffer.ops() {
                let map = &mut maps[keyspace as usize];
                match write {
                    OwnWrite::Put(value) => drop(map.insert(key.into(), value.into())),
                    OwnWrite::Deleted => drop(map.remove(key)),
                    OwnWrite::Retired => {
                        if let Some(stored) = map.get(key) {
                            let mut value = stored.to_vec();
                            value.iter_mut().take(1).for_each(|first| *first |= RETIRED);
                            map.insert(key.into(), value.into());
                        }
                    }
                }
            }
        }
        if let Some(claims) = self.claims {
            claims.publish();
        }
        Ok(())
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

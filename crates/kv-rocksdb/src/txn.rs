//! A transaction: a snapshot, a write buffer and claims on keys; the commit is one batch.

use std::cell::OnceCell;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use mayfly_kv::conflict::Claims;
use mayfly_kv::scan::{ScanRequest, merged_scan, stored_scan};
use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use mayfly_kv::{
    Caps, Direction, EachValue, KeyRange, Keyspace, KvError, KvResult, LogClock, LogEntries,
    LoggedCommit, RangesVisitor, ScanEnd, ScanLimit, Txn, Visitor, is_retired, scan_each,
};
use rocksdb::{ErrorKind, ReadOptions, WriteBatch};

use crate::cursor::RocksCursor;
use crate::health::read_failed;
use crate::many::{BATCHED_KEYS, KeyGroup, Many, key_groups};
use crate::ranges::visit_ranges;
use crate::record_cache::{AsOf, CacheLookup, Place};
use crate::retired::WORTH_LEARNING;
use crate::store::{Store, StoreSnapshot};

pub(crate) const CAPS: Caps = Caps {
    max_key_bytes: 32 << 20,
    max_value_bytes: 64 << 20,
    max_txn_bytes: 512 << 20,
    max_txn_keys: 16 << 20,
    max_txn_age_ms: u64::MAX,
    max_open_txns: usize::MAX,
    durable: true,
    clusters_records: false,
    is_remote: false,
    late_inserts: false,
};

/// From this many adjacent records on a run bypasses the record cache.
const LONG_RUN: usize = 32;
/// The size of a batch's header, and an upper bound of the overhead of an operation.
const BATCH_HEADER: usize = 12;
const BATCH_PER_OP: usize = 12;

/// The snapshot of a transaction, owned or shared.
enum TxnSnapshot {
    Own(StoreSnapshot),
    Shared(Arc<StoreSnapshot>),
}

impl Deref for TxnSnapshot {
    type Target = StoreSnapshot;

    #[inline]
    fn deref(&self) -> &StoreSnapshot {
        match self {
            TxnSnapshot::Own(snapshot) => snapshot,
            TxnSnapshot::Shared(snapshot) => snapshot,
        }
    }
}

pub(crate) struct RocksTxn {
    store: Arc<Store>,
    /// Taken by the first read that needs it: taking one locks the database's mutex twice.
    snapshot: OnceCell<TxnSnapshot>,
    buffer: WriteBuffer,
    /// None when read-only.
    claims: Option<Claims>,
    /// None when read-only.
    log: Option<Arc<LogClock>>,
}

impl RocksTxn {
    /// A read-only transaction over the current state.
    pub(crate) fn reader(store: Arc<Store>) -> RocksTxn {
        let snapshot = OnceCell::from(TxnSnapshot::Own(StoreSnapshot::new(Arc::clone(&store))));
        RocksTxn { store, snapshot, buffer: WriteBuffer::new(), claims: None, log: None }
    }

    /// A transaction that may write. The claims are begun before the snapshot: see the conflict
    /// tracker.
    pub(crate) fn writer(store: Arc<Store>, claims: Claims, log: Arc<LogClock>) -> RocksTxn {
        let (snapshot, buffer) = (OnceCell::new(), WriteBuffer::new());
        RocksTxn { store, snapshot, buffer, claims: Some(claims), log: Some(log) }
    }

    /// A read-only transaction over a snapshot that others read, too.
    pub(crate) fn over(store: Arc<Store>, snapshot: Arc<StoreSnapshot>) -> RocksTxn {
        let snapshot = OnceCell::from(TxnSnapshot::Shared(snapshot));
        RocksTxn { store, snapshot, buffer: WriteBuffer::new(), claims: None, log: None }
    }

    fn snapshot(&self) -> &StoreSnapshot {
        self.snapshot.get_or_init(|| TxnSnapshot::Own(StoreSnapshot::new(Arc::clone(&self.store))))
    }

    fn read(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        options: &ReadOptions,
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        match self.buffer.get(keyspace, key) {
            Some(OwnWrite::Put(value)) => {
                see(value);
                Ok(true)
            }
            Some(OwnWrite::Deleted | OwnWrite::Retired) => Ok(false),
            None => {
                let found = self
                    .store
                    .db
                    .get_pinned_cf_opt(&self.store.family(keyspace), key, options)
                    .map_err(|error| read_failed(&error))?
                    .filter(|value| !is_retired(keyspace, value));
                Ok(found.inspect(|value| see(value)).is_some())
            }
        }
    }

    /// Reads a stored key as of this transaction's snapshot.
    fn read_stored(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        let (store, snapshot) = (&*self.store, self.snapshot());
        if keyspace != Keyspace::Record || self.buffer.touches(keyspace) {
            return self.read(keyspace, key, &snapshot.read_options, see);
        }
        let offer = match store.records.lookup(key, snapshot.as_of) {
            CacheLookup::Found(value) => {
                see(&value);
                return Ok(true);
            }
            CacheLookup::Missing(offer) => offer,
        };
        self.read(keyspace, key, &snapshot.read_options, &mut |value| {
            if let Some(offer) = &offer {
                store.records.add(offer, value, || 0);
            }
            see(value);
        })
    }

    /// Looks records up in the cache. Returns the indexes of the missing ones, too.
    fn look_up(&self, keys: &[&[u8]]) -> (Vec<CacheLookup>, Vec<usize>) {
        let (store, snapshot) = (&*self.store, self.snapshot());
        let (mut looks, mut missing) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut places: Vec<Option<Place>> = Vec::new();
        for group in key_groups(keys) {
            match group {
                // Stepping through them costs no more, and leaves the cache to records that are
                // read again.
                KeyGroup::Run(which) if which.len() >= LONG_RUN => {
                    looks.extend(which.clone().map(|_| CacheLookup::Missing(None)));
                    missing.extend(which);
                }
                // Adjacent records share sets.
                KeyGroup::Run(which) => {
                    for at in which {
                        let look = store.records.lookup(keys[at], snapshot.as_of);
                        if matches!(look, CacheLookup::Missing(_)) {
                            missing.push(at);
                        }
                        looks.push(look);
                    }
                }
                KeyGroup::Batch(which) => {
                    places.clear();
                    places.extend(keys[which.clone()].iter().map(|key| store.records.place(key)));
                    places.iter().flatten().for_each(|place| store.records.touch(place));
                    for (at, place) in which.zip(&places) {
                        let look = place.map_or(CacheLookup::Missing(None), |place| {
                            store.records.lookup_at(place, snapshot.as_of)
                        });
                        if matches!(look, CacheLookup::Missing(_)) {
                            missing.push(at);
                        }
                        looks.push(look);
                    }
                }
            }
        }
        (looks, missing)
    }

    /// Reads records, those missing in the cache from the engine.
    fn read_records(&self, keys: &[&[u8]], see: &mut EachValue<'_>) -> KvResult<()> {
        let (store, snapshot) = (&*self.store, self.snapshot());
        let (looks, missing) = self.look_up(keys);
        let mut next = 0;
        let mut show_found = |upto: usize, see: &mut EachValue<'_>| {
            while next < upto {
                next += 1;
                if let CacheLookup::Found(value) = &looks[next - 1] {
                    see(next - 1, value)?;
                }
            }
            ControlFlow::Continue(())
        };
        if !missing.is_empty() {
            let missing_keys: Vec<&[u8]> = missing.iter().map(|at| keys[*at]).collect();
            let family = store.family(Keyspace::Record);
            let mut flow = ControlFlow::Continue(());
            Many { db: &store.db, family, snapshot }.read(&missing_keys, &mut |at, value| {
                let at = missing[at];
                if is_retired(Keyspace::Record, value) {
                    return ControlFlow::Continue(());
                }
                if let CacheLookup::Missing(Some(offer)) = &looks[at] {
                    store.records.add(offer, value, || 0);
                }
                flow = show_found(at, see);
                if flow.is_continue() {
                    flow = see(at, value);
                }
                flow
            })?;
            if flow.is_break() {
                return Ok(());
            }
        }
        let _ = show_found(keys.len(), see);
        Ok(())
    }

    /// The options for reading a key that this transaction has locked.
    fn options_under_lock(&self) -> &ReadOptions {
        match self.snapshot.get() {
            Some(snapshot) => &snapshot.read_options,
            // No other transaction can write it now, and earlier writers have ended: the latest
            // state is what a snapshot taken now would show.
            None => &self.store.read_options,
        }
    }

    fn read_many(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        options: &ReadOptions,
        see: &mut dyn FnMut(usize, &[u8]),
    ) -> KvResult<()> {
        if keys.len() < BATCHED_KEYS {
            for (at, key) in keys.iter().enumerate() {
                self.read(keyspace, key, options, &mut |value| see(at, value))?;
            }
            return Ok(());
        }
        let mut stored = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match self.buffer.get(keyspace, key) {
                Some(OwnWrite::Put(value)) => see(at, value),
                Some(OwnWrite::Deleted | OwnWrite::Retired) => {}
                None => stored.push((at, *key)),
            }
        }
        let sorted = stored.is_sorted_by_key(|(_, key)| *key);
        let found = self.store.db.batched_multi_get_cf_opt(
            &self.store.family(keyspace),
            stored.iter().map(|(_, key)| *key),
            sorted,
            options,
        );
        for ((at, _), value) in stored.into_iter().zip(found) {
            let value = value.map_err(|error| read_failed(&error))?;
            if let Some(value) = value.filter(|value| !is_retired(keyspace, value)) {
                see(at, &value);
            }
        }
        Ok(())
    }

    /// The buffer as a batch of RocksDB.
    fn batch(&self) -> WriteBatch {
        let store = &self.store;
        let (bytes, ops) = self.buffer.size();
        let mut batch = store.batch(BATCH_HEADER + bytes + ops * BATCH_PER_OP);
        for (keyspace, key, write) in self.buffer.ops_by_key() {
            match write {
                OwnWrite::Put(value) => batch.put_cf(&store.family(keyspace), key, value),
                OwnWrite::Deleted => batch.delete_cf(&store.family(keyspace), key),
                OwnWrite::Retired => batch.merge_cf(&store.family(keyspace), key, []),
            }
        }
        batch
    }

    /// Writes the batch. RocksDB refuses a write that would have to wait for compactions; it is
    /// retried until it is accepted.
    fn write_batch(&self) -> KvResult<()> {
        let (store, mut waited) = (&self.store, None);
        loop {
            match store.db.write_opt(self.batch(), &store.commit_options) {
                Err(error) if error.kind() == ErrorKind::Incomplete => {
                    let (errors, _) = waited
                        .get_or_insert_with(|| (store.background_errors(), store.begin_stall()));
                    store.wait_for_compactions(*errors, &self.buffer)?;
                }
                written => {
                    return written.map_err(|error| store.write_failed(&error, &self.buffer));
                }
            }
        }
    }

    fn write(&self) -> KvResult<()> {
        let store = &self.store;
        store.admit(&self.buffer)?;
        let mut deleted = [0; 2];
        for (keyspace, _, write) in self.buffer.ops() {
            match (keyspace, write) {
                (Keyspace::Record, OwnWrite::Deleted) => deleted[0] += 1,
                (Keyspace::Index, OwnWrite::Deleted) => deleted[1] += 1,
                _ => {}
            }
        }
        store.count_deleted(Keyspace::Record, deleted[0]);
        store.count_deleted(Keyspace::Index, deleted[1]);
        let records = self.buffer.ops().filter(|(keyspace, ..)| *keyspace == Keyspace::Record);
        let invalidation = store.records.invalidate(records.map(|(_, key, _)| key));
        let written = self.write_batch();
        let by = store.db.latest_sequence_number();
        invalidation.finish(by);
        written?;
        if self.buffer.retired() >= WORTH_LEARNING {
            let retired = self.buffer.ops().filter(|(.., write)| *write == OwnWrite::Retired);
            let mut keys: Vec<&[u8]> = retired.map(|(_, key, _)| key).collect();
            keys.sort_unstable();
            store.retired.note(&keys, by);
        }
        store.wrote();
        Ok(())
    }
}

impl Txn for RocksTxn {
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        self.read_stored(keyspace, key, see)
    }

    fn get_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.lock(keyspace, key)?;
        if keyspace == Keyspace::Record && !self.buffer.touches(keyspace) {
            let as_of = self.snapshot.get().map_or(AsOf::Latest, |snapshot| snapshot.as_of);
            if let CacheLookup::Found(value) = self.store.records.lookup(key, as_of) {
                see(&value);
                return Ok(true);
            }
        }
        let options = self.options_under_lock();
        self.read(keyspace, key, options, see)
    }

    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        let (store, snapshot) = (&self.store, self.snapshot());
        if !self.buffer.touches(keyspace) {
            if keyspace == Keyspace::Record {
                return self.read_records(keys, see);
            }
            let family = store.family(keyspace);
            return Many { db: &store.db, family, snapshot }.read(keys, see);
        }
        for (at, key) in keys.iter().enumerate() {
            let mut flow = ControlFlow::Continue(());
            self.read(keyspace, key, &snapshot.read_options, &mut |value| flow = see(at, value))?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn multi_get_locked(
        &mut self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, &[u8]),
    ) -> KvResult<()> {
        for key in keys {
            self.lock(keyspace, key)?;
        }
        self.read_many(keyspace, keys, self.options_under_lock(), see)
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
        let request = ScanRequest { keyspace, range, direction, limit };
        let mut cursor = RocksCursor::hiding(&self.store, self.snapshot(), request);
        merged_scan(&mut cursor, &self.buffer, request, visit)
    }

    fn count(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        max: usize,
    ) -> KvResult<(usize, ScanEnd)> {
        if range.is_empty() {
            return Ok((0, ScanEnd::Exhausted));
        }
        if keyspace != Keyspace::Record && !self.buffer.touches(keyspace) {
            return RocksCursor::new(&self.store, self.snapshot(), keyspace, range).count(max);
        }
        let mut entries = 0;
        let limit = ScanLimit::rows(max);
        let end = self.scan(keyspace, range, Direction::Forward, limit, &mut |_, _| {
            entries += 1;
            ControlFlow::Continue(())
        })?;
        Ok((entries, end))
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
        let mut cursor = RocksCursor::new(&self.store, self.snapshot(), keyspace, range);
        stored_scan(&mut cursor, limit, visit)
    }

    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        if ranges.len() > 1 && !self.buffer.touches(keyspace) {
            let place = (&*self.store.db, self.store.family(keyspace));
            return visit_ranges(
                place,
                self.snapshot(),
                ranges,
                direction,
                &mut |at, key, value| match is_retired(keyspace, value) {
                    true => ControlFlow::Continue(()),
                    false => visit(at, key, value),
                },
            );
        }
        scan_each(self, keyspace, ranges, (direction, page), visit)
    }

    fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    mayfly_kv::buffered_writes!(CAPS);

    fn commit_logged(mut self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        let place = match self.buffer.take_place(self.log.as_ref(), entries) {
            Ok(place) => place,
            Err(error) => return LoggedCommit::failed(error),
        };
        let result = if self.buffer.is_empty() { Ok(()) } else { self.write() };
        let surely_not_applied = matches!(
            result,
            Err(KvError::Unavailable(_) | KvError::Invalid(_) | KvError::Fenced(_))
        );
        match self.claims.take() {
            Some(claims) if !surely_not_applied => claims.publish(),
            rolled_back => drop(rolled_back),
        }
        LoggedCommit { result, place }
    }
}

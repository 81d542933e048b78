//! Reads of records that a unit is going to change, and the removal of hidden ones.

use std::ops::ControlFlow;

use mayfly_base::{ErrorCode, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, KvError, ScanEnd, ScanLimit};

use super::WriteUnit;
use crate::read::hidden_by;
use crate::record::StoredDocument;
use crate::record::error::from_kv;
use crate::record::layout::{ObjectKey, decode_stored, prefixed};

/// Fewer records are looked up one by one.
const SCANNED: usize = 4;
/// The range from the first to the last record may have this many times as many numbers as there
/// are records.
const SPREAD: u64 = 2;

/// Records with nearly consecutive numbers.
struct Neighbours {
    /// The numbers in ascending order, each with its index among the keys.
    order: Vec<(u64, usize)>,
    first: u64,
    last: u64,
}

impl Neighbours {
    fn of(record_keys: &[&[u8]]) -> Option<Neighbours> {
        if record_keys.len() < SCANNED {
            return None;
        }
        let number = |key: &[u8]| key.try_into().ok().map(u64::from_be_bytes);
        let mut order = Vec::with_capacity(record_keys.len());
        for (at, key) in record_keys.iter().enumerate() {
            order.push((number(key)?, at));
        }
        let far = |first: u64, last: u64| last - first >= SPREAD * record_keys.len() as u64;
        // Two numbers usually suffice to exclude it.
        if far(order[0].0.min(order[1].0), order[0].0.max(order[1].0)) {
            return None;
        }
        order.sort_unstable();
        let (first, last) = (order[0].0, order[order.len() - 1].0);
        // A range cannot end after the greatest number.
        (!far(first, last) && last < u64::MAX).then_some(Neighbours { order, first, last })
    }
}

impl WriteUnit<'_> {
    /// Reads a document under its lock, because the unit is going to change it: the read conflicts
    /// with other writers. A hidden document is not found.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn read(&mut self, record_key: &[u8]) -> Result<Option<StoredDocument>> {
        let Some(stored) = self.read_stored(record_key)? else { return Ok(None) };
        let hidden = self.hides()
            && hidden_by(self.state.hiding(), stored.record(), self.context.moment)?.is_some();
        Ok((!hidden).then_some(stored))
    }

    /// Whether documents of the collection may be hidden now.
    fn hides(&self) -> bool {
        self.collection.hides_expired() && self.context.core.watch.is_trusted()
    }

    /// Reads a record under its lock, hidden or not.
    pub(crate) fn read_stored(&mut self, record_key: &[u8]) -> Result<Option<StoredDocument>> {
        if let Some(stored) = self.ahead.take(record_key) {
            return Ok(Some(stored));
        }
        let key = ObjectKey::new(self.collection.id(), record_key);
        let mut found = Ok(None);
        self.txn
            .get_locked(Keyspace::Record, &key, &mut |value| {
                found = decode_stored(value).map(|stored| Some(stored.to_stored()));
            })
            .map_err(from_kv)?;
        found
    }

    /// Reads several documents under their locks, in the order of the keys; `None` for missing
    /// ones.
    ///
    /// # Errors
    /// As [`WriteUnit::read`].
    pub(crate) fn read_many(
        &mut self,
        record_keys: &[&[u8]],
    ) -> Result<Vec<Option<StoredDocument>>> {
        // What is deleted need not stay in a cache.
        let found = self.read_many_locked(record_keys, ScanLimit::ALL.passing())?;
        let found = found.ok_or_else(|| from_kv(KvError::Conflict))?;
        if record_keys.len() > 1 {
            self.pending.kept.expect_several();
            let bytes = found.iter().flatten().map(|stored| stored.as_doc().as_bytes().len());
            self.reserve(record_keys.len(), bytes.sum());
        }
        Ok(found)
    }

    /// As [`WriteUnit::read_many`], with this limit of scans. `None` if another transaction has
    /// locked one of them.
    pub(super) fn read_many_locked(
        &mut self,
        record_keys: &[&[u8]],
        limit: ScanLimit,
    ) -> Result<Option<Vec<Option<StoredDocument>>>> {
        let id = self.collection.id();
        let keys: Vec<_> = record_keys.iter().map(|record_key| prefixed(id, record_key)).collect();
        let found = match Neighbours::of(record_keys) {
            Some(neighbours) => self.read_neighbours(&keys, neighbours, limit),
            None => self.look_up_many(&keys),
        };
        match found {
            Err(error) if error.code() == ErrorCode::WriteConflict => Ok(None),
            found => found.map(Some),
        }
    }

    fn look_up_many(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<StoredDocument>>> {
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let mut found = vec![None; keys.len()];
        let mut damaged = None;
        self.txn
            .multi_get_locked(
                Keyspace::Record,
                &keys,
                &mut |at, value| match decode_stored(value) {
                    Ok(stored) => found[at] = Some(stored.to_stored()),
                    Err(error) => damaged = Some(error),
                },
            )
            .map_err(from_kv)?;
        damaged.map_or(Ok(found), Err)
    }

    /// Reads records by one scan, which costs a fraction of as many look-ups.
    fn read_neighbours(
        &mut self,
        keys: &[Vec<u8>],
        Neighbours { order, first, last }: Neighbours,
        limit: ScanLimit,
    ) -> Result<Vec<Option<StoredDocument>>> {
        // All locks are taken before the read, so that no other writer changes what it finds.
        for key in keys {
            self.txn.lock(Keyspace::Record, key).map_err(from_kv)?;
        }
        let id = self.collection.id();
        let mut range = KeyRange {
            start: prefixed(id, &first.to_be_bytes()),
            end: prefixed(id, &last.saturating_add(1).to_be_bytes()),
        };
        let mut found = vec![None; keys.len()];
        let (mut damaged, mut pending) = (None, order.into_iter().peekable());
        loop {
            let see = &mut |key: &[u8], value: &[u8]| {
                let of = |at: usize| keys[at].as_slice();
                while pending.next_if(|(_, at)| of(*at) < key).is_some() {}
                while let Some((_, at)) = pending.next_if(|(_, at)| of(*at) == key) {
                    match decode_stored(value) {
                        Ok(stored) => found[at] = Some(stored.to_stored()),
                        Err(error) => damaged = Some(error),
                    }
                }
                ControlFlow::Continue(())
            };
            let scanned = self
                .txn
                .scan(Keyspace::Record, &range, Direction::Forward, limit, see)
                .map_err(from_kv)?;
            match scanned {
                ScanEnd::Exhausted => return damaged.map_or(Ok(found), Err),
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
        }
    }

    /// Removes the record if it is hidden, because a hidden document must not block an insert.
    /// Returns whether it was removed.
    pub(crate) fn expire_hidden(&mut self, record_key: &[u8]) -> Result<bool> {
        if !self.hides() {
            return Ok(false);
        }
        let Some(stored) = self.read_stored(record_key)? else { return Ok(false) };
        let due = hidden_by(self.state.hiding(), stored.record(), self.context.moment)?.cloned();
        let Some(policy) = due else { return Ok(false) };
        self.archive(&policy, &[stored.as_doc()])?;
        self.expire(record_key, &stored, &policy)?;
        Ok(true)
    }
}

//! Scans of stored entries in RocksDB.

use mayfly_kv::scan::{Cursor, ScanRequest};
use mayfly_kv::{Direction, KeyRange, Keyspace, KvResult, ScanEnd};
use rocksdb::{DB, DBRawIteratorWithThreadMode};

use crate::health::read_failed;
use crate::record_cache::AsOf;
use crate::retired::RunWalk;
use crate::store::{Store, StoreSnapshot};

/// A scan over the stored entries of a range.
pub(crate) struct RocksCursor<'s> {
    iterator: DBRawIteratorWithThreadMode<'s, DB>,
    direction: Direction,
    /// For scans of records: the run of retired ones at the present position.
    walk: Option<RunWalk<'s>>,
}

impl<'s> RocksCursor<'s> {
    /// A cursor over all entries, on the first one.
    pub(crate) fn new(
        store: &'s Store,
        snapshot: &StoreSnapshot,
        keyspace: Keyspace,
        range: &KeyRange,
    ) -> RocksCursor<'s> {
        let mut iterator = iterator(store, snapshot, (keyspace, range), false);
        iterator.seek_to_first();
        RocksCursor { iterator, direction: Direction::Forward, walk: None }
    }

    /// A cursor for a scan that hides retired records, and notes where they are.
    pub(crate) fn hiding(
        store: &'s Store,
        snapshot: &StoreSnapshot,
        request: ScanRequest<'_>,
    ) -> RocksCursor<'s> {
        let ScanRequest { keyspace, range, direction, limit } = request;
        let mut iterator = iterator(store, snapshot, (keyspace, range), limit.passing);
        match direction {
            Direction::Forward => iterator.seek_to_first(),
            Direction::Backward => iterator.seek_to_last(),
        }
        let walk = match snapshot.as_of {
            AsOf::Snapshot(holds, within) if keyspace == Keyspace::Record => {
                Some(RunWalk::new(&store.retired, direction, (holds, within)))
            }
            _ => None,
        };
        RocksCursor { iterator, direction, walk }
    }

    /// Counts the entries from the present one on, up to `max`, and at least one if there is one.
    /// Keys and values are not looked at.
    pub(crate) fn count(&mut self, max: usize) -> KvResult<(usize, ScanEnd)> {
        let mut entries = 0;
        while self.iterator.valid() {
            entries += 1;
            if entries >= max {
                let last_key = self.iterator.key().map(<[u8]>::to_vec).unwrap_or_default();
                return Ok((entries, ScanEnd::More { last_key }));
            }
            self.iterator.next();
        }
        self.iterator.status().map_err(|error| read_failed(&error))?;
        Ok((entries, ScanEnd::Exhausted))
    }

    fn step(&mut self) {
        match self.direction {
            Direction::Forward => self.iterator.next(),
            Direction::Backward => self.iterator.prev(),
        }
    }
}

fn iterator<'s>(
    store: &'s Store,
    snapshot: &StoreSnapshot,
    (keyspace, range): (Keyspace, &KeyRange),
    passing: bool,
) -> DBRawIteratorWithThreadMode<'s, DB> {
    let mut options = snapshot.scan_options();
    if passing {
        options.fill_cache(false);
    }
    options.set_iterate_lower_bound(range.start.as_slice());
    options.set_iterate_upper_bound(range.end.as_slice());
    store.db.raw_iterator_cf_opt(&store.family(keyspace), options)
}

impl Cursor for RocksCursor<'_> {
    fn entry(&self) -> KvResult<Option<(&[u8], &[u8])>> {
        match self.iterator.item() {
            Some(entry) => Ok(Some(entry)),
            // The end of the range and a failed read differ only in the status.
            None => self.iterator.status().map(|()| None).map_err(|error| read_failed(&error)),
        }
    }

    fn advance(&mut self) {
        if let Some(walk) = &mut self.walk {
            walk.end();
        }
        self.step();
    }

    fn advance_retired(&mut self) {
        let to = match (&mut self.walk, self.iterator.key()) {
            (Some(walk), Some(key)) => walk.step(key),
            _ => None,
        };
        match (to, self.direction) {
            (Some(after), Direction::Forward) => self.iterator.seek(after),
            (Some(first), Direction::Backward) => {
                self.iterator.seek_for_prev(first);
                if self.iterator.key() == Some(&first[..]) {
                    self.iterator.prev();
                }
            }
            (None, _) => self.step(),
        }
    }
}

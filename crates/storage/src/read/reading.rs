//! The engine transaction that a snapshot reads: its own, or that of the command's view.

use std::rc::Rc;

use mayfly_kv::{
    Direction, EachValue, KeyRange, Keyspace, KvResult, NamedKey, RangesVisitor, ScanEnd,
    ScanLimit, ThroughVisitor, Txn, Visitor,
};

use crate::isolation::{OpenView, ReadView};

/// The engine transaction of a snapshot.
pub(crate) enum Reading {
    Own(Box<dyn Txn>),
    Pinned(Rc<dyn Txn>),
    Open(Rc<OpenView>),
}

impl Reading {
    /// The transaction for reads of this view; `None` if it reads the latest commits.
    #[inline]
    pub(crate) fn of(view: &ReadView) -> Option<Reading> {
        if view.is_now() {
            return None;
        }
        let open = || view.open().cloned().map(Reading::Open);
        view.pinned_txn().cloned().map(Reading::Pinned).or_else(open)
    }

    /// As [`Txn::get`].
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        match self {
            Reading::Own(txn) => txn.get(keyspace, key, see),
            Reading::Pinned(txn) => txn.get(keyspace, key, see),
            Reading::Open(view) => view.reading()?.get(keyspace, key, see),
        }
    }

    /// As [`Txn::get_through`].
    pub(crate) fn get_through(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        match self {
            Reading::Own(txn) => txn.get_through(keyspace, key, named, see),
            Reading::Pinned(txn) => txn.get_through(keyspace, key, named, see),
            Reading::Open(view) => view.reading()?.get_through(keyspace, key, named, see),
        }
    }

    /// As [`Txn::count`].
    pub(crate) fn count(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        max: usize,
    ) -> KvResult<(usize, ScanEnd)> {
        match self {
            Reading::Own(txn) => txn.count(keyspace, range, max),
            Reading::Pinned(txn) => txn.count(keyspace, range, max),
            Reading::Open(view) => view.reading()?.count(keyspace, range, max),
        }
    }

    /// As [`Txn::multi_get`].
    pub(crate) fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        match self {
            Reading::Own(txn) => txn.multi_get(keyspace, keys, see),
            Reading::Pinned(txn) => txn.multi_get(keyspace, keys, see),
            Reading::Open(view) => view.reading()?.multi_get(keyspace, keys, see),
        }
    }

    /// As [`Txn::scan_ranges`].
    pub(crate) fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        pages: (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        match self {
            Reading::Own(txn) => txn.scan_ranges(keyspace, ranges, pages, visit),
            Reading::Pinned(txn) => txn.scan_ranges(keyspace, ranges, pages, visit),
            Reading::Open(view) => view.reading()?.scan_ranges(keyspace, ranges, pages, visit),
        }
    }

    /// As [`Txn::scan`].
    #[inline]
    pub(crate) fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        match self {
            Reading::Own(txn) => txn.scan(keyspace, range, direction, limit, visit),
            Reading::Pinned(txn) => txn.scan(keyspace, range, direction, limit, visit),
            Reading::Open(view) => view.reading()?.scan(keyspace, range, direction, limit, visit),
        }
    }
}

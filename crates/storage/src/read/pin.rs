//! Reading as of one moment: while reads are pinned, every snapshot that this thread asks for is the same one.
//!
//! A command with read concern `snapshot` pins its reads for as long as it runs, so that all that it reads, of whatever
//! collection, is of one cluster time. No commit is under way when the snapshot is taken ([`crate::oplog`]): it has exactly what
//! was committed up to that time. It is kept for those who come back to its time ([`crate::catalog::History`]); a cursor that
//! goes on later has kept the rest of its documents.
//!
//! What a policy hides as due is hidden from these reads, too, as of now: a snapshot shows nothing that other reads must not.
//!
//! Definitions are not part of a snapshot. When one changes meanwhile (an index that is ready now, and that the snapshot has no
//! entries of), the reads of its collection are void ([`crate::catalog::Definitions`]).

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::marker::PhantomData;
use std::rc::Rc;

use mayfly_base::{Error, Result};
use mayfly_kv::{
    Direction, EachValue, KeyRange, Keyspace, KvError, KvResult, RangesVisitor, ScanEnd, ScanLimit,
    Txn, Visitor,
};

use crate::catalog::{Core, Held, Reader, begin_noting, end_noting, noted};
use crate::record::Moment;
use crate::record::error::from_kv;

thread_local! {
    /// Asked by every read: whether there is anything in the other.
    static IS_PINNED: Cell<bool> = const { Cell::new(false) };
    static PINNED: RefCell<Option<Pinned>> = const { RefCell::new(None) };
}

/// What the reads of a thread see instead of what there is now.
#[derive(Clone)]
enum Pinned {
    /// A snapshot.
    Snapshot(Rc<dyn Txn>),
    /// A transaction of several statements, with what it has written.
    Open(Rc<View>),
}

/// The engine's transaction behind an open one of several statements: what its reads see and its writes go into.
pub(crate) struct View {
    txn: RefCell<Box<dyn Txn>>,
    /// The time of all that it does.
    pub(crate) moment: Moment,
}

impl View {
    pub(crate) fn new(txn: Box<dyn Txn>, moment: Moment) -> View {
        View { txn: RefCell::new(txn), moment }
    }

    /// To write.
    ///
    /// # Errors
    /// A bug when a scan of the same thread is under way.
    pub(crate) fn writing(&self) -> Result<RefMut<'_, Box<dyn Txn>>> {
        self.txn
            .try_borrow_mut()
            .map_err(|_| Error::internal("a transaction writes while it is being read"))
    }

    /// To read; several may at once.
    fn reading(&self) -> KvResult<Ref<'_, Box<dyn Txn>>> {
        let busy = |_| KvError::Invalid("a transaction is read while it writes".into());
        self.txn.try_borrow().map_err(busy)
    }

    /// Bytes and keys written so far.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.txn.borrow().size()
    }

    pub(crate) fn into_txn(self) -> Box<dyn Txn> {
        self.txn.into_inner()
    }
}

/// From here on the reads of this thread are those of an open transaction, until [`leave_view`].
///
/// # Errors
/// A bug when they are pinned already.
pub(crate) fn enter_view(view: Rc<View>) -> Result<()> {
    if IS_PINNED.get() {
        return Err(Error::internal("reads are pinned twice"));
    }
    PINNED.set(Some(Pinned::Open(view)));
    IS_PINNED.set(true);
    Ok(())
}

pub(crate) fn leave_view() {
    IS_PINNED.set(false);
    PINNED.take();
}

/// The open transaction that this thread runs a statement of.
#[inline]
pub(crate) fn open_view() -> Option<Rc<View>> {
    if !IS_PINNED.get() {
        return None;
    }
    PINNED.with_borrow(|pinned| match pinned {
        Some(Pinned::Open(view)) => Some(view.clone()),
        _ => None,
    })
}

/// The reads of a thread are pinned until it goes.
pub struct PinnedReads {
    cluster_time: u64,
    edition: u64,
    _thread: PhantomData<*const ()>,
}

impl Drop for PinnedReads {
    fn drop(&mut self) {
        IS_PINNED.set(false);
        PINNED.take();
        end_noting();
    }
}

impl PinnedReads {
    /// Pins the reads of this thread to a snapshot that shows this time.
    ///
    /// # Errors
    /// Those of the engine; a bug when they are pinned already.
    pub(super) fn to(held: &Held, cluster_time: u64) -> Result<PinnedReads> {
        if IS_PINNED.get() {
            return Err(Error::internal("reads are pinned twice"));
        }
        let txn = held.snapshot.begin().map_err(from_kv)?;
        PINNED.set(Some(Pinned::Snapshot(Rc::from(txn))));
        IS_PINNED.set(true);
        begin_noting();
        Ok(PinnedReads { cluster_time, edition: held.edition, _thread: PhantomData })
    }

    /// The time that everything is read as of.
    pub fn cluster_time(&self) -> u64 {
        self.cluster_time
    }

    /// Whether what was read holds.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub fn check(&self, store: &Core) -> Result<()> {
        store.definitions.check_since(self.edition, &noted(), Reader::Snapshot)
    }
}

/// Whether this thread reads a snapshot that was taken before, or inside a transaction: what is known of now is not what it sees.
#[inline]
pub fn reads_are_pinned() -> bool {
    IS_PINNED.get()
}

/// What this thread's reads are pinned to.
#[inline]
pub(crate) fn pinned() -> Option<Reading> {
    if !IS_PINNED.get() {
        return None;
    }
    PINNED.with_borrow(|pinned| match pinned {
        Some(Pinned::Snapshot(txn)) => Some(Reading::Pinned(txn.clone())),
        Some(Pinned::Open(view)) => Some(Reading::Open(view.clone())),
        None => None,
    })
}

/// What a snapshot reads.
pub(crate) enum Reading {
    Own(Box<dyn Txn>),
    Pinned(Rc<dyn Txn>),
    Open(Rc<View>),
}

impl Reading {
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
        direction: Direction,
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        match self {
            Reading::Own(txn) => txn.scan_ranges(keyspace, ranges, direction, visit),
            Reading::Pinned(txn) => txn.scan_ranges(keyspace, ranges, direction, visit),
            Reading::Open(view) => view.reading()?.scan_ranges(keyspace, ranges, direction, visit),
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

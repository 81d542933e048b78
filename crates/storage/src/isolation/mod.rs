//! The version of the data that a command reads, and the destination of its writes.
//!
//! A [`ReadView`] has three forms:
//!
//! * *now*: each read sees the commits before it; a write unit has its own engine transaction.
//! * *pinned*: all reads see one snapshot, as read concern `snapshot` requires. The view notes the
//!   names that are looked up, because definitions are not part of a snapshot: when one of them
//!   changes meanwhile, the reads fail ([`ReadView::check`]).
//! * *open*: reads see the snapshot of a transaction of several statements with its own writes, and
//!   write units write into it. The view has the transaction's part of the catalog
//!   ([`LocalCatalog`]) and the work that its writes leave to the commit ([`Pending`]).
//!
//! A command passes its view to everything that reads or writes. A view belongs to one thread.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_kv::{KvError, KvResult, Txn};
use mayfly_value::DocBuf;

use crate::catalog::{Collection, Core, OpenPlace, PastSnapshot, Reader, VisibleIndexes};
use crate::record::Moment;
use crate::record::error::from_kv;

mod local;
mod pending;

pub(crate) use local::LocalCatalog;
pub(crate) use pending::{Effects, Pending};

/// The id of a logical session.
pub type SessionKey = [u8; 16];

/// Called before a repeatable statement is recorded. An error undoes the statement.
pub type BeforeRecord = Box<dyn Fn(i32) -> Result<()>>;

/// The version of the data that a command reads.
pub struct ReadView {
    sees: Sees,
    /// The hook of a fail point that stops statements.
    before_record: Option<BeforeRecord>,
}

enum Sees {
    Now,
    Pinned(PinnedView),
    Open(Rc<OpenView>),
}

/// Reads as of one cluster time.
struct PinnedView {
    txn: Rc<dyn Txn>,
    cluster_time: u64,
    /// The edition of the definitions when the snapshot was taken.
    edition: u64,
    /// The names that were looked up, each once.
    names: RefCell<Vec<Namespace>>,
}

/// The owner of a transaction, for its log entry and for the record of its commit.
#[derive(Clone, Debug)]
pub struct TransactionOwner {
    /// The id of the session.
    pub session: SessionKey,
    /// The session's id as a document, for the log.
    pub lsid: DocBuf,
    /// The number of the transaction in its session.
    pub txn_number: i64,
}

/// An open transaction: its engine transaction, its part of the catalog, and the work that its
/// writes leave to the commit.
pub(crate) struct OpenView {
    txn: RefCell<Box<dyn Txn>>,
    local: RefCell<LocalCatalog>,
    pending: RefCell<Pending>,
    /// The time at which all its statements run.
    pub(crate) moment: Moment,
    /// The cluster time of its snapshot.
    pub(crate) read_time: u64,
    pub(crate) owner: TransactionOwner,
    place: OpenPlace,
}

/// The parts of an open transaction.
pub(crate) struct OpenParts {
    pub(crate) txn: Box<dyn Txn>,
    pub(crate) local: LocalCatalog,
    pub(crate) pending: Pending,
    pub(crate) read_time: u64,
    pub(crate) owner: TransactionOwner,
    /// Free for another transaction when it is dropped.
    pub(crate) place: OpenPlace,
}

impl OpenView {
    /// A transaction without writes.
    pub(crate) fn new(
        txn: Box<dyn Txn>,
        local: LocalCatalog,
        moment: Moment,
        read_time: u64,
        (owner, place): (TransactionOwner, OpenPlace),
    ) -> OpenView {
        let pending = Pending::of_transaction(owner.lsid.as_doc(), owner.txn_number);
        OpenView {
            txn: RefCell::new(txn),
            local: RefCell::new(local),
            pending: RefCell::new(pending),
            moment,
            read_time,
            owner,
            place,
        }
    }

    /// Borrows the engine transaction for a read; several may read at once.
    pub(crate) fn reading(&self) -> KvResult<Ref<'_, Box<dyn Txn>>> {
        let busy = |_| KvError::Invalid("a transaction is read while it writes".into());
        self.txn.try_borrow().map_err(busy)
    }

    /// Writes into the transaction.
    ///
    /// # Errors
    /// Errors of `act`, after which the transaction cannot be committed; an internal error during a
    /// scan of it.
    pub(crate) fn write<T>(
        &self,
        act: impl FnOnce(&mut (dyn Txn + 'static), &mut Pending) -> Result<T>,
    ) -> Result<T> {
        let busy = |_| Error::internal("a transaction writes while it is being read");
        let mut txn = self.txn.try_borrow_mut().map_err(busy)?;
        let mut pending = self.pending.borrow_mut();
        let result = act(&mut **txn, &mut pending);
        pending.failed |= result.is_err();
        result
    }

    /// Its part of the catalog.
    pub(crate) fn local(&self) -> Ref<'_, LocalCatalog> {
        self.local.borrow()
    }

    pub(crate) fn local_mut(&self) -> RefMut<'_, LocalCatalog> {
        self.local.borrow_mut()
    }

    /// The number of operations for the log, and the bytes of keys and values written so far.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.pending.borrow().oplog.count(), self.txn.borrow().size().0)
    }

    pub(crate) fn into_parts(self) -> OpenParts {
        OpenParts {
            txn: self.txn.into_inner(),
            local: self.local.into_inner(),
            pending: self.pending.into_inner(),
            read_time: self.read_time,
            owner: self.owner,
            place: self.place,
        }
    }
}

impl ReadView {
    /// A view in which each read sees the commits before it.
    pub const fn now() -> ReadView {
        ReadView { sees: Sees::Now, before_record: None }
    }

    /// A view in which all reads see this snapshot, which shows this time.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn pinned(held: &PastSnapshot, cluster_time: u64) -> Result<ReadView> {
        let txn = held.snapshot.begin().map_err(from_kv)?;
        let pinned = PinnedView {
            txn: Rc::from(txn),
            cluster_time,
            edition: held.edition,
            names: RefCell::default(),
        };
        Ok(ReadView { sees: Sees::Pinned(pinned), before_record: None })
    }

    /// The view of an open transaction. Dropping it aborts the transaction.
    pub(crate) fn of_transaction(open: OpenView) -> ReadView {
        ReadView { sees: Sees::Open(Rc::new(open)), before_record: None }
    }

    /// The open transaction, if this is its view.
    pub(crate) fn open(&self) -> Option<&Rc<OpenView>> {
        match &self.sees {
            Sees::Open(open) => Some(open),
            Sees::Now | Sees::Pinned(_) => None,
        }
    }

    /// The snapshot of a pinned view.
    pub(crate) fn pinned_txn(&self) -> Option<&Rc<dyn Txn>> {
        match &self.sees {
            Sees::Pinned(pinned) => Some(&pinned.txn),
            Sees::Now | Sees::Open(_) => None,
        }
    }

    /// Takes the open transaction out of the view.
    pub(crate) fn into_open(self) -> Option<Rc<OpenView>> {
        match self.sees {
            Sees::Open(open) => Some(open),
            Sees::Now | Sees::Pinned(_) => None,
        }
    }

    /// Whether this is the view of an open transaction: no unit is run twice, and the writes of a
    /// failed unit can only be undone with the whole transaction.
    #[inline]
    pub fn in_transaction(&self) -> bool {
        matches!(self.sees, Sees::Open(_))
    }

    /// Whether each read sees the commits before it. The server's counters and caches do not apply
    /// to other views.
    #[inline]
    pub fn is_now(&self) -> bool {
        matches!(self.sees, Sees::Now)
    }

    /// The cluster time of a pinned view.
    pub fn cluster_time(&self) -> Option<u64> {
        match &self.sees {
            Sees::Pinned(pinned) => Some(pinned.cluster_time),
            Sees::Now | Sees::Open(_) => None,
        }
    }

    /// Checks that no name that was looked up has changed since the snapshot was taken.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub fn check(&self, store: &Core) -> Result<()> {
        match &self.sees {
            Sees::Pinned(PinnedView { edition, names, .. }) => {
                store.definitions.check_since(*edition, &names.borrow(), Reader::Snapshot)
            }
            Sees::Now | Sees::Open(_) => Ok(()),
        }
    }

    /// Sets the function that is called before each recorded statement.
    pub fn set_before_record(&mut self, ask: BeforeRecord) {
        self.before_record = Some(ask);
    }

    /// Whether [`ReadView::set_before_record`] was called.
    pub fn has_before_record(&self) -> bool {
        self.before_record.is_some()
    }

    /// Called by the unit that records a repeatable statement.
    ///
    /// # Errors
    /// Errors of the function of [`ReadView::set_before_record`].
    pub(crate) fn before_record(&self, statement: i32) -> Result<()> {
        self.before_record.as_ref().map_or(Ok(()), |ask| ask(statement))
    }

    /// The indexes that reads may use.
    pub fn visible_indexes(&self) -> VisibleIndexes {
        self.open().map_or(VisibleIndexes::PUBLISHED, |open| open.local().visible_indexes())
    }

    #[cold]
    fn look_up(&self, ns: &Namespace, shared: Option<Arc<Collection>>) -> Option<Arc<Collection>> {
        match &self.sees {
            Sees::Now => shared,
            Sees::Pinned(PinnedView { names, .. }) => {
                let mut names = names.borrow_mut();
                if !names.contains(ns) {
                    names.push(ns.clone());
                }
                shared
            }
            Sees::Open(open) => open.local_mut().look_up(ns, shared),
        }
    }
}

impl Core {
    /// The collection of this name in the view.
    pub fn collection(&self, view: &ReadView, ns: &Namespace) -> Option<Arc<Collection>> {
        let found = self.catalog.get(ns);
        if view.is_now() { found } else { view.look_up(ns, found) }
    }
}

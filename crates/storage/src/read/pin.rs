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

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::Txn;

use crate::catalog::{Core, Held, begin_noting, end_noting, noted};
use crate::record::error::from_kv;

thread_local! {
    /// Asked by every read: whether there is anything in the other.
    static IS_PINNED: Cell<bool> = const { Cell::new(false) };
    static PINNED: RefCell<Option<Rc<dyn Txn>>> = const { RefCell::new(None) };
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
        PINNED.set(Some(Rc::from(held.snapshot.begin().map_err(from_kv)?)));
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
        match store.definitions.changed_since(self.edition, &noted()) {
            false => Ok(()),
            true => Err(Error::new(
                ErrorCode::SnapshotUnavailable,
                "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.",
            )),
        }
    }
}

/// What this thread's reads are pinned to.
#[inline]
pub(crate) fn pinned() -> Option<Rc<dyn Txn>> {
    if IS_PINNED.get() { PINNED.with_borrow(Clone::clone) } else { None }
}

/// What a snapshot reads.
pub(crate) enum Reading {
    Own(Box<dyn Txn>),
    Pinned(Rc<dyn Txn>),
}

impl std::ops::Deref for Reading {
    type Target = dyn Txn;

    fn deref(&self) -> &(dyn Txn + 'static) {
        match self {
            Reading::Own(txn) => &**txn,
            Reading::Pinned(txn) => &**txn,
        }
    }
}

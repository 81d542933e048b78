//! Reading as of one moment: while reads are pinned, every snapshot that this thread asks for is the same one.
//!
//! A command with read concern `snapshot` pins its reads for as long as it runs, so that all that it reads, of whatever
//! collection, is of one cluster time. No commit is under way when the snapshot is taken ([`crate::oplog`]): it has exactly what
//! was committed up to that time. It goes with the command; a cursor that goes on later has kept the rest of its documents.
//!
//! Definitions are not part of a snapshot. When one changes meanwhile (an index that is ready now, and that the snapshot has no
//! entries of), the reads are void.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Txn, TxnOptions};

use crate::catalog::Core;
use crate::record::error::from_kv;

thread_local! {
    /// Asked by every read: whether there is anything in the other.
    static IS_PINNED: Cell<bool> = const { Cell::new(false) };
    static PINNED: RefCell<Option<Rc<dyn Txn>>> = const { RefCell::new(None) };
}

/// The reads of a thread are pinned until it goes.
pub struct PinnedReads {
    cluster_time: u64,
    definitions: u64,
    _thread: PhantomData<*const ()>,
}

impl Drop for PinnedReads {
    fn drop(&mut self) {
        IS_PINNED.set(false);
        PINNED.take();
    }
}

impl PinnedReads {
    /// The time that everything is read as of.
    pub fn cluster_time(&self) -> u64 {
        self.cluster_time
    }

    /// Whether what was read holds.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub fn check(&self, store: &Core) -> Result<()> {
        match store.definitions.load(Ordering::Acquire) == self.definitions {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::SnapshotUnavailable,
                "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.",
            )),
        }
    }
}

impl Core {
    /// Pins the reads of this thread to now; commits that begin meanwhile wait for those under way.
    ///
    /// # Errors
    /// Those of the engine; a bug when they are pinned already.
    pub fn pin_reads(&self) -> Result<PinnedReads> {
        if IS_PINNED.get() {
            return Err(Error::internal("reads are pinned twice"));
        }
        let definitions = self.definitions.load(Ordering::Acquire);
        let (cluster_time, txn) = self.oplog.clock.at_rest(|last| {
            (last, self.engine().begin(TxnOptions { read_only: true }).map_err(from_kv))
        });
        PINNED.set(Some(Rc::from(txn?)));
        IS_PINNED.set(true);
        Ok(PinnedReads { cluster_time, definitions, _thread: PhantomData })
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

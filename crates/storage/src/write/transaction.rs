//! Transactions of several statements, over any number of collections.
//!
//! 1. [`Core::begin_transaction`](crate::catalog::Core::begin_transaction) begins a transaction
//!    over a snapshot that has exactly the commits up to its time.
//! 2. Each statement gets the transaction's [`ReadView`] ([`OpenTransaction::enter`]): its reads
//!    are those of the transaction, with its own writes, and every write unit ([`Writer::write`])
//!    writes into the transaction and leaves its effects to the commit. A unit runs once: the first
//!    transaction to write a record wins, the other one fails at once (112), and the statement's
//!    error ends the transaction.
//! 3. [`Store::commit_transaction`](crate::Store::commit_transaction) makes everything visible at
//!    once, in one entry of the log, or in several that belong together if one would be too long.
//!    Dropping the transaction aborts it.
//!
//! Between statements a transaction holds no lock of the catalog or of a collection. A change of a
//! definition that would invalidate its reads or writes waits for its end before it takes its locks
//! (`catalog::open`). Some changes do not wait: those that began to wait before the transaction
//! looked the name up, and those during a shutdown. A transaction must not commit reads or writes
//! under outdated definitions: at the end of each statement it checks the names that it looked up,
//! and the commit checks the written collections again, with their states held shared
//! ([`LocalCatalog::check_written`]). New indexes are no such change: the transaction does not see
//! them, and its commit writes their keys (`unseen`).
//!
//! The time of a transaction is that of its beginning: it decides what is due and hidden, and the
//! transaction's records carry it.

use std::rc::Rc;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Keyspace, TxnOptions};
use mayfly_work::OpCtx;

use super::Writer;
use super::others::{OpenCollections, OtherCollection};
use super::unit::{UnitContext, WriteUnit};
use crate::catalog::{Collection, CollectionState, Core};
use crate::isolation::{LocalCatalog, OpenParts, OpenView, ReadView, TransactionOwner};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// A transaction between two of its statements. Dropping it aborts it.
pub struct OpenTransaction(OpenView);

/// The amount that a transaction has written so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionSize {
    /// The number of operations in its log entries.
    pub operations: usize,
    /// The bytes of keys and values.
    pub bytes: usize,
}

impl Core {
    /// Begins a transaction over the latest commits.
    ///
    /// # Errors
    /// Errors of the engine; 112 WriteConflict when too many transactions are open for it.
    pub fn begin_transaction(&self, owner: TransactionOwner) -> Result<OpenTransaction> {
        let place = self.open_places.take(self.engine().caps().max_open_txns)?;
        let local = LocalCatalog::beginning(&self.definitions);
        let (read_time, txn) = self.oplog.clock.at_rest(|last| {
            let begun = self.engine().begin(TxnOptions::STAYS_OPEN).and_then(|txn| {
                // The first read takes the snapshot.
                txn.get(Keyspace::Catalog, catalog_key::FORMAT, &mut |_| {})?;
                Ok(txn)
            });
            (last, begun.map_err(from_kv))
        });
        let owner = (owner, place);
        Ok(OpenTransaction(OpenView::new(txn?, local, self.moment(), read_time, owner)))
    }
}

impl OpenTransaction {
    /// The cluster time of its snapshot.
    pub fn read_time(&self) -> u64 {
        self.0.read_time
    }

    /// Whether it has created collections.
    pub(crate) fn makes_collections(&self) -> bool {
        !self.0.local().created.is_empty()
    }

    /// The names of the collections that it has created.
    pub(crate) fn made(&self) -> Vec<Namespace> {
        self.0.local().created.iter().map(|made| made.namespace()).collect()
    }

    /// The amount that it has written.
    pub fn size(&self) -> TransactionSize {
        let (operations, bytes) = self.0.size();
        TransactionSize { operations, bytes }
    }

    /// The view for one of its statements. Dropping the view aborts the transaction.
    pub fn enter(self) -> ReadView {
        ReadView::of_transaction(self.0)
    }

    /// Ends the statement with this view.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable when a definition that the transaction has used changed; the
    /// transaction is aborted.
    pub fn leave(view: ReadView) -> Result<OpenTransaction> {
        let Some(open) = view.into_open() else {
            return Err(Error::internal("the view that is left is not that of a transaction"));
        };
        let Ok(open) = Rc::try_unwrap(open) else {
            return Err(Error::internal("a transaction is still being read"));
        };
        open.local().check()?;
        Ok(OpenTransaction(open))
    }

    pub(super) fn into_parts(self) -> OpenParts {
        self.0.into_parts()
    }
}

/// The shared reference to a collection that the transaction has looked up or created.
fn shared(store: &Core, view: &OpenView, collection: &Collection) -> Result<Arc<Collection>> {
    let found = view.local().known(collection.id()).or_else(|| {
        store.catalog.get(&collection.namespace()).filter(|found| found.id() == collection.id())
    });
    found.ok_or_else(|| {
        let text = format!("collection {} was dropped", collection.namespace());
        Error::new(ErrorCode::WriteConflict, text)
    })
}

/// Refuses collections that transactions cannot write to.
fn check_writable(state: &CollectionState, ns: &str) -> Result<()> {
    let text = if state.time_series.is_some() {
        format!("Cannot write to a time-series collection in a multi-document transaction: {ns}")
    } else if state.capped.is_some() {
        format!(
            "Collection '{ns}' is a capped collection. Writes in transactions are not allowed on capped collections."
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text))
}

impl Writer {
    /// Runs a unit in an open transaction. It is not run again: the writes before an error stay, so
    /// that the transaction cannot be committed any more.
    pub(crate) fn write_in_open<T>(
        &self,
        (op, view): (&OpCtx, &ReadView),
        open: &OpenView,
        collection: &Collection,
        others: &[OtherCollection],
        body: &mut impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        op.check()?;
        self.yield_log();
        let namespace = collection.namespace();
        let known = shared(self, open, collection)?;
        // A change of a definition holds the state for a moment only, and does not wait for
        // transactions meanwhile.
        let state = collection.read_state()?;
        check_writable(&state, namespace.as_str())?;
        open.local().check_written(collection)?;
        let seen = unseen::as_seen(&state, &open.local());
        let state = seen.as_ref().unwrap_or(&state);
        let others = OpenCollections::open(others);
        open.write(|txn, pending| {
            let ns = namespace.as_str();
            let context = UnitContext { moment: open.moment, core: self, view };
            let mut unit = WriteUnit::new(txn, pending, collection, state, ns, context);
            unit.others = Some(&others);
            unit.archive_sink = self.archive_sink();
            let result = body(&mut unit)?;
            let effects = unit.effects;
            pending.add(&known, effects);
            Ok(result)
        })
    }
}

#[cfg(test)]
mod tests;
pub(super) mod unseen;

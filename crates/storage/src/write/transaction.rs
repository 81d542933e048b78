//! Transactions of several statements, over any number of collections.
//!
//! 1. [`Core::begin_transaction`](crate::catalog::Core::begin_transaction) begins one over a snapshot that holds exactly what was
//!    committed up to its time.
//! 2. For each statement a thread enters it ([`OpenTransaction::enter`]): until it leaves, all reads of that thread
//!    ([`crate::catalog::Core::snapshot`] and what is like it) are the transaction's, its own writes included, and every write unit
//!    ([`Writer::write`]) writes into it and leaves its effects to the commit. A unit is run once: who is first to write a
//!    record wins, the other one is told at once (112), and whoever runs the statement ends the transaction.
//! 3. [`Writer::commit_open`] makes everything visible at once, in one entry of the log,
//!    or in several that belong together when one would be too long. Dropping the transaction undoes it.
//!
//! Between statements it holds no lock of the catalog or of a collection. A change of a definition that would make wrong what it
//! read or wrote waits for its end before it takes its locks (`catalog::open`). Some changes do not wait for it: those that began
//! to wait before the transaction looked the name up, and those of a server that ends. What it read or wrote by older definitions
//! than those of now it must not commit: each statement ends with a look at the collections that it touched, and the commit looks
//! once more at those it wrote to, with their states held shared ([`LocalCatalog::check_written`]). New indexes are no such
//! change: it does not see them, and its commit writes their keys (`unseen`).
//!
//! Time stands still in it: what is due and hidden is so as of its beginning, and its records carry that time.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Guard, Keyspace, Txn, TxnOptions};
use mayfly_value::DocBuf;
use mayfly_work::OpCtx;

use super::Writer;
use super::archive::{ArchiveCollection, Archives, OpenArchives};
use super::pending::Pending;
use super::retry::{SessionKey, Statement, statement_row};
use super::unit::{Around, WriteUnit};
use crate::catalog::local::{self, LocalCatalog};
use crate::catalog::{Collection, CollectionState, Core, Definition};
use crate::oplog::OplogBatch;
use crate::read::{View, enter_view, leave_view};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use unseen::UnseenKeys;

/// How long a commit waits for a change of a definition that is under way, such as the last step of an index build. A rename
/// takes two states, and the commit may have one of them.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The id of the statement under which a session's record says that its transaction was committed; those of clients are not
/// negative.
pub const COMMIT_STATEMENT: i32 = -1;

thread_local! {
    /// What the transaction that this thread has entered leaves to its commit.
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
}

/// A transaction between two of its statements. Dropping it undoes it.
pub struct OpenTransaction {
    view: View,
    local: LocalCatalog,
    pending: Pending,
    read_time: u64,
    owner: TransactionOwner,
}

/// A transaction that this thread runs a statement of. Dropping it undoes the transaction.
pub struct EnteredTransaction {
    view: Rc<View>,
    read_time: u64,
    owner: Option<TransactionOwner>,
    _thread: PhantomData<*const ()>,
}

/// How much a transaction has written so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionSize {
    /// Operations that the log will show.
    pub operations: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

/// Whose transaction it is, for its entry in the log and for the record that it was committed.
#[derive(Clone, Debug)]
pub struct TransactionOwner {
    /// The session.
    pub session: SessionKey,
    /// The session's id as the log shows it.
    pub lsid: DocBuf,
    /// `txnNumber`.
    pub txn_number: i64,
}

/// Whether this thread runs a statement of a transaction: then no unit is run twice, and what a unit wrote before it failed can
/// only go with the whole transaction.
#[inline]
pub fn in_transaction() -> bool {
    local::is_entered()
}

impl Core {
    /// Begins a transaction over what is committed now.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn begin_transaction(&self, owner: TransactionOwner) -> Result<OpenTransaction> {
        let local = LocalCatalog::beginning(&self.definitions);
        let (read_time, txn) = self.oplog.clock.at_rest(|last| {
            let begun = self.engine().begin(TxnOptions::default()).and_then(|txn| {
                // The first read takes the snapshot.
                txn.get(Keyspace::Catalog, catalog_key::FORMAT, &mut |_| {})?;
                Ok(txn)
            });
            (last, begun.map_err(from_kv))
        });
        Ok(OpenTransaction {
            view: View::new(txn?, self.moment()),
            local,
            pending: Pending::of_transaction(owner.lsid.as_doc(), owner.txn_number),
            read_time,
            owner,
        })
    }
}

impl OpenTransaction {
    /// The cluster time of what it reads.
    pub fn read_time(&self) -> u64 {
        self.read_time
    }

    /// Whether it made collections.
    pub(crate) fn makes_collections(&self) -> bool {
        !self.local.created.is_empty()
    }

    /// The names of those.
    pub(crate) fn made(&self) -> impl Iterator<Item = Namespace> {
        self.local.created.iter().map(|made| made.namespace())
    }

    /// How much it has written.
    pub fn size(&self) -> TransactionSize {
        TransactionSize { operations: self.pending.oplog.count(), bytes: self.view.size().0 }
    }

    /// From here on, until the result goes, this thread reads and writes in it.
    ///
    /// # Errors
    /// A bug when the thread is in another one.
    pub fn enter(self) -> Result<EnteredTransaction> {
        let view = Rc::new(self.view);
        enter_view(view.clone())?;
        local::enter(self.local);
        PENDING.set(Some(self.pending));
        let (read_time, owner) = (self.read_time, Some(self.owner));
        Ok(EnteredTransaction { view, read_time, owner, _thread: PhantomData })
    }
}

impl EnteredTransaction {
    /// The statement is over.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable when a definition changed of what the transaction has touched: then it is undone.
    pub fn leave(mut self) -> Result<OpenTransaction> {
        let (local, pending) = (local::leave(), PENDING.take());
        leave_view();
        let (view, read_time, owner) = (self.view.clone(), self.read_time, self.owner.take());
        drop(self);
        let (Some(local), Some(pending), Some(owner)) = (local, pending, owner) else {
            return Err(Error::internal("a transaction was left twice"));
        };
        let Ok(view) = Rc::try_unwrap(view) else {
            return Err(Error::internal("a transaction is still being read"));
        };
        local.check()?;
        Ok(OpenTransaction { view, local, pending, read_time, owner })
    }
}

impl Drop for EnteredTransaction {
    fn drop(&mut self) {
        // After `leave` there is nothing of it any more.
        local::leave();
        PENDING.take();
        leave_view();
    }
}

/// Does something with the transaction that this thread has entered.
pub(crate) fn with_open<T>(
    view: &View,
    act: impl FnOnce(&mut (dyn Txn + 'static), &mut Pending) -> Result<T>,
) -> Result<T> {
    let mut txn = view.writing()?;
    PENDING.with_borrow_mut(|pending| match pending {
        Some(pending) => {
            let result = act(&mut **txn, pending);
            pending.failed |= result.is_err();
            result
        }
        None => Err(Error::internal("a transaction without its writes")),
    })
}

/// The collection itself, for the one at hand, which the transaction has looked up or made.
fn shared(store: &Core, collection: &Collection) -> Result<Arc<Collection>> {
    let known = local::with(|local| local.known(collection.id())).flatten();
    let found = known.or_else(|| {
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
    /// Runs a unit in the transaction that this thread has entered. It is not run again: what it wrote before an error stays, so
    /// that the transaction cannot be committed any more.
    pub(crate) fn write_in_open<T>(
        &self,
        view: &View,
        op: &OpCtx,
        collection: &Collection,
        archives: &[ArchiveCollection],
        body: &mut impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        op.check()?;
        self.yield_log();
        let namespace = collection.namespace();
        let known = shared(self, collection)?;
        // A change of a definition holds it for a moment, and waits for no transaction while it does.
        let state = collection.read_state()?;
        check_writable(&state, namespace.as_str())?;
        local::with(|local| local.check_written(collection)).unwrap_or(Ok(()))?;
        let seen = local::with(|local| unseen::as_seen(&state, local)).flatten();
        let state = seen.as_ref().unwrap_or(&state);
        let open = OpenArchives::open(archives);
        with_open(view, |txn, pending| {
            let ns = namespace.as_str();
            let around = Around { moment: view.moment, core: self };
            let mut unit = WriteUnit::new(txn, pending, collection, state, ns, around);
            unit.archives = Archives { open: Some(&open), sink: self.archive_sink() };
            let result = body(&mut unit)?;
            let effects = unit.effects;
            pending.add(&known, effects);
            Ok(result)
        })
    }

    /// Commits a transaction, with a record for its session that says so; gives the cluster time of the commit, and how long the
    /// caller should wait for builds of indexes when it holds no locks. One that wrote nothing leaves no record. Who calls holds the catalog's lock when the transaction has made collections, and knows that
    /// their names are free.
    ///
    /// # Errors
    /// 112 WriteConflict and 246 SnapshotUnavailable: nothing was committed; 251 NoSuchTransaction when a unit of it had failed;
    /// those of the engine.
    pub(crate) fn commit_open(&self, transaction: OpenTransaction) -> Result<(u64, Duration)> {
        let OpenTransaction { view, local, mut pending, read_time, owner } = transaction;
        if pending.failed {
            let text = "a statement of the transaction failed, so that it cannot be committed";
            return Err(Error::new(ErrorCode::NoSuchTransaction, text));
        }
        if view.size().1 == 0 {
            return Ok((read_time, Duration::ZERO));
        }
        self.check_open()?;
        // Others see them as new from the commit on.
        let names = local.created.iter().map(|made| made.namespace());
        let _definitions: Vec<_> =
            names.map(|name| self.definitions.changing(&name, Definition::Created)).collect();
        let written: Vec<Arc<Collection>> =
            pending.collections.iter().map(|(collection, _)| collection.clone()).collect();
        let mut states = Vec::with_capacity(written.len());
        for collection in &written {
            let Some(state) = collection.state.try_read_for(LONGEST_WAIT) else {
                let text = format!("collection {} is being changed", collection.namespace());
                return Err(Error::new(ErrorCode::WriteConflict, text));
            };
            local.check_written(collection)?;
            states.push(state);
        }
        let now_ms = self.clock.now_ms();
        let mut txn = view.into_txn();
        for (collection, state) in written.iter().zip(&states) {
            let (txn, pending) = (&mut *txn, &mut pending);
            UnseenKeys { core: self, txn, pending, collection }.write(state, &local)?;
        }
        let parts = std::mem::replace(&mut pending.oplog, OplogBatch::new()).into_parts();
        let mut stamp = self.oplog.clock.next_of(now_ms, parts.len().max(1) as u64);
        let (mut entries, mut bytes) = (0, 0);
        let mut definitions = Vec::new();
        let tells = !local.created.is_empty() && self.has_definition_hook();
        for (timestamp, entry) in parts.finish(stamp.first(), now_ms) {
            self.check_user_write(entry.fields())?;
            stamp.concerns(entry.fields());
            txn.put(Keyspace::Oplog, &timestamp.to_be_bytes(), entry.value(), Guard::Derived)
                .map_err(from_kv)?;
            (entries, bytes) = (entries + 1, bytes + entry.logical_bytes());
            definitions.extend(tells.then(|| entry.fields().to_owned()));
        }
        let committed_at = stamp.timestamp();
        pending.fill_in(&mut *txn, committed_at)?;
        pending.write_kept(&mut *txn)?;
        let statement = Statement {
            session: owner.session,
            txn_number: owner.txn_number,
            id: COMMIT_STATEMENT,
        };
        let (key, value) = statement_row(statement, 1, now_ms, committed(committed_at).as_doc());
        txn.put(Keyspace::Session, &key, &value, Guard::Checked).map_err(from_kv)?;
        let delay = pending.leave_notes();
        txn.commit().map_err(from_kv)?;
        definitions.iter().for_each(|entry| self.tell_logged(entry.as_doc()));
        // While nobody can see the log beyond it.
        if !local.created.is_empty() {
            self.catalog.publish(|map| {
                for made in &local.created {
                    map.insert(made.namespace(), made.clone());
                }
            });
        }
        stamp.committed(entries, bytes);
        self.oplog.note_commit();
        pending.note_multikey();
        for (collection, effects) in pending.collections {
            self.note_effects(&collection, effects);
        }
        drop(states);
        self.note_commit();
        Ok((committed_at, delay))
    }
}

/// What a session's record says of a committed transaction.
fn committed(timestamp: u64) -> DocBuf {
    let mut result = mayfly_value::DocBuilder::new();
    result.append("committed", mayfly_value::RawValue::Timestamp(timestamp));
    result.finish()
}

#[cfg(test)]
mod tests;
mod unseen;

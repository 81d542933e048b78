//! The commit of an engine transaction with everything that belongs to it. Write units, changes of
//! definitions, and transactions of several statements all end here, in this order of steps:
//!
//! 1. The entries of the log are written, with gaps for their timestamps ([`Writer::log`]).
//! 2. Kept versions are written ([`Pending::write_kept`]).
//! 3. The session of a transaction of several statements gets the record of its commit.
//! 4. Index builds get notes of the changed records ([`Pending::leave_notes`]).
//! 5. The engine assigns the timestamps, fills them into all gaps, and commits. Until step 6
//!    readers of the log stop before them. An error up to here has no effect.
//! 6. The definition hook is called with the logged commands, and collections that the transaction
//!    has created become visible ([`Writer::publish`]). After that the log may be read up to the
//!    new entries.
//! 7. The counters of the collections are updated, and the thread that syncs the engine's
//!    write-ahead log is notified.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{GAP_BYTES, Gap, Guard, Keyspace, LogEntries, LoggedCommit, Txn, Which};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::Writer;
use super::retry::{Statement, statement_row};
use super::transaction::OpenTransaction;
use super::transaction::unseen::UnseenKeys;
use crate::catalog::{Collection, Definition};
use crate::isolation::{Effects, OpenParts, Pending, TransactionOwner};
use crate::oplog::{Concerned, OplogBatch, Stamp, StoredEntry};
use crate::record::error::from_kv;

/// How long a commit waits for a change of a definition, such as the last step of an index build. A
/// rename takes two states, and the commit may hold one of them.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The statement id of a session's record of a committed transaction. Ids of clients' statements
/// are not negative.
pub const COMMIT_STATEMENT: i32 = -1;

/// The origin of a commit.
pub(super) enum CommitOwner<'c> {
    /// A write unit: its collection, and the effects on it.
    Unit(&'c Collection, Effects),
    /// A change of definitions.
    Definitions(UserWriteBlocks),
    /// A transaction of several statements, and the collections that it has created.
    Transaction(&'c TransactionOwner, &'c [Arc<Collection>]),
}

/// Whether a block of users' writes (`setUserWriteBlockMode`) applies to a change of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserWriteBlocks {
    /// It applies.
    Hold,
    /// It does not, because the change ends something that began earlier.
    DoNotHold,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed {
    /// The timestamp of its last entry; 0 when nothing was logged.
    pub(super) timestamp: u64,
    /// How long the writer should wait for index builds after it has released its locks.
    pub(super) delay: Duration,
}

/// The log entries of a commit.
#[derive(Default)]
struct Logged {
    entries: u64,
    bytes: u64,
    concerned: Concerned,
    /// Copies of the entries, for the definition hook.
    definitions: Vec<DocBuf>,
}

impl Writer {
    /// Commits. The caller holds the states of the collections that were written.
    ///
    /// # Errors
    /// Nothing was committed: 112 WriteConflict and other errors of the engine, or a block of
    /// users' writes.
    pub(super) fn commit(
        &self,
        mut txn: Box<dyn Txn>,
        pending: &mut Pending,
        owner: CommitOwner<'_>,
        now_ms: i64,
    ) -> Result<Committed> {
        if txn.size().1 == 0 && pending.oplog.is_empty() {
            return Ok(Committed::default());
        }
        let mut logged = self.log(&mut *txn, pending, &owner, now_ms)?;
        pending.write_kept(&mut *txn)?;
        if let CommitOwner::Transaction(owner, _) = &owner {
            record_commit(&mut *txn, owner, now_ms)?;
        }
        let delay = pending.leave_notes();
        // A transaction of several statements has a time, even if it has no entry.
        let least = u64::from(matches!(owner, CommitOwner::Transaction(..)));
        let count = logged.entries.max(least);
        let LoggedCommit { result, place } = txn.commit_logged(LogEntries { count, now_ms });
        let concerned = std::mem::take(&mut logged.concerned);
        let stamp = place.map(|place| self.oplog.clock.stamp(place, concerned));
        result.map_err(from_kv)?;
        let timestamp = stamp.as_ref().map_or(0, Stamp::timestamp);
        self.publish(&owner, &logged);
        if let Some(stamp) = stamp {
            stamp.committed(logged.entries, logged.bytes);
            self.oplog.note_commit();
        }
        self.note_committed(pending, owner);
        Ok(Committed { timestamp, delay })
    }

    /// Writes the entries of the log.
    fn log(
        &self,
        txn: &mut dyn Txn,
        pending: &mut Pending,
        owner: &CommitOwner<'_>,
        now_ms: i64,
    ) -> Result<Logged> {
        let blocks = !matches!(owner, CommitOwner::Definitions(UserWriteBlocks::DoNotHold));
        let heard = match owner {
            CommitOwner::Unit(..) => false,
            CommitOwner::Definitions(_) => true,
            CommitOwner::Transaction(_, made) => !made.is_empty(),
        };
        let heard = heard && self.has_definition_hook();
        let mut logged = Logged::default();
        let mut put = |entry: &StoredEntry| {
            if blocks {
                self.check_user_write(entry.fields())?;
            }
            self.oplog.clock.concerns(entry.fields(), &mut logged.concerned);
            logged.entries += 1;
            logged.bytes += entry.logical_bytes();
            logged.definitions.extend(heard.then(|| entry.fields().to_owned()));
            // The commit fills the key in.
            let (key, value) = ([0; 8], entry.value());
            txn.put_with_gaps(Keyspace::Oplog, &key, value, Guard::Derived, entry.gaps())
                .map_err(from_kv)
        };
        match owner {
            CommitOwner::Transaction(..) => {
                let batch = std::mem::replace(&mut pending.oplog, OplogBatch::new());
                batch.into_parts().finish(now_ms).try_for_each(|entry| put(&entry))?;
            }
            CommitOwner::Unit(..) | CommitOwner::Definitions(_) => {
                if !pending.oplog.is_empty() {
                    put(&pending.oplog.finish(now_ms))?;
                }
            }
        }
        Ok(logged)
    }

    /// Publishes the collections that a transaction has created, before they appear in the log.
    fn publish(&self, owner: &CommitOwner<'_>, logged: &Logged) {
        logged.definitions.iter().for_each(|entry| self.report_logged(entry.as_doc()));
        if let CommitOwner::Transaction(_, made) = owner
            && !made.is_empty()
        {
            self.catalog.publish(|map| {
                for made in *made {
                    map.insert(made.namespace(), made.clone());
                }
            });
        }
    }

    fn note_committed(&self, pending: &mut Pending, owner: CommitOwner<'_>) {
        pending.note_multikey();
        if let CommitOwner::Unit(collection, effects) = owner {
            self.note_effects(collection, effects);
        }
        for (collection, effects) in pending.collections.drain(..) {
            self.note_effects(&collection, effects);
        }
        self.sync.note_commit();
    }

    /// Commits a transaction of several statements, with a record of the commit for its session.
    /// Returns the cluster time of the commit, and how long the caller should wait for index builds
    /// after it has released its locks. A transaction without writes leaves no record. If it has
    /// created collections, the caller holds the catalog's lock and has checked that their names
    /// are free.
    ///
    /// # Errors
    /// 112 WriteConflict and 246 SnapshotUnavailable: nothing was committed; 251 NoSuchTransaction
    /// when a unit of it had failed; errors of the engine.
    pub(crate) fn commit_open(&self, transaction: OpenTransaction) -> Result<(u64, Duration)> {
        let OpenParts { mut txn, local, mut pending, read_time, owner, place: _place } =
            transaction.into_parts();
        if pending.failed {
            let text = "a statement of the transaction failed, so that it cannot be committed";
            return Err(Error::new(ErrorCode::NoSuchTransaction, text));
        }
        if txn.size().1 == 0 {
            return Ok((read_time, Duration::ZERO));
        }
        self.check_open()?;
        // The commit creates these collections for other readers.
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
        for (collection, state) in written.iter().zip(&states) {
            let (txn, pending) = (&mut *txn, &mut pending);
            UnseenKeys { core: self, txn, pending, collection }.write(state, &local)?;
        }
        let made = CommitOwner::Transaction(&owner, &local.created);
        let Committed { timestamp, delay } = self.commit(txn, &mut pending, made, now_ms)?;
        Ok((timestamp, delay))
    }
}

/// Writes the session's record of a committed transaction. Its timestamp is filled in by the
/// commit.
fn record_commit(txn: &mut dyn Txn, owner: &TransactionOwner, now_ms: i64) -> Result<()> {
    let mut result = DocBuilder::new();
    result.append("committed", RawValue::Timestamp(0));
    let statement =
        Statement { session: owner.session, txn_number: owner.txn_number, id: COMMIT_STATEMENT };
    let (key, value) = statement_row(statement, 1, now_ms, result.finish().as_doc());
    // The timestamp is the last field of the document that ends the value.
    let gap = Gap::Value(value.len() - 1 - GAP_BYTES, Which::Last);
    txn.put_with_gaps(Keyspace::Session, &key, &value, Guard::Checked, &[gap]).map_err(from_kv)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::isolation::ReadView;
    use crate::testing::{fixture, ns};

    /// What the definition hook observes: (the engine has the document, the collection is visible,
    /// the log is settled).
    type Found = (bool, bool, bool);

    #[test]
    fn a_commit_is_durable_in_the_engine_before_it_is_published_and_published_before_it_is_logged()
    {
        let f = fixture();
        let found: Arc<Mutex<Vec<Found>>> = Arc::default();
        let (weak, seen) = (Arc::downgrade(&f.store), found.clone());
        f.store.on_definition(move |_| {
            let Some(store) = weak.upgrade() else { return };
            let now = store.catalog.get(&ns("d.made"));
            let txn = store.engine().begin(mayfly_kv::TxnOptions::READ_ONLY).unwrap();
            let row = crate::catalog::rows(&*txn, b'c').unwrap().into_iter();
            let stored = row.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("d.made"));
            let settled = store.oplog.settled() == store.oplog.clock.last();
            seen.lock().push((stored.count() == 1, now.is_some(), settled));
        });
        // For a definition: the caller publishes it after its commit.
        f.store.create_collection(&ReadView::now(), &ns("d.made"), DocBuf::empty()).unwrap();
        assert_eq!(*found.lock(), [(true, false, false)]);
        f.store.drop_collection(&ns("d.made")).unwrap();
        found.lock().clear();
        // For a transaction.
        let document = DocBuf::from_bson(&mayfly_value::bson::doc! { "_id": 1 });
        let (session, lsid) = ([1; 16], DocBuf::empty());
        let owner = TransactionOwner { session, lsid, txn_number: 1 };
        let view = f.store.begin_transaction(owner).unwrap().enter();
        let made = f.store.create_collection(&view, &ns("d.made"), DocBuf::empty()).unwrap();
        f.store.write(&f.op, &view, &made, |unit| unit.insert(document.as_doc())).unwrap();
        let committed = f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
        assert_eq!(*found.lock(), [(true, false, false)]);
        assert_eq!(f.store.oplog.settled(), committed);
        assert!(f.store.catalog.get(&ns("d.made")).is_some());
        assert_eq!(made.counts.documents.load(std::sync::atomic::Ordering::Acquire), 1);
    }
}

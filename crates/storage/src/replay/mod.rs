//! Applies the entries of an archived log to a store, in their order.
//!
//! The store is one that was copied at a time T, and the entries are those after T. Before an entry
//! is applied, the store's clock is set to the entry's wall time, so that documents get the time of
//! their last change. Entries that write documents are not logged again, and several of them are
//! applied together if they write different documents ([`batch`]).
//!
//! 1. The entries of a transaction that has several are collected until its last one.
//! 2. The operations of an entry that write documents are one write unit, over all of their
//!    collections, with the position of the replay in the same engine transaction
//!    ([`catalog_key::REPLAYED`]). After a crash the replay goes on after that position.
//! 3. A command contains the catalog document of its collection after the command. The replay makes
//!    the collection as that document says ([`definition`]). This can be repeated, but not after
//!    later entries: the position is stored after it, too. The same holds for an entry about the
//!    search indexes of a collection.
//!
//! Nothing expires meanwhile: the store has no background threads.

mod batch;
mod definition;
#[cfg(test)]
mod opening_tests;
mod operation;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, ManualClock, Result};
use mayfly_kv::{Engine, Guard, Keyspace, TxnOptions};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::{OpCtx, OpRegistry};

use crate::catalog::Collection;
use crate::index::FilterCompiler;
use crate::isolation::ReadView;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::write::UnitCollections;
use crate::{CatalogMarks, Store, StoreOptions};
use batch::{Batch, BatchWrite, apply_writes};
use operation::{Change, Operation};

/// A replay of a log into a store.
pub struct Replay {
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    op: Arc<OpCtx>,
    /// The timestamp of the last entry that was applied.
    position: u64,
    /// Entries of a transaction whose last one is still to come.
    parts: Vec<DocBuf>,
    /// Collections that were looked up since the last change of a definition.
    known: HashMap<[u8; 16], Arc<Collection>>,
}

impl Replay {
    /// Opens a store for a replay, or for the rest of one that was interrupted.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(engine: Arc<dyn Engine>, filters: Arc<dyn FilterCompiler>) -> Result<Replay> {
        Replay::open_marked(engine, filters, CatalogMarks::Refuse)
    }

    /// Opens a store for a replay, also one with the mark of an unfinished copy.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(crate) fn open_marked(
        engine: Arc<dyn Engine>,
        filters: Arc<dyn FilterCompiler>,
        marks: CatalogMarks,
    ) -> Result<Replay> {
        let clock = Arc::new(ManualClock::default());
        let options = StoreOptions {
            filters,
            background: false,
            for_replay: true,
            marks,
            ..StoreOptions::default()
        };
        let stored = stored_position(&*engine)?;
        let ops = OpRegistry::new(clock.clone());
        let store = Store::open(engine, options, clock.clone(), ops)?;
        // The manual clock is at zero, so that this is the timestamp of the newest entry.
        let position = stored.unwrap_or(store.oplog.clock.last());
        let op = OpCtx::detached(clock.clone());
        let (parts, known) = (Vec::new(), HashMap::new());
        let replay = Replay { store, clock, op, position, parts, known };
        if stored.is_none() {
            replay.store_position(position)?;
        }
        // Their entries in the log of the replay get the next timestamps, which entries to apply
        // have, too.
        replay.store.forget_unfinished_builds()?;
        Ok(replay)
    }

    /// The timestamp of the last entry that was applied.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The store, for comparisons.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Applies an entry, unless it was applied before.
    ///
    /// # Errors
    /// As [`Replay::apply_all`].
    pub fn apply(&mut self, entry: RawDoc<'_>) -> Result<()> {
        self.apply_all(&[entry])
    }

    /// Applies entries, except for those that were applied before. They must come in the order of
    /// their timestamps. After an error some of the first ones have been applied.
    ///
    /// # Errors
    /// 9 FailedToParse for an entry that is none; 26 NamespaceNotFound for a missing collection;
    /// 301 DataCorruptionDetected when the document of an update is missing, or when a command has
    /// no definition; errors of the engine.
    pub fn apply_all(&mut self, entries: &[RawDoc<'_>]) -> Result<()> {
        let mut batch = Batch::default();
        for &entry in entries {
            let Some(RawValue::Timestamp(timestamp)) = entry.get("ts") else {
                return Err(Error::failed_to_parse("an archived entry has no timestamp"));
            };
            if timestamp <= self.position {
                continue;
            }
            let command = entry.get("o").and_then(RawValue::as_document);
            let partial = command.and_then(|command| command.get("partialTxn"));
            if entry.get("lsid").is_some() && partial == Some(RawValue::Bool(true)) {
                self.write_batch(&mut batch)?;
                self.parts.push(entry.to_owned());
                continue;
            }
            let at = |error| in_entry(error, timestamp);
            let wall_ms = match entry.get("wall") {
                Some(RawValue::Date(wall_ms)) => Some(wall_ms),
                _ => None,
            };
            let mut operations = Vec::new();
            operation::append_all(&mut operations, entry).map_err(at)?;
            let is_alone = !self.parts.is_empty() || !operations.iter().all(Operation::is_document);
            if is_alone {
                self.write_batch(&mut batch)?;
            }
            // Entries of the batch do not change which collections there are.
            let documents = match is_alone {
                true => None,
                false => self.documents_of(&operations).map_err(at)?,
            };
            match documents {
                Some(documents) => {
                    if batch.writes_any(&documents) {
                        self.write_batch(&mut batch)?;
                    }
                    batch.push((timestamp, wall_ms), entry, operations, documents);
                    if batch.is_full() {
                        self.write_batch(&mut batch)?;
                    }
                }
                None => {
                    self.write_batch(&mut batch)?;
                    self.apply_alone(entry, (timestamp, wall_ms)).map_err(at)?;
                }
            }
        }
        self.write_batch(&mut batch)
    }

    /// Applies an entry in units of its own, after the parts of its transaction.
    fn apply_alone(
        &mut self,
        entry: RawDoc<'_>,
        (timestamp, wall_ms): (u64, Option<i64>),
    ) -> Result<()> {
        if let Some(wall_ms) = wall_ms {
            self.clock.set_wall_ms(wall_ms);
        }
        let parts = std::mem::take(&mut self.parts);
        let mut operations = Vec::new();
        for part in &parts {
            operation::append_all(&mut operations, part.as_doc())?;
        }
        operation::append_all(&mut operations, entry)?;
        self.apply_operations(operations, timestamp)?;
        self.position = timestamp;
        Ok(())
    }

    /// Applies the entries of a batch, which is empty afterwards.
    fn write_batch(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let Batch { writes, times: (first, last), .. } = std::mem::take(batch);
        let mut times = writes.iter().filter_map(|write| write.wall_ms);
        let (first_ms, last_ms) = (times.next(), times.next_back());
        if let Some(wall_ms) = first_ms {
            self.clock.set_wall_ms(wall_ms);
        }
        // A note has no operation: the position of a later entry covers it.
        self.write(&writes, Some(last)).map_err(|error| match first == last {
            true => in_entry(error, last),
            false => in_entry(error.in_context(format_args!("a batch up to the last one")), last),
        })?;
        if let Some(wall_ms) = last_ms {
            self.clock.set_wall_ms(wall_ms);
        }
        self.position = last;
        Ok(())
    }

    fn apply_operations(&mut self, operations: Vec<Operation<'_>>, timestamp: u64) -> Result<()> {
        let mut documents = Vec::new();
        let mut rest = operations.into_iter().peekable();
        while let Some(operation) = rest.next() {
            let is_last = rest.peek().is_none();
            if operation.is_document() {
                documents.push(BatchWrite { operation, wall_ms: None });
                let is_end = rest.peek().is_none_or(|next| !next.is_document());
                if is_end {
                    self.write(&std::mem::take(&mut documents), is_last.then_some(timestamp))?;
                }
                continue;
            }
            self.known.clear();
            self.redefine(&operation)?;
            if is_last {
                self.store_position(timestamp)?;
            }
        }
        Ok(())
    }

    fn redefine(&mut self, operation: &Operation<'_>) -> Result<()> {
        match &operation.change {
            Change::Document { .. } => Ok(()),
            Change::Definition { command, definition } => {
                self.define(operation, *command, *definition)
            }
            Change::SearchIndexes(indexes) => {
                let collection = self.collection(operation)?;
                self.store.replay_search(&collection, indexes)
            }
        }
    }

    /// Writes documents in one unit, with the position after it.
    fn write(&mut self, writes: &[BatchWrite<'_>], position: Option<u64>) -> Result<()> {
        // The changes by collection; changes of different ones do not depend on each other.
        let mut groups: Vec<(Arc<Collection>, Vec<&BatchWrite<'_>>)> = Vec::new();
        for write in writes {
            let collection = self.collection(&write.operation)?;
            match groups.iter_mut().find(|(known, _)| known.id() == collection.id()) {
                Some((_, group)) => group.push(write),
                None => groups.push((collection, vec![write])),
            }
        }
        let Some(((first, _), others)) = groups.split_first() else { return Ok(()) };
        let others = others.iter().map(|(other, _)| (other.namespace(), other.clone())).collect();
        let together = UnitCollections { first: first.clone(), others };
        let view = ReadView::now();
        self.store.write_together((&self.op, &view), &together, |unit| {
            unit.leave_unlogged();
            unit.bypass_validation();
            for (collection, group) in &groups {
                match collection.id() == together.first.id() {
                    true => apply_writes(unit, collection, group)?,
                    false => unit.within(&collection.namespace(), |unit| {
                        apply_writes(unit, collection, group)
                    })?,
                }
            }
            position.map_or(Ok(()), |position| unit.note_replayed(position))
        })
    }

    /// The collection of an operation.
    fn collection(&mut self, operation: &Operation<'_>) -> Result<Arc<Collection>> {
        let Some(uuid) = operation.uuid else {
            let text = format!("an operation on {} has no UUID", operation.ns);
            return Err(Error::failed_to_parse(text));
        };
        if let Some(known) = self.known.get(&uuid) {
            return Ok(known.clone());
        }
        let Some(found) = self.collection_with(uuid) else {
            let text = format!("there is no collection {} with its UUID", operation.ns);
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        self.known.insert(uuid, found.clone());
        Ok(found)
    }

    fn collection_with(&self, uuid: [u8; 16]) -> Option<Arc<Collection>> {
        self.store.catalog.all().values().find(|collection| collection.uuid() == uuid).cloned()
    }

    fn store_position(&self, position: u64) -> Result<()> {
        self.store.change(|txn, _| {
            let value = position.to_be_bytes();
            txn.put(Keyspace::Catalog, catalog_key::REPLAYED, &value, Guard::Checked)
                .map_err(from_kv)
        })
    }

    /// Stores a position that the log reaches without further changes, so that the replay goes on
    /// there. It stays as it is while parts of a transaction are awaited.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn keep_position(&mut self, reached: u64) -> Result<()> {
        if reached <= self.position || !self.parts.is_empty() {
            return Ok(());
        }
        self.position = reached;
        self.store_position(reached)
    }

    /// Ends the replay and closes the store and its engine. Transactions whose last entry did not
    /// come are not applied. The position stays until [`Store::become_restored`]: a restore that is
    /// interrupted before that replays again, and must not apply an entry twice.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn finish(self) -> Result<()> {
        self.store.close()
    }
}

/// The position of an interrupted replay.
fn stored_position(engine: &dyn Engine) -> Result<Option<u64>> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
    let mut position = None;
    txn.get(Keyspace::Catalog, catalog_key::REPLAYED, &mut |value| {
        position = value.try_into().ok().map(u64::from_be_bytes);
    })
    .map_err(from_kv)?;
    Ok(position)
}

fn in_entry(error: Error, timestamp: u64) -> Error {
    let (seconds, increment) = (timestamp >> 32, timestamp as u32);
    error.in_context(format_args!("entry {seconds}.{increment} of the log"))
}

fn missing_document(operation: &Operation<'_>) -> Error {
    let text = format!("the document of an update of {} is missing", operation.ns);
    Error::new(ErrorCode::DataCorruptionDetected, text)
}

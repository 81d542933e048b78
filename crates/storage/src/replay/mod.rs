//! Applies the entries of an archived log to a store, one after the other.
//!
//! The store is one that was copied at a time T, and the entries are those after T. Before an entry
//! is applied, the store's clock is set to the entry's wall time, so that documents get the time of
//! their last change. Entries that write documents are not logged again.
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

mod definition;
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
use crate::{Store, StoreOptions};
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
        let clock = Arc::new(ManualClock::default());
        let options = StoreOptions {
            filters,
            background: false,
            for_replay: true,
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

    /// Applies an entry, unless it was applied before. Entries must come in the order of their
    /// timestamps.
    ///
    /// # Errors
    /// 9 FailedToParse for an entry that is none; 26 NamespaceNotFound for a missing collection;
    /// 301 DataCorruptionDetected when the document of an update is missing, or when a command has
    /// no definition; errors of the engine.
    pub fn apply(&mut self, entry: RawDoc<'_>) -> Result<()> {
        let Some(RawValue::Timestamp(timestamp)) = entry.get("ts") else {
            return Err(Error::failed_to_parse("an archived entry has no timestamp"));
        };
        if timestamp <= self.position {
            return Ok(());
        }
        let command = entry.get("o").and_then(RawValue::as_document);
        let partial = command.and_then(|command| command.get("partialTxn"));
        if entry.get("lsid").is_some() && partial == Some(RawValue::Bool(true)) {
            self.parts.push(entry.to_owned());
            return Ok(());
        }
        if let Some(RawValue::Date(wall_ms)) = entry.get("wall") {
            self.clock.set_wall_ms(wall_ms);
        }
        let parts = std::mem::take(&mut self.parts);
        let mut operations = Vec::new();
        for part in &parts {
            operation::append_all(&mut operations, part.as_doc())?;
        }
        operation::append_all(&mut operations, entry)?;
        let at = |error: Error| {
            let (seconds, increment) = (timestamp >> 32, timestamp as u32);
            error.in_context(format_args!("entry {seconds}.{increment} of the log"))
        };
        self.apply_operations(&operations, timestamp).map_err(at)?;
        self.position = timestamp;
        Ok(())
    }

    fn apply_operations(&mut self, operations: &[Operation<'_>], timestamp: u64) -> Result<()> {
        let mut rest = operations;
        while let Some(first) = rest.first() {
            match &first.change {
                Change::Document { .. } => {}
                Change::Definition { .. } | Change::SearchIndexes(_) => {
                    self.known.clear();
                    self.redefine(first)?;
                    rest = &rest[1..];
                    if rest.is_empty() {
                        self.store_position(timestamp)?;
                    }
                    continue;
                }
            }
            let is_document = |it: &Operation<'_>| matches!(it.change, Change::Document { .. });
            let end = rest.iter().position(|it| !is_document(it)).unwrap_or(rest.len());
            let (group, later) = rest.split_at(end);
            self.write(group, later.is_empty().then_some(timestamp))?;
            rest = later;
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
    fn write(&mut self, operations: &[Operation<'_>], position: Option<u64>) -> Result<()> {
        let mut targets: Vec<(Arc<Collection>, &Operation<'_>)> = Vec::new();
        for operation in operations {
            targets.push((self.collection(operation)?, operation));
        }
        let mut collections: Vec<&Arc<Collection>> = Vec::new();
        for (collection, _) in &targets {
            if !collections.iter().any(|known| known.id() == collection.id()) {
                collections.push(collection);
            }
        }
        let Some((first, others)) = collections.split_first() else { return Ok(()) };
        let others = others.iter().map(|other| (other.namespace(), (*other).clone())).collect();
        let together = UnitCollections { first: (*first).clone(), others };
        let view = ReadView::now();
        self.store.write_together((&self.op, &view), &together, |unit| {
            unit.leave_unlogged();
            unit.bypass_validation();
            for (collection, operation) in &targets {
                let Change::Document { id, change } = &operation.change else { continue };
                let found = match collection.id() == together.first.id() {
                    true => unit.replay_own(*id, change)?,
                    false => {
                        unit.within(&collection.namespace(), |unit| unit.replay_own(*id, change))?
                    }
                };
                if !found {
                    return Err(missing_document(operation));
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

fn missing_document(operation: &Operation<'_>) -> Error {
    let text = format!("the document of an update of {} is missing", operation.ns);
    Error::new(ErrorCode::DataCorruptionDetected, text)
}

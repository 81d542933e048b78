//! Entries that write a document: selected by its `_id`, whatever its present content.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::OperationTime;
use mayfly_mql::{ParseContext, Update, UpdateContext};
use mayfly_storage::{Collection, ReplayedChange, UpdateStyle, WriteUnit};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::entry::{Entry, EntryKind};
use crate::context::CommandContext;

/// An entry with its collection and record.
pub(super) struct DocumentChange<'a> {
    pub(super) collection: Arc<Collection>,
    id: RawValue<'a>,
    change: ChangeKind<'a>,
    /// Whether an update inserts a missing document.
    upsert: bool,
    bypasses: bool,
}

enum ChangeKind<'a> {
    /// A change in the form of this server's log.
    Replayed(ReplayedChange<'a>),
    /// Update operators, the form of logs before deltas.
    Operators(Update),
}

impl<'a> DocumentChange<'a> {
    /// Finds the collection and the record; `None` for a delete from a missing collection.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 9 FailedToParse without an `_id`; errors of the update.
    pub(super) fn of(
        ctx: &CommandContext<'_>,
        entry: &Entry<'a>,
    ) -> Result<Option<DocumentChange<'a>>> {
        let Some(collection) = find(ctx, entry)? else { return Ok(None) };
        let of_buckets = collection.time_series().is_some();
        let named = entry.target.filter(|_| entry.kind == EntryKind::Update);
        let Some(id) = named.unwrap_or(entry.object).get("_id") else {
            let text = format!("an op for {} has no _id", entry.ns);
            return Err(Error::new(ErrorCode::NoSuchKey, text));
        };
        let change = match entry.kind {
            EntryKind::Insert => ChangeKind::Replayed(ReplayedChange::Put(entry.object)),
            EntryKind::Update => ChangeKind::parse(entry.object, ctx.op.now_ms())?,
            EntryKind::Delete | EntryKind::Command | EntryKind::Note => {
                ChangeKind::Replayed(ReplayedChange::Remove)
            }
        };
        if of_buckets && matches!(change, ChangeKind::Operators(_)) {
            return Err(Error::not_implemented("operators on a bucket in 'applyOps'"));
        }
        let (upsert, bypasses) = (entry.upsert, entry.bypasses);
        Ok(Some(DocumentChange { collection, id, change, upsert, bypasses }))
    }

    /// Writes the change; returns false when the document of an update is missing.
    ///
    /// # Errors
    /// Errors of [`WriteUnit::replay`].
    pub(super) fn apply(&self, ctx: &CommandContext<'_>, unit: &mut WriteUnit<'_>) -> Result<bool> {
        if self.bypasses {
            unit.bypass_validation();
        }
        let done = match &self.change {
            ChangeKind::Replayed(change) => unit.replay(self.id, change)?,
            ChangeKind::Operators(update) => self.update(ctx, unit, update)?,
        };
        if done || !self.upsert {
            return Ok(done);
        }
        let mut fresh = DocBuilder::new();
        fresh.append("_id", self.id);
        let fresh = fresh.finish();
        let new = match &self.change {
            ChangeKind::Replayed(change) => change.applied(fresh.as_doc())?,
            ChangeKind::Operators(update) => update.apply(fresh.as_doc(), &context(ctx))?,
        };
        unit.insert(new.unwrap_or(fresh).as_doc())?;
        Ok(true)
    }

    /// Updates the document by operators; returns false when it is missing.
    fn update(
        &self,
        ctx: &CommandContext<'_>,
        unit: &mut WriteUnit<'_>,
        update: &Update,
    ) -> Result<bool> {
        let Some(key) = unit.locate(self.collection.id_key(self.id))? else { return Ok(false) };
        let Some(old) = unit.read(&key)? else { return Ok(false) };
        if let Some(new) = update.apply(old.as_doc(), &context(ctx))? {
            unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)?;
        }
        Ok(true)
    }
}

fn context(ctx: &CommandContext<'_>) -> UpdateContext {
    UpdateContext { now_ms: ctx.op.now_ms(), ..UpdateContext::default() }
}

/// The collection of an entry, by its UUID if it has one. A delete from a missing collection has no
/// effect.
fn find(ctx: &CommandContext<'_>, entry: &Entry<'_>) -> Result<Option<Arc<Collection>>> {
    let store = &ctx.service.store;
    let found = match entry.uuid {
        Some(uuid) => store
            .collections(Some(entry.ns.db()))
            .into_iter()
            .find(|collection| collection.uuid() == uuid),
        None => store.collection(ctx.store.view, &entry.ns),
    };
    if found.is_none() && (entry.uuid.is_some() || entry.kind != EntryKind::Delete) {
        store.check_no_view(ctx.store.view, &entry.ns)?;
        let text = format!("cannot apply an op on a collection that does not exist: {}", entry.ns);
        return Err(Error::new(ErrorCode::NamespaceNotFound, text));
    }
    Ok(found)
}

impl<'a> ChangeKind<'a> {
    fn parse(object: RawDoc<'a>, now_ms: i64) -> Result<ChangeKind<'a>> {
        if object.get_element("_id").is_some() {
            return Ok(ChangeKind::Replayed(ReplayedChange::Replacement(object)));
        }
        let version = object.get("$v");
        match version.and_then(mayfly_value::arguments::convert::whole_number) {
            Some(2) => match object.get("diff") {
                Some(RawValue::Document(delta)) => {
                    return Ok(ChangeKind::Replayed(ReplayedChange::Delta(delta)));
                }
                _ => {
                    let text = "expected a document 'diff' in an update of version 2";
                    return Err(Error::new(ErrorCode(4772601), text));
                }
            },
            None | Some(1) => {}
            Some(other) => {
                let text = format!("unknown version {other} of an update");
                return Err(Error::new(ErrorCode(4772600), text));
            }
        }
        if !object.iter().any(|element| element.name().starts_with('$')) {
            return Ok(ChangeKind::Replayed(ReplayedChange::Replacement(object)));
        }
        let mut operators = DocBuilder::new();
        for element in object.iter().filter(|element| element.name() != "$v") {
            operators.append_element(element);
        }
        let context =
            ParseContext { time: Some(OperationTime::at(now_ms)), ..ParseContext::default() };
        Ok(ChangeKind::Operators(Update::parse(operators.finish().as_doc(), &context)?))
    }
}

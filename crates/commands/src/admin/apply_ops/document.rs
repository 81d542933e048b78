//! Entries that write a document: selected by its `_id`, whatever its present content.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::OperationTime;
use mayfly_mql::{ParseContext, Update, UpdateContext};
use mayfly_storage::{Collection, UpdateStyle, WriteUnit, apply_delta};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, equal_values};

use super::entry::{Entry, EntryKind};
use crate::context::CommandContext;

/// An entry with its collection and record.
pub(super) struct DocumentChange<'a> {
    pub(super) collection: Arc<Collection>,
    id: RawValue<'a>,
    action: Action<'a>,
    bypasses: bool,
}

enum Action<'a> {
    /// Writes the document.
    Put(RawDoc<'a>),
    /// Writes the bucket of a time series. A missing one was deleted later in the log.
    PutBucket(RawDoc<'a>),
    /// Adds measurements to a bucket.
    GrowBucket(RawDoc<'a>),
    /// Updates the document; `upsert` inserts a missing one.
    Change {
        change: ChangeKind<'a>,
        upsert: bool,
    },
    Remove,
}

/// The forms of updates in a log.
enum ChangeKind<'a> {
    /// `{ $v: 2, diff }`.
    Delta(RawDoc<'a>),
    /// Update operators, the form of logs before deltas.
    Operators(Update),
    Replacement(RawDoc<'a>),
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
        let action = match entry.kind {
            EntryKind::Insert if of_buckets => Action::PutBucket(entry.object),
            EntryKind::Insert => Action::Put(entry.object),
            EntryKind::Update => match ChangeKind::parse(entry.object, ctx.op.now_ms())? {
                ChangeKind::Replacement(bucket) if of_buckets => Action::PutBucket(bucket),
                ChangeKind::Delta(delta) if of_buckets => Action::GrowBucket(delta),
                ChangeKind::Operators(_) if of_buckets => {
                    return Err(Error::not_implemented("operators on a bucket in 'applyOps'"));
                }
                change => Action::Change { change, upsert: entry.upsert },
            },
            EntryKind::Delete | EntryKind::Command | EntryKind::Note => Action::Remove,
        };
        Ok(Some(DocumentChange { collection, id, action, bypasses: entry.bypasses }))
    }

    /// Writes the change; returns false when the document of an update is missing.
    ///
    /// # Errors
    /// Errors of [`WriteUnit::insert`] and [`WriteUnit::update`].
    pub(super) fn apply(&self, ctx: &CommandContext<'_>, unit: &mut WriteUnit<'_>) -> Result<bool> {
        if self.bypasses {
            unit.bypass_validation();
        }
        // An earlier operation of the unit may have inserted it.
        let old = match unit.locate(self.collection.id_key(self.id))? {
            Some(key) => unit.read(&key)?.map(|old| (key, old)),
            None => None,
        };
        match (&self.action, old) {
            (Action::Remove, Some((key, old))) => unit.delete(&key, &old)?,
            (Action::Remove, None) => {}
            (Action::PutBucket(bucket), _) => unit.replay_bucket(*bucket)?,
            (Action::GrowBucket(delta), _) => unit.replay_growth(self.id, *delta)?,
            (Action::Put(new), Some((key, old))) => {
                if *new != old.as_doc() {
                    unit.update(&key, &old, *new, UpdateStyle::Replacement)?;
                }
            }
            (Action::Put(new), None) => unit.insert(*new)?,
            (Action::Change { change, .. }, Some((key, old))) => {
                if let Some(new) = change.applied(old.as_doc(), ctx.op.now_ms())? {
                    unit.update(&key, &old, new.as_doc(), change.style())?;
                }
            }
            (Action::Change { change, upsert: true }, None) => {
                let mut fresh = DocBuilder::new();
                fresh.append("_id", self.id);
                let fresh = fresh.finish();
                let new = change.applied(fresh.as_doc(), ctx.op.now_ms())?.unwrap_or(fresh);
                unit.insert(new.as_doc())?;
            }
            (Action::Change { upsert: false, .. }, None) => return Ok(false),
        }
        Ok(true)
    }
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
            return Ok(ChangeKind::Replacement(object));
        }
        let version = object.get("$v");
        match version.and_then(mayfly_value::arguments::convert::whole_number) {
            Some(2) => match object.get("diff") {
                Some(RawValue::Document(delta)) => return Ok(ChangeKind::Delta(delta)),
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
            return Ok(ChangeKind::Replacement(object));
        }
        let mut operators = DocBuilder::new();
        for element in object.iter().filter(|element| element.name() != "$v") {
            operators.append_element(element);
        }
        let context =
            ParseContext { time: Some(OperationTime::at(now_ms)), ..ParseContext::default() };
        Ok(ChangeKind::Operators(Update::parse(operators.finish().as_doc(), &context)?))
    }

    fn style(&self) -> UpdateStyle<'static> {
        match self {
            ChangeKind::Replacement(_) => UpdateStyle::Replacement,
            ChangeKind::Delta(_) | ChangeKind::Operators(_) => UpdateStyle::Computed,
        }
    }

    /// The document after the update; `None` if it does not change.
    fn applied(&self, old: RawDoc<'_>, now_ms: i64) -> Result<Option<DocBuf>> {
        let new = match self {
            ChangeKind::Delta(delta) => apply_delta(old, *delta)?,
            ChangeKind::Operators(update) => {
                let context = UpdateContext { now_ms, ..UpdateContext::default() };
                return update.apply(old, &context);
            }
            ChangeKind::Replacement(new) => replaced(old, *new),
        };
        let ids = (old.get("_id"), new.as_doc().get("_id"));
        if !matches!(ids, (Some(old), Some(new)) if equal_values(old, new)) {
            let text = "an op would change the immutable field '_id'";
            return Err(Error::new(ErrorCode::ImmutableField, text));
        }
        Ok((new.as_doc() != old).then_some(new))
    }
}

/// The replacement, with the old document's `_id` if it has none.
fn replaced(old: RawDoc<'_>, new: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    if let (None, Some(id)) = (new.get_element("_id"), old.get_element("_id")) {
        out.append_element(id);
    }
    out.append_all(new);
    out.finish()
}

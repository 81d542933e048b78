//! Updates and deletes: find the records, then change each in a write unit that reads it again and checks the filter again,
//! so that a racing writer is never overwritten unseen.

use std::sync::Arc;

use mayfly_base::{ErrorCode, OpCtx, Result};
use mayfly_mql::{Matcher, Update, UpdateContext};
use mayfly_storage::{Collection, RecordKey, Store, WriteUnit, record_key};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

use crate::{CanonicalQuery, Executor, Flow};

/// Records looked for at once before they are changed.
const BATCH_RECORDS: usize = 500;
/// Times a single-document write looks for another record when the one it found was changed under it.
const MAX_LOST_RACES: usize = 1000;

/// One update statement.
pub struct UpdateSpec {
    /// Which documents.
    pub query: CanonicalQuery,
    /// What happens to them.
    pub update: Update,
    /// All of them, or the first.
    pub multi: bool,
    /// Whether to insert one when there is none.
    pub upsert: bool,
    /// The `_id` of an upserted document whose query and update give none.
    pub new_id: [u8; 12],
}

/// One delete statement.
pub struct DeleteSpec {
    /// Which documents.
    pub query: CanonicalQuery,
    /// All of them, or the first.
    pub multi: bool,
}

/// What a statement did.
#[derive(Debug, Default)]
pub struct ModifyOutcome {
    /// Documents that matched.
    pub matched: i64,
    /// Documents that changed.
    pub modified: i64,
    /// `_id` of the document that was inserted instead.
    pub upserted: Option<ValueBuf>,
}

/// Runs an update statement. The collection must exist when `upsert` is set.
///
/// # Errors
/// Those of the update language, of storage, and of the operation's deadline. Documents changed before an error stay
/// changed.
pub fn update(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    spec: UpdateSpec,
) -> Result<ModifyOutcome> {
    let UpdateSpec { query, update, multi, upsert, new_id } = spec;
    let matcher = query.matcher.clone();
    let mut outcome = ModifyOutcome::default();
    let change = |unit: &mut WriteUnit<'_>, key: &RecordKey| {
        change_one(unit, key, &matcher, &update, op.now_ms())
    };
    let mut tally = |changed: Change| match changed {
        Change::Gone => false,
        Change::Same => {
            outcome.matched += 1;
            true
        }
        Change::Written => {
            outcome.matched += 1;
            outcome.modified += 1;
            true
        }
    };
    for_each_record(store, op, collection, query, multi, &mut |key| {
        let changed = store.write(op, collection, |unit| change(unit, key))?;
        Ok(tally(changed))
    })?;
    if outcome.matched == 0 && upsert {
        let inserted = upsert_one(store, op, collection, &matcher, &update, new_id)?;
        match inserted {
            Some(id) => outcome.upserted = Some(id),
            // Somebody inserted it first: update that one.
            None => {
                let query = CanonicalQuery {
                    matcher: matcher.clone(),
                    sort: None,
                    natural_backward: None,
                    projection: None,
                    skip: 0,
                    limit: None,
                    hint: None,
                };
                let spec = UpdateSpec { query, update, multi, upsert: false, new_id };
                return self::update(store, op, collection, spec);
            }
        }
    }
    Ok(outcome)
}

/// Runs a delete statement; gives the number of documents that went.
///
/// # Errors
/// Those of storage and of the operation's deadline.
pub fn delete(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    spec: DeleteSpec,
) -> Result<i64> {
    let matcher = spec.query.matcher.clone();
    let mut deleted = 0;
    for_each_record(store, op, collection, spec.query, spec.multi, &mut |key| {
        let gone = store.write(op, collection, |unit| {
            let Some(document) = unit.read(key)? else { return Ok(false) };
            if !matcher.matches(document.as_doc()) {
                return Ok(false);
            }
            unit.delete(key, document.as_doc())?;
            Ok(true)
        })?;
        deleted += i64::from(gone);
        Ok(gone)
    })?;
    Ok(deleted)
}

/// Calls `act` with the records that the query finds: all, or until it says once that it acted.
fn for_each_record(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
    multi: bool,
    act: &mut dyn FnMut(&RecordKey) -> Result<bool>,
) -> Result<()> {
    let mut executor = Executor::new(collection.clone(), query)?;
    op.update_info(|info| info.plan_summary = executor.plan().to_string());
    executor.remember_records();
    let most = if multi { BATCH_RECORDS } else { 1 };
    let mut lost_races = 0;
    loop {
        let mut found: Vec<RecordKey> = Vec::new();
        executor.run(store, op, &mut |key, document| {
            // A sorted result comes without its record's key.
            let key = match (key.is_empty(), document.get("_id")) {
                (true, Some(id)) => record_key(id),
                _ => key.to_vec(),
            };
            found.push(key);
            Ok(if found.len() >= most { Flow::Pause } else { Flow::More })
        })?;
        for key in &found {
            let acted = act(key)?;
            if acted && !multi {
                return Ok(());
            }
            lost_races += usize::from(!acted);
        }
        if executor.is_done() || (!multi && lost_races > MAX_LOST_RACES) {
            return Ok(());
        }
    }
}

enum Change {
    /// Deleted, or changed so that it does not match any more.
    Gone,
    /// Matched, but the update changes nothing.
    Same,
    /// Changed.
    Written,
}

fn change_one(
    unit: &mut WriteUnit<'_>,
    key: &RecordKey,
    matcher: &Matcher,
    update: &Update,
    now_ms: i64,
) -> Result<Change> {
    let Some(old) = unit.read(key)? else { return Ok(Change::Gone) };
    if !matcher.matches(old.as_doc()) {
        return Ok(Change::Gone);
    }
    let context = UpdateContext { now_ms, is_insert: false };
    match update.apply(old.as_doc(), &context)? {
        Some(new) if new.as_bytes() != old.as_bytes() => {
            unit.update(key, old.as_doc(), new.as_doc())?;
            Ok(Change::Written)
        }
        _ => Ok(Change::Same),
    }
}

/// Inserts what the query implies with the update applied; nothing when a document with that `_id` came up meanwhile and
/// matches.
fn upsert_one(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    matcher: &Matcher,
    update: &Update,
    new_id: [u8; 12],
) -> Result<Option<ValueBuf>> {
    let context = UpdateContext { now_ms: op.now_ms(), is_insert: true };
    let document = with_id(update.upsert_document(matcher, &context)?.document, new_id);
    let id = document.as_doc().get("_id").unwrap_or(RawValue::Null).to_owned();
    let inserted = store.write(op, collection, |unit| unit.insert(document.as_doc()));
    match inserted {
        Ok(()) => Ok(Some(id)),
        Err(error) if error.code() == ErrorCode::DuplicateKey => {
            let key = record_key(id.as_raw());
            let matches = |found: RawDoc<'_>| matcher.matches(found);
            match store.read_one(collection, &key, matches)? {
                Some(true) => Ok(None),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// `_id` first, made up when there is none.
fn with_id(document: DocBuf, new_id: [u8; 12]) -> DocBuf {
    let raw = document.as_doc();
    if raw.iter().next().is_some_and(|first| first.name() == "_id") {
        return document;
    }
    let mut out = DocBuilder::new();
    match raw.get_element("_id") {
        Some(id) => out.append_element(id),
        None => out.append("_id", RawValue::ObjectId(new_id)),
    };
    for element in raw.iter().filter(|element| element.name() != "_id") {
        out.append_element(element);
    }
    out.finish()
}

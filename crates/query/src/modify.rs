//! Updates and deletes: find the records, then change each in a write unit that reads it again and checks the filter again,
//! so that a racing writer is never overwritten unseen.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, OpCtx, Result};
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_mql::{Matcher, Update, UpdateContext};
use mayfly_storage::{Collection, RecordKey, Store, UpdateStyle, WriteUnit, record_key};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values};

use crate::plan::Access;
use crate::{CanonicalQuery, Executor, Flow, Hint};

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
    let (matcher, hint) = (query.matcher.clone(), query.hint.clone());
    let mut query = Some(query);
    for lost_races in 0.. {
        let query = query.take().unwrap_or_else(|| plain_query(&matcher, &hint));
        let outcome = update_found(store, op, collection, query, &update, multi)?;
        if outcome.matched > 0 || !upsert {
            return Ok(outcome);
        }
        match upsert_one(store, op, collection, &matcher, &update, new_id)? {
            Upserted::Inserted(id) => {
                return Ok(ModifyOutcome { upserted: Some(id), ..ModifyOutcome::default() });
            }
            Upserted::WasThere(error) if lost_races >= MAX_LOST_RACES => return Err(error),
            // Somebody inserted it first: update that one, unless it has gone again.
            Upserted::WasThere(_) => op.check()?,
        }
    }
    unreachable!("the races that may be lost are counted")
}

fn update_found(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
    update: &Update,
    multi: bool,
) -> Result<ModifyOutcome> {
    let matcher = query.matcher.clone();
    let mut outcome = ModifyOutcome::default();
    let change = |unit: &mut WriteUnit<'_>, key: &RecordKey| {
        change_one(unit, key, &matcher, update, op.now_ms())
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
    // A second scan would change what the first has changed once more.
    let again = Again::UntilFirst;
    for_each_record(store, op, collection, query, multi, again, &mut |key| {
        let changed = store.write(op, collection, |unit| change(unit, key))?;
        Ok(tally(changed))
    })?;
    Ok(outcome)
}

/// A query by a filter, and nothing else but a hint.
fn plain_query(matcher: &Arc<Matcher>, hint: &Option<Hint>) -> CanonicalQuery {
    CanonicalQuery {
        matcher: matcher.clone(),
        sort: None,
        natural_backward: None,
        projection: None,
        skip: 0,
        limit: None,
        hint: hint.clone(),
    }
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
    let DeleteSpec { query, multi } = spec;
    for_each_record(store, op, collection, query, multi, Again::Always, &mut |key| {
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

/// Whether records may be looked for anew when the index that led to them is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Always,
    /// Until one was acted on.
    UntilFirst,
}

/// Calls `act` with the records that the query finds: all, or until it says once that it acted.
fn for_each_record(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
    multi: bool,
    again: Again,
    act: &mut dyn FnMut(&RecordKey) -> Result<bool>,
) -> Result<()> {
    let (matcher, hint) = (query.matcher.clone(), query.hint.clone());
    let mut query = Some(query);
    let mut acted = false;
    loop {
        let query = query.take().unwrap_or_else(|| plain_query(&matcher, &hint));
        let scanned = scan_and_act(store, op, collection, query, multi, &mut |key| {
            let now = act(key)?;
            acted |= now;
            Ok(now)
        });
        match scanned {
            Err(error)
                if error.code() == ErrorCode::QueryPlanKilled
                    && !collection.is_dropped()
                    && (again == Again::Always || !acted) =>
            {
                op.check()?;
            }
            other => return other,
        }
    }
}

fn scan_and_act(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
    multi: bool,
    act: &mut dyn FnMut(&RecordKey) -> Result<bool>,
) -> Result<()> {
    let mut executor = Executor::new(collection.clone(), query)?;
    op.update_info(|info| info.plan_summary = executor.plan().summary());
    if let (false, Access::Id(key)) = (multi, &executor.plan().access) {
        // The write unit reads it and checks the filter; nothing else can match.
        op.check()?;
        op.keys_examined.fetch_add(1, Ordering::Relaxed);
        op.docs_examined.fetch_add(1, Ordering::Relaxed);
        return act(key).map(|_| ());
    }
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
            let style = match update.is_replacement() {
                true => UpdateStyle::Replacement,
                false => UpdateStyle::Operators,
            };
            unit.update(key, old.as_doc(), new.as_doc(), style)?;
            Ok(Change::Written)
        }
        _ => Ok(Change::Same),
    }
}

enum Upserted {
    /// With this `_id`.
    Inserted(ValueBuf),
    /// A document that the query matches came up meanwhile.
    WasThere(Error),
}

/// Inserts what the query implies with the update applied.
fn upsert_one(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    matcher: &Matcher,
    update: &Update,
    new_id: [u8; 12],
) -> Result<Upserted> {
    let context = UpdateContext { now_ms: op.now_ms(), is_insert: true };
    let document = with_id(update.upsert_document(matcher, &context)?.document, new_id);
    let id = document.as_doc().get("_id").unwrap_or(RawValue::Null).to_owned();
    let inserted = store.write(op, collection, |unit| unit.insert(document.as_doc()));
    match inserted {
        Ok(()) => Ok(Upserted::Inserted(id)),
        Err(error) if error.code() == ErrorCode::DuplicateKey => {
            let key = record_key(id.as_raw());
            let matches = |found: RawDoc<'_>| matcher.matches(found);
            let was_there = store.read_one(collection, &key, matches)? == Some(true)
                || names_duplicate(matcher.root(), &error);
            if was_there { Ok(Upserted::WasThere(error)) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Whether the filter is nothing but equality with the key that was there already. Manual: "db.collection.update()",
/// "Upsert with Unique Index".
fn names_duplicate(filter: &Expr, error: &Error) -> bool {
    fn collect<'f>(expr: &'f Expr, out: &mut Vec<(&'f str, RawValue<'f>)>) -> bool {
        match expr {
            Expr::And(parts) => parts.iter().all(|part| collect(part, out)),
            Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value } } => {
                out.push((path.as_str(), value.as_raw()));
                true
            }
            _ => false,
        }
    }
    let extra = error.extra().and_then(RawDoc::new).and_then(|extra| extra.get("keyValue"));
    let Some(RawValue::Document(key)) = extra else { return false };
    let mut conditions = Vec::new();
    collect(filter, &mut conditions)
        && conditions.len() == key.iter().count()
        && conditions
            .iter()
            .all(|(path, wanted)| key.get(path).is_some_and(|v| compare_values(v, *wanted).is_eq()))
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

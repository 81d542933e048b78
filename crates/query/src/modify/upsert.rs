//! The insert of an upsert, and its conflict with a concurrent insert.

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::limits::MAX_USER_DOCUMENT_BYTES;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::shown_bucket;
use mayfly_mql::UpdateContext;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values};
use mayfly_work::OpCtx;

use super::record::Images;
use super::shown::ReturnedVersion;
use super::{ModifyOutcome, UpdateSpec};
use crate::language::CanonicalQuery;

pub(crate) enum Upserted {
    /// The document was inserted, with this `_id`.
    Inserted { id: ValueBuf, document: DocBuf },
    /// A concurrent insert created a document that the query matches.
    WasThere(Error),
}

/// Inserts the document that the query implies, with the update applied.
pub(crate) fn upsert_one(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &UpdateSpec,
    shown: ReturnedVersion<'_>,
) -> Result<Upserted> {
    let matcher = &spec.query.matcher;
    let document = inserted_document(session.op, spec)?;
    let images = Images { before: None, after: Some(document.as_doc()) };
    shown.check(images)?;
    let id = document.as_doc().get("_id").unwrap_or(RawValue::Null).to_owned();
    let outcome = ModifyOutcome { upserted: Some(id.clone()), ..ModifyOutcome::default() };
    let inserted = spec.target(collection).write(session, |unit| {
        if spec.bypass_validation {
            unit.bypass_validation();
        }
        match &spec.encrypted {
            Some(encrypted) => encrypted.insert(unit, document.as_doc())?,
            None => unit.insert(document.as_doc())?,
        }
        match &spec.repeatable {
            Some(repeatable) => repeatable.record(unit, &outcome, images),
            None => Ok(()),
        }
    });
    match inserted {
        Ok(()) => Ok(Upserted::Inserted { id, document }),
        // Inside of a transaction nothing is retried.
        Err(error) if error.code() == ErrorCode::DuplicateKey && !session.in_transaction() => {
            // A client's filter on a bucket applies to the format that it reads.
            let matches = |found: RawDoc<'_>| match collection.time_series() {
                Some(series) => matcher.matches(shown_bucket(found, &series.fields)?.as_doc()),
                None => matcher.matches(found),
            };
            let key = session.store.locate(session.view, collection, id.as_raw())?;
            let by_id = key
                .map(|key| session.store.read_one(session.view, collection, &key, matches))
                .transpose()?;
            let by_id = by_id.flatten().transpose()?;
            let was_there = by_id == Some(true) || names_duplicate(&spec.query, &error);
            if was_there { Ok(Upserted::WasThere(error)) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// The document that an upsert inserts.
pub(super) fn inserted_document(op: &OpCtx, spec: &UpdateSpec) -> Result<DocBuf> {
    let context = UpdateContext { now_ms: op.now_ms(), is_insert: true, position: None };
    let document = match &spec.supplied {
        Some(supplied) => supplied.clone(),
        None => spec.update.upsert_document(&spec.query.matcher, &context)?.document,
    };
    let document = with_id(document, spec.new_id);
    if document.as_bytes().len() > MAX_USER_DOCUMENT_BYTES {
        let text = format!("Document to upsert is larger than {MAX_USER_DOCUMENT_BYTES}");
        return Err(Error::new(ErrorCode(7655103), text));
    }
    Ok(document)
}

/// Whether the filter consists only of equalities with the duplicate key. Manual:
/// "db.collection.update()", "Upsert with Unique Index".
fn names_duplicate(query: &CanonicalQuery, error: &Error) -> bool {
    fn collect<'f>(expr: &'f Expr, out: &mut Vec<(&'f str, RawValue<'f>)>) -> bool {
        match expr {
            Expr::And(parts) => parts.iter().all(|part| collect(part, out)),
            Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } } => {
                out.push((path.as_str(), value.as_raw()));
                true
            }
            _ => false,
        }
    }
    let Some(extra) = error.extra().and_then(RawDoc::new) else { return false };
    let Some(RawValue::Document(key)) = extra.get("keyValue") else { return false };
    let collation = query.collation.as_ref();
    if extra.get("collation") != collation.map(|known| RawValue::Document(known.document())) {
        return false;
    }
    let same = |shown: RawValue<'_>, required: RawValue<'_>| match (collation, required) {
        (Some(collation), RawValue::String(text)) => {
            shown == RawValue::String(&collation.key_hex(text))
        }
        _ => compare_values(shown, required).is_eq(),
    };
    let mut conditions = Vec::new();
    collect(query.matcher.root(), &mut conditions)
        && conditions.len() == key.iter().count()
        && conditions
            .iter()
            .all(|(path, required)| key.get(path).is_some_and(|shown| same(shown, *required)))
}

/// Moves `_id` to the front, or generates one.
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

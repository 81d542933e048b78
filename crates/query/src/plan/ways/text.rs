//! Plans for a filter with `$text`: the scan reads the entries of the search terms in the
//! collection's text index, after the values that the filter gives for the prefix fields of the
//! index.
//!
//! If `$text` is one alternative of an `$or`, the plan scans the collection; as in the reference,
//! the other alternatives must still be indexed.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_mql::Matcher;
use mayfly_mql::matcher::{CmpOp, DocumentTest, Expr, Predicate, TextTest};
use mayfly_storage::kinds::text::TextIndex;
use mayfly_storage::{Direction, Index, KeyRange, whole_range};
use mayfly_text::stored_term;
use mayfly_value::{RawValue, SortOrder};

use super::ranking;
use crate::language::CanonicalQuery;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::access::TextAccess;
use crate::plan::types::interval::encoded;
use crate::plan::types::scan::RecordScan;
use crate::plan::types::tree::Plan;
use crate::plan::types::way::Way;

/// Plans a filter with `$text`.
///
/// # Errors
/// 27 IndexNotFound without a text index; 2 BadValue with a hint or a natural order, and for
/// unknown languages; 291 NoQueryExecutionPlans if the index cannot serve the filter.
pub(crate) fn way_by_text(input: &PlanInput<'_>, test: &TextTest) -> Result<Way> {
    let (query, filter) = (input.query, input.query.matcher.root());
    if query.hint.is_some() {
        return Err(Error::bad_value("text and hint not allowed in same query"));
    }
    if query.natural_backward.is_some() {
        return Err(Error::bad_value("text expression not allowed with $natural sort order"));
    }
    let text = |index: &Arc<Index>| {
        let spec = index.spec.kind().get::<TextIndex>()?.spec().clone();
        Some((index.clone(), spec))
    };
    let Some((index, spec)) = input.indexes.iter().find_map(text) else {
        return Err(no_text_index());
    };
    let search = test.bind(&spec)?;
    let unordered = query.sort.is_some();
    if let Some(parts) = alternatives(filter) {
        check_alternatives(input, parts)?;
        let plan = RecordScan::new(vec![whole_range()], Direction::Forward).into();
        return Ok(Way { plan, unordered });
    }
    let mut prefix = Vec::new();
    for path in spec.before() {
        let Some(value) = equal_to(filter, path) else {
            return Err(unservable(
                "failed to use text index to satisfy $text query (if text index is compound, are equality predicates \
                 given for all prefix fields?)",
            ));
        };
        prefix.push(value.to_owned());
    }
    let mut start = Vec::new();
    for (value, field) in prefix.iter().zip(index.spec.fields()) {
        start.extend(encoded(value.as_raw(), field.order, None));
    }
    let range = |term: &String| {
        let term = encoded(RawValue::String(&stored_term(term)), SortOrder::Ascending, None);
        KeyRange::prefix(&[&start[..], &term[..]].concat())
    };
    let terms: Vec<KeyRange> = search.search.terms().iter().map(range).collect();
    if terms.is_empty() {
        return Ok(Plan::Nothing.into());
    }
    let access = TextAccess { index, search, prefix, terms };
    Ok(Way { plan: Plan::Text(Arc::new(access)), unordered })
}

/// The error for a search without a text index: 27 IndexNotFound.
pub(crate) fn no_text_index() -> Error {
    Error::new(ErrorCode::IndexNotFound, "text index required for $text query")
}

/// Checks a query on a collection that does not exist.
///
/// # Errors
/// 27 IndexNotFound for a text search.
pub fn check_absent(query: &CanonicalQuery, ns: &Namespace) -> Result<()> {
    match query.matcher.text() {
        None => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::IndexNotFound,
            format!("text index required for $text query (no such collection '{ns}')"),
        )),
    }
}

fn unservable(text: &str) -> Error {
    let text = format!("error processing query: planner returned error :: caused by :: {text}");
    Error::new(ErrorCode::NoQueryExecutionPlans, text)
}

/// The value that the top-level conjunction requires at a path.
fn equal_to<'e>(expr: &'e Expr, path: &str) -> Option<RawValue<'e>> {
    match expr {
        Expr::And(parts) => parts.iter().find_map(|part| equal_to(part, path)),
        Expr::Path { path: of, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } } => {
            (of.as_str() == path).then_some(value.as_raw())
        }
        _ => None,
    }
}

/// Checks that each alternative next to `$text` in an `$or` is indexed.
fn check_alternatives(input: &PlanInput<'_>, parts: &[Expr]) -> Result<()> {
    let is_indexed = |part: &Expr| {
        if has_text(part) {
            return true;
        }
        let Ok(matcher) = Matcher::of(part.clone()) else { return false };
        let query =
            CanonicalQuery { matcher: Arc::new(matcher), sort: None, ..input.query.clone() };
        let input = PlanInput::of(input.collection, &query);
        let scans = |plan: &Plan| matches!(plan, Plan::Records(scan) if scan.is_whole());
        !input.satisfiable || !scans(&ranking::ways(&input).best.plan)
    };
    match parts.iter().all(is_indexed) {
        true => Ok(()),
        false => Err(unservable(
            "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be indexed as well.",
        )),
    }
}

/// The alternatives of the `$or` that contains the `$text`.
fn alternatives(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::And(parts) => parts.iter().find_map(alternatives),
        Expr::Or(parts) if parts.iter().any(has_text) => Some(parts),
        _ => None,
    }
}

fn has_text(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().any(has_text),
        Expr::Document(test) => matches!(test, DocumentTest::Text(_)),
        Expr::Nor(_) | Expr::Path { .. } | Expr::Always(_) => false,
    }
}

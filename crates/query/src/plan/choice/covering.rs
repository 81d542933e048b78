//! Covered plans, which read no documents because the index entries contain all requested fields.
//! Manual: "Covered Query".

use std::sync::Arc;

use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_mql::{Matcher, Projection};
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::{Collection, IndexField};
use mayfly_value::paths::array_index;

use crate::language::CanonicalQuery;
use crate::plan::types::scan::IndexScan;

/// Whether the entries of a scan contain all requested fields. If a key may stand for a missing
/// field, execution still reads the document.
pub(crate) fn covers(collection: &Collection, query: &CanonicalQuery, scan: &IndexScan) -> bool {
    let everything = || query.matcher.root().conjuncts().is_empty();
    if !are_readable(scan) || collection.hides_expired() || !(scan.exact || everything()) {
        return false;
    }
    let index = &scan.index;
    let shown = query.needed_paths.clone();
    let shown = shown.or_else(|| query.projection.as_ref().and_then(Projection::needed_paths));
    let fields = index.spec.fields();
    let has = |path: &String| fields.iter().any(|field| has_values(field) && field.path == *path);
    shown.is_some_and(|shown| !shown.is_empty() && shown.iter().all(has)) && are_apart(fields)
}

/// Whether the keys of a scan determine the values of a document.
fn are_readable(scan: &IndexScan) -> bool {
    let spec = &scan.index.spec;
    spec.kind().is_ordered()
        && spec.collation().is_none()
        && scan.multikey == 0
        && scan.fields.is_none()
        && scan.one_per_value.is_none()
}

/// The filter that can be evaluated on the keys of a scan before documents are read: the conjuncts
/// that the bounds do not cover.
pub(crate) fn key_filter(query: &CanonicalQuery, scan: &IndexScan) -> Option<Arc<Matcher>> {
    let fields = scan.index.spec.fields();
    let tested = are_readable(scan) && !scan.exact;
    if !tested || !fields.iter().all(has_values) || !are_apart(fields) {
        return None;
    }
    let has = |path: &String| fields.iter().any(|field| field.path == *path);
    let conjuncts = query.matcher.root().conjuncts().into_iter().enumerate();
    let rest = conjuncts.filter(|(at, conjunct)| {
        // Comparisons are already bounds on the keys. A missing field cannot be recognized in a
        // key.
        let is_range = match conjunct {
            Expr::Path { predicate, .. } => match predicate {
                Predicate::Cmp { .. } | Predicate::In(_) | Predicate::Exists => true,
                Predicate::Not(inner) => matches!(**inner, Predicate::Exists),
                _ => false,
            },
            _ => false,
        };
        let on_keys =
            || conjunct.reads().is_some_and(|it| !it.computed && it.paths.iter().all(has));
        !is_range && !scan.filter_bounds.covered.contains(at) && on_keys()
    });
    let rest: Vec<Expr> = rest.map(|(_, conjunct)| conjunct.clone()).collect();
    if rest.is_empty() { None } else { Matcher::of(Expr::and(rest)).ok().map(Arc::new) }
}

fn has_values(field: &IndexField) -> bool {
    field.kind == FieldKind::Ordered && field.parts.iter().all(|part| array_index(part).is_none())
}

/// Whether no two fields share their first path component.
fn are_apart(fields: &[IndexField]) -> bool {
    let names = fields.iter().map(|field| &field.parts[0]);
    names.clone().enumerate().all(|(at, name)| names.clone().take(at).all(|other| other != name))
}

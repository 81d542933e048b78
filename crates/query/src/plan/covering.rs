//! Plans that read no documents, because the entries of their index have all that is shown. Manual: "Covered Query".

use mayfly_mql::Projection;
use mayfly_storage::kinds::{FieldKind, Kind};
use mayfly_storage::{Collection, IndexField};
use mayfly_value::paths::array_index;

use super::{Access, Plan};
use crate::language::CanonicalQuery;

/// Whether a plan's entries have all that is shown of documents. Where a value may be missing, the document is read all the same.
pub(super) fn covers(collection: &Collection, query: &CanonicalQuery, plan: &Plan) -> bool {
    let Access::Index { index, .. } = &plan.access else { return false };
    let everything = || query.matcher.root().conjuncts().is_empty();
    let readable = matches!(index.spec.kind(), Kind::Ordered)
        && index.spec.collation().is_none()
        && !index.is_multikey()
        && !plan.blocking_sort
        && plan.fields.is_none()
        && plan.one_per_value.is_none()
        && !collection.hides_expired()
        && (plan.exact || everything());
    if !readable {
        return false;
    }
    let shown = query.shows.clone();
    let shown = shown.or_else(|| query.projection.as_ref().and_then(Projection::needed_paths));
    let fields = index.spec.fields();
    let has = |path: &String| fields.iter().any(|field| has_values(field) && field.path == *path);
    shown.is_some_and(|shown| !shown.is_empty() && shown.iter().all(has)) && are_apart(fields)
}

fn has_values(field: &IndexField) -> bool {
    field.kind == FieldKind::Ordered && field.parts.iter().all(|part| array_index(part).is_none())
}

/// Whether no two fields lie in one document.
fn are_apart(fields: &[IndexField]) -> bool {
    let names = fields.iter().map(|field| &field.parts[0]);
    names.clone().enumerate().all(|(at, name)| names.clone().take(at).all(|other| other != name))
}

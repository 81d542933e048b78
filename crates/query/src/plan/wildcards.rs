//! What a wildcard index offers: one path of the filter at a time, by the values there or by being there at all.
//!
//! Its entries say nothing of documents that lack a path, so conditions that hold for a missing field get nothing from it; nor
//! do those on whole documents, which it goes into, and those on positions in arrays, which its paths do not have (manual,
//! "Wildcard Index Restrictions").

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_mql::matcher::Predicate;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::wildcard::Wildcard;
use mayfly_storage::{Index, IndexField};
use mayfly_value::RawValue;
use mayfly_value::paths::array_index;

use super::bounds::{Bounds, FieldBounds};
use super::candidate::Candidate;
use super::interval::{End, Interval};

/// The index for each path that it can bound, and for its ordinary fields in front.
pub(super) fn candidates<'a>(
    index: &'a Arc<Index>,
    wildcard: &Wildcard,
    bounds: &[FieldBounds<'_>],
) -> Vec<Candidate<'a>> {
    let fields = index.spec.fields();
    let Some(at) = fields.iter().position(|field| field.kind == FieldKind::Wildcard) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for known in bounds {
        let parts: Vec<String> = known.path.split('.').map(str::to_owned).collect();
        let by_position = parts.iter().any(|part| array_index(part).is_some());
        let by_value = known.conditions.iter().any(serves);
        if by_position || !wildcard.covers(&parts) || !(by_value || asks_for_being(known)) {
            continue;
        }
        let mut chosen = fields.to_vec();
        chosen[at] = IndexField::new(&known.path, fields[at].descending, FieldKind::Wildcard);
        if !by_value {
            // Nothing behind the path is bounded, and one document may have many values below it.
            chosen.truncate(at + 1);
        }
        found.push(Candidate { repeats: !by_value, ..Candidate::of(index, Cow::Owned(chosen)) });
    }
    // Every document has an entry with its ordinary fields, perhaps many.
    if wildcard.is_compound() && at > 1 {
        let front = fields[..at - 1].to_vec();
        found.push(Candidate { repeats: true, ..Candidate::of(index, Cow::Owned(front)) });
    }
    found
}

/// Whether a condition on values at a path can be bounded.
pub(super) fn serves(condition: &Bounds) -> bool {
    !condition.includes_missing
        && !condition.excludes_null()
        && !condition.documents
        && !condition.is_everything()
        && condition.items.is_empty()
}

fn asks_for_being(known: &FieldBounds<'_>) -> bool {
    known.predicates.iter().any(|predicate| matches!(predicate, Predicate::Exists))
}

/// The entries of one path; those below it too when any value will do.
pub(super) fn path_bounds(path: &str, known: &FieldBounds<'_>) -> Bounds {
    let mut intervals = vec![Interval::point(RawValue::String(path))];
    if !known.conditions.iter().any(serves) {
        // From "a." up to what comes behind every text that begins so: "a/".
        let (first, behind) = (format!("{path}."), format!("{path}/"));
        let low = End::new(RawValue::String(&first), true);
        intervals.push(Interval::new(low, End::new(RawValue::String(&behind), false)));
    }
    Bounds::new(intervals)
}

//! Candidates of a wildcard index: one path of the filter at a time, bounded by its values or by
//! its existence.
//!
//! The index has no entry for a path that a document lacks, so conditions that match a missing
//! field get no bounds. The same holds for conditions on whole documents, which the index does not
//! store, and on array positions, which its paths do not contain (manual, "Wildcard Index
//! Restrictions").

use crate::plan::types::bounds::{Bounds, FieldBounds};
use crate::plan::types::candidate::Candidate;
use crate::plan::types::interval::{End, Interval};
use mayfly_mql::matcher::Predicate;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::wildcard::Wildcard;
use mayfly_storage::{Index, IndexField};
use mayfly_value::RawValue;
use mayfly_value::paths::array_index;
use std::borrow::Cow;
use std::sync::Arc;

/// A candidate for each path that the index can bound, and one for the ordinary fields before the
/// wildcard.
pub(crate) fn candidates<'a>(
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
        let by_value = known.conditions.iter().any(Bounds::fit_wildcard);
        if by_position || !wildcard.covers(&parts) || !(by_value || asks_for_being(known)) {
            continue;
        }
        let mut chosen = fields.to_vec();
        chosen[at] = IndexField::new(&known.path, fields[at].order, FieldKind::Wildcard);
        if !by_value {
            // Fields after the path are unbounded here, and one document may have many values below
            // the path.
            chosen.truncate(at + 1);
        }
        found.push(Candidate { repeats: !by_value, ..Candidate::of(index, Cow::Owned(chosen)) });
    }
    // Every document has at least one entry with the ordinary fields.
    if wildcard.is_compound() && at > 1 {
        let front = fields[..at - 1].to_vec();
        found.push(Candidate { repeats: true, ..Candidate::of(index, Cow::Owned(front)) });
    }
    found
}

fn asks_for_being(known: &FieldBounds<'_>) -> bool {
    known.predicates.iter().any(|predicate| matches!(predicate, Predicate::Exists))
}

/// Bounds on the path field: the path itself, and all paths below it if only existence matters.
pub(crate) fn path_bounds(path: &str, known: &FieldBounds<'_>) -> Bounds {
    let mut intervals = vec![Interval::point(RawValue::String(path))];
    if !known.conditions.iter().any(Bounds::fit_wildcard) {
        // From "a." up to the first string after all that start with it: "a/".
        let (first, end) = (format!("{path}."), format!("{path}/"));
        let low = End::included(RawValue::String(&first));
        intervals.push(Interval::new(low, End::excluded(RawValue::String(&end))));
    }
    Bounds::new(intervals)
}

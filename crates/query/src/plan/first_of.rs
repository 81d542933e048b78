//! One document for each value of a field, for a `$group` that looks at no other: an index that begins with the field shows the
//! documents of one value together, so that all but the first are passed over. Manual: "Aggregation Pipeline Optimization",
//! "$group Optimizations"; "$group", "Optimize to Return the First or Last Document of Each Group".

use std::sync::Arc;

use mayfly_mql::matcher::Expr;
use mayfly_storage::{Collection, Direction, Index, whole_range};
use mayfly_value::paths::array_index;
use mayfly_value::same_collation;

use super::allowed::allows;
use super::{Access, Plan};
use crate::language::{CanonicalQuery, FirstOf};

/// How entries are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnePerValue {
    /// Keys say everything: documents are read only where a key may stand for a missing field.
    pub covered: bool,
}

/// The plan, changed where it can do with one document for each value.
pub(super) fn with_first_of(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    mut plan: Plan,
) -> Plan {
    let Some(wanted) = &query.first_of else { return plan };
    if query.hint.is_some() || wanted.path.split('.').any(|part| array_index(part).is_some()) {
        return plan;
    }
    let everything = matches!(query.matcher.root(), Expr::And(parts) if parts.is_empty());
    let readable = |index: &Index| {
        !wanted.whole && index.spec.collation().is_none() && !collection.hides_expired()
    };
    if let Access::Index { index, ranges, direction } = &mut plan.access {
        let in_order = match &query.sort {
            None => !wanted.whole,
            Some(sort) => sort.fields().iter().map(|field| field.path.as_str()).eq(index
                .spec
                .fields()
                .iter()
                .map(|field| field.path.as_str())),
        };
        let alone = !plan.blocking_sort && !plan.repeats && plan.fields.is_none();
        if in_order && alone && serves(index, wanted, query) {
            if wanted.last {
                ranges.reverse();
                *direction = match direction {
                    Direction::Forward => Direction::Backward,
                    Direction::Backward => Direction::Forward,
                };
            }
            let covered = readable(index) && (plan.exact || everything);
            plan.one_per_value = Some(OnePerValue { covered });
        }
        return plan;
    }
    if !everything || query.sort.is_some() || !matches!(plan.access, Access::Records { .. }) {
        return plan;
    }
    let complete = |index: &Arc<Index>| {
        let all = !index.spec.sparse() && !index.is_partial();
        all && allows(query, index) && readable(index) && serves(index, wanted, query)
    };
    match collection.plannable_indexes().into_iter().find(complete) {
        None => plan,
        Some(index) => {
            let (ranges, direction) = (vec![whole_range()], Direction::Forward);
            let access = Access::Index { index, ranges, direction };
            let one_per_value = Some(OnePerValue { covered: true });
            Plan { one_per_value, ..Plan::new(access, false) }
        }
    }
}

/// Whether documents with the same value of the field stand together in it.
fn serves(index: &Index, wanted: &FirstOf, query: &CanonicalQuery) -> bool {
    let spec = &index.spec;
    spec.kind().is_ordered()
        && !spec.hidden()
        && !index.is_multikey()
        && same_collation(spec.collation(), query.collation.as_ref())
        && spec.fields().first().is_some_and(|field| field.path == wanted.path)
}

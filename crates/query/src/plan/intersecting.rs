//! Intersects the records of two indexes, for a filter that no single index bounds completely. Such
//! a way takes part in trials only if the parameter `internalQueryPlannerEnableHashIntersection` is
//! set. Manual: "Index Intersection".

use std::sync::Arc;

use super::{IndexScan, Plan, Way};
use crate::language::CanonicalQuery;

/// Combines the best way with the first other way that covers a conjunct which the best does not.
pub(super) fn way<'w>(
    query: &CanonicalQuery,
    mut ways: impl Iterator<Item = &'w Way>,
) -> Option<Way> {
    let scan = |way: &'w Way| match &way.plan {
        Plan::Index(scan) if scan.is_bounded() && !scan.filter_bounds.covered.is_empty() => {
            Some(scan)
        }
        _ => None,
    };
    let first = scan(ways.next()?)?;
    let adds = |other: &&Arc<IndexScan>| {
        let known = &first.filter_bounds.covered;
        other.index.id() != first.index.id()
            && other.filter_bounds.covered.iter().any(|conjunct| !known.contains(conjunct))
    };
    let second = ways.filter_map(scan).find(adds)?;
    let inputs = [first, second].map(|scan| Plan::Index(scan.clone()));
    Some(Way::new(Plan::And(inputs.into()), query.sort.is_some()))
}

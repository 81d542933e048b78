//! Records that two indexes name, for a filter whose conditions no single index bounds all. Such a way is tried where the parameter
//! `internalQueryPlannerEnableHashIntersection` says so. Manual: "Index Intersection".

use std::sync::Arc;

use super::{IndexScan, Plan, Way};
use crate::language::CanonicalQuery;

/// A way by the best of these and another one that knows what the best does not.
pub(super) fn way<'w>(
    query: &CanonicalQuery,
    mut ways: impl Iterator<Item = &'w Way>,
) -> Option<Way> {
    let scan = |way: &'w Way| match &way.plan {
        Plan::Index(scan) if scan.is_bounded() && !scan.said.covered.is_empty() => Some(scan),
        _ => None,
    };
    let first = scan(ways.next()?)?;
    let adds = |other: &&Arc<IndexScan>| {
        let known = &first.said.covered;
        other.index.id() != first.index.id()
            && other.said.covered.iter().any(|conjunct| !known.contains(conjunct))
    };
    let second = ways.filter_map(scan).find(adds)?;
    let inputs = [first, second].map(|scan| Plan::Index(scan.clone()));
    Some(Way::new(Plan::And(inputs.into()), query.sort.is_some()))
}

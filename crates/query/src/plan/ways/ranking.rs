//! Ranks the ways of a query: first by the number of bounded fields, then by whether an index gives
//! the requested order.
//!
//! If the parameter `internalQueryPlannerEnableHashIntersection` is set, the intersection of two
//! indexes takes part in trials as well. Manual: "Index Intersection".

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::index::{Score, ways_over};
use super::records::{by_id, collection_scan};
use crate::language::CanonicalQuery;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::candidate::Candidate;
use crate::plan::types::scan::IndexScan;
use crate::plan::types::settings::PlannerSettings;
use crate::plan::types::tree::Plan;
use crate::plan::types::way::{Way, Ways};

/// The ways for a query without an equality on `_id`.
pub(crate) fn ways(input: &PlanInput<'_>) -> Ways {
    let (collection, query) = (input.collection, input.query);
    let complete = |candidate: &Candidate<'_>| candidate.has_all_of_paths(&input.bounds);
    let each = input.indexes.iter().flat_map(|index| ways_over(input, index, complete));
    let useful =
        |(score, _): &(Score, Way)| score.bounded() || (score.ordered && query.sort.is_some());
    let mut found: Vec<(Score, Way)> = each.filter(useful).collect();
    // The sort is stable: of equal scores the first index of the catalog stays first.
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    let by_id = by_id(input);
    let Some((score, _)) = found.first() else {
        return by_id.unwrap_or_else(|| collection_scan(collection, query)).into();
    };
    // A range of `_id` beats an index that only gives the order. For a time series it also beats a
    // range of an index: buckets of one time span are adjacent, while those of an index are read
    // one by one.
    let loses = score.points == 0 && collection.time_series().is_some()
        || !score.bounded()
        || *score < Score { ranged: true, ..Score::default() };
    if let Some(by_id) = by_id.filter(|_| loses) {
        return by_id.into();
    }
    // Trials are pointless for at most one document, and unsuited to buckets, each of which holds
    // many measurements.
    let settled = score.finds_one || collection.time_series().is_some();
    let settings = PlannerSettings::of(collection);
    let intersects = settings.hash_intersection.load(Relaxed) && !settled;
    let both = || intersection(query, found.iter().map(|(_, way)| way));
    let both = if intersects { both() } else { None };
    let most = PlannerSettings::count(&settings.plans).saturating_sub(1);
    let most = if settled { 0 } else { usize::try_from(most).unwrap_or(usize::MAX) };
    let mut ways = found.into_iter().map(|(_, way)| way);
    let best = ways.next().unwrap_or_else(|| collection_scan(collection, query));
    Ways { best, others: both.into_iter().chain(ways).take(most).collect(), alternatives: None }
}

/// Combines the best way with the first other way that covers a conjunct which the best does not.
fn intersection<'w>(
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
    Some(Way { plan: Plan::And(inputs.into()), unordered: query.sort.is_some() })
}

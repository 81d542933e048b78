//! Chooses the plan of a query: ways by hint, by rule or by alternatives of an `$or`, the plan
//! cache, and the nodes above the way.

mod alternatives;
mod build;
mod covering;
mod first_of;
mod no_scan;

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Collection, Direction, IdKey, whole_range};
use mayfly_work::PlanTimer;

use alternatives::ways_by_alternatives;
use first_of::or_one_per_value;

use crate::language::shape::PlanShape;
use crate::language::{AllowedBy, CanonicalQuery};
use crate::plan::candidates::input::PlanInput;
use crate::plan::candidates::restriction::{allows_id, required_id, restricted};
use crate::plan::types::cache::{Choice, PlanCache};
use crate::plan::types::plan_key::PlanKey;
use crate::plan::types::scan::RecordScan;
use crate::plan::types::tree::Plan;
use crate::plan::types::way::{Alternatives, Way, Ways};
use crate::plan::ways::hinted::way_by_hint;
use crate::plan::ways::near::way_by_distance;
use crate::plan::ways::ranking;
use crate::plan::ways::records::collection_scan;
use crate::plan::ways::text::way_by_text;

/// Plans among which a trial has to choose.
pub(crate) enum Candidates {
    /// Plans for the whole query.
    Whole(Ranked),
    /// The query, and the alternatives of its `$or`; each alternative is tried on its own.
    Alternatives(CanonicalQuery, Box<Alternatives>),
}

/// Plans for a query, the best by rule first.
pub(crate) struct Ranked {
    pub(crate) key: PlanKey,
    pub(crate) shape: PlanShape,
    query: CanonicalQuery,
    ways: Vec<Way>,
}

impl Ranked {
    /// Combines the ways of a query. The first query is the client's, the second is the restricted
    /// one that was planned.
    pub(crate) fn new(
        collection: &Collection,
        (asked, planned): (&CanonicalQuery, CanonicalQuery),
        ways: Vec<Way>,
    ) -> Ranked {
        let shape = PlanShape::of(asked);
        let key = PlanKey::of(shape, asked, Some(collection));
        Ranked { key, shape, query: planned, ways }
    }

    /// Builds the plan over each way.
    pub(crate) fn plans(&self, collection: &Collection) -> impl Iterator<Item = Plan> {
        self.ways.iter().map(|way| build::built(collection, &self.query, way.clone()))
    }

    /// The way at an index.
    pub(crate) fn way(&self, at: usize) -> Option<Way> {
        self.ways.get(at).cloned()
    }

    /// The index of the cached way, and the works of its trial.
    pub(crate) fn cached(&self, collection: &Collection) -> Option<(usize, u64)> {
        let (choice, works) = PlanCache::active(collection, self.key)?;
        let at = self.ways.iter().position(|way| Choice::of(&way.plan) == choice)?;
        Some((at, works))
    }
}

/// The plan over a way.
pub(crate) fn over(collection: &Collection, query: &CanonicalQuery, way: Way) -> Plan {
    build::built(collection, query, way)
}

/// The plan for a query, and the candidates for a trial if there are several.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) candidates: Option<Candidates>,
    /// The works of the trial, if the plan comes from the cache.
    pub(crate) cached: Option<u64>,
}

/// Chooses the plan that is best by rule.
///
/// # Errors
/// 2 BadValue for a hint that matches no index, and the errors of text searches.
pub fn plan(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Plan> {
    let (query, ways) = allowed_ways(collection, query)?;
    checked(collection, &query, ways.best)
}

/// Builds the plan over a way, and checks that it may run.
fn checked(collection: &Collection, query: &CanonicalQuery, way: Way) -> Result<Plan> {
    let plan = build::built(collection, query, way);
    no_scan::check(collection, query, &plan)?;
    Ok(plan)
}

/// Returns all candidate plans of a query, the best by rule first.
///
/// # Errors
/// Errors of [`plan`].
pub fn plans(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Vec<Plan>> {
    let (query, ways) = allowed_ways(collection, query)?;
    let mixed = ways.alternatives.iter().flat_map(|several| several.ways().skip(1));
    let all = std::iter::once(ways.best).chain(mixed).chain(ways.others);
    all.map(|way| checked(collection, &query, way)).collect()
}

/// Plans a query: by the plan cache if it has an active entry, otherwise by rule, with candidates
/// for a trial.
///
/// # Errors
/// Errors of [`plan`].
pub(crate) fn planned(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Planned> {
    let _timer = PlanTimer::begin();
    let (planned, ways) = allowed_ways(collection, query)?;
    if let Some(several) = ways.alternatives {
        let plan = checked(collection, &planned, ways.best)?;
        let candidates = Some(Candidates::Alternatives(planned.into_owned(), several));
        return Ok(Planned { plan, candidates, cached: None });
    }
    if ways.others.is_empty() {
        let plan = checked(collection, &planned, ways.best)?;
        return Ok(Planned { plan, candidates: None, cached: None });
    }
    let all = std::iter::once(ways.best).chain(ways.others).collect();
    let ranked = Ranked::new(collection, (query, planned.into_owned()), all);
    let found = ranked.cached(collection);
    let (at, cached) = found.map_or((0, None), |(at, works)| (at, Some(works)));
    let plan = checked(collection, &ranked.query, ranked.ways[at].clone())?;
    Ok(Planned { plan, candidates: Some(Candidates::Whole(ranked)), cached })
}

/// A plan that scans all records in their order.
pub(crate) fn plan_in_order(collection: &Collection, query: &CanonicalQuery) -> Plan {
    let scan = RecordScan::new(vec![whole_range()], Direction::Forward);
    build::built(collection, query, Plan::from(scan).into())
}

/// Plans a query and returns the query as it was planned: with its index restriction, and without a
/// hint that the restriction overrides. Query settings that no plan can satisfy are dropped; an
/// index filter is not.
///
/// # Errors
/// Errors of planning.
fn allowed_ways<'q>(
    collection: &Arc<Collection>,
    query: &'q CanonicalQuery,
) -> Result<(Cow<'q, CanonicalQuery>, Ways)> {
    let restricted = restricted(collection, query);
    let ways = ways_of(collection, &restricted);
    let Some(allowed) = &restricted.allowed else { return Ok((restricted, ways?)) };
    let served = match &ways {
        Ok(ways) => {
            allowed.scans() || !matches!(&ways.best.plan, Plan::Records(scan) if scan.is_whole())
        }
        Err(_) => false,
    };
    if served || allowed.by() == AllowedBy::IndexFilter {
        return Ok((restricted, ways?));
    }
    let query = CanonicalQuery { allowed: None, ..query.clone() };
    let ways = ways_of(collection, &query)?;
    Ok((Cow::Owned(query), ways))
}

/// The key of the `_id` that a query requires, if its plan is a read by `_id`.
pub fn single_id(collection: &Collection, query: &CanonicalQuery) -> Option<IdKey> {
    point(collection, &restricted(collection, query))
}

/// [`single_id`] of a query with its index restriction: an equality on `_id`, the most frequent
/// query, needs no bounds.
fn point(collection: &Collection, query: &CanonicalQuery) -> Option<IdKey> {
    if query.matcher.text().is_some() || query.hint.is_some() || query.matcher.seeks_by_distance() {
        return None;
    }
    let id = required_id(collection, query)?;
    allows_id(collection, query).then(|| collection.id_key(id))
}

/// The ways for a query with its index restriction.
fn ways_of(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Ways> {
    if let Some(id_key) = point(collection, query) {
        return Ok(Way::from(Plan::Id(id_key)).into());
    }
    let search = query.matcher.text();
    let input = &PlanInput::of(collection, query);
    if let Some(search) = search {
        return way_by_text(input, search).map(Ways::from);
    }
    if !input.satisfiable {
        return Ok(Way::from(Plan::Nothing).into());
    }
    if let Some(near) = input.near {
        return way_by_distance(input, near).map(Ways::from);
    }
    if let Some(hint) = &query.hint {
        return Ok(or_one_per_value(input, way_by_hint(input, hint)?.into()));
    }
    // A sort by $natural requires a collection scan.
    if query.natural_backward.is_some() {
        return Ok(collection_scan(collection, query).into());
    }
    let ways = ranking::ways(input);
    // With a limit, a scan in the requested order may end early.
    let ends = query.limit.is_some() && query.sort.is_some() && !ways.best.unordered;
    if !(ends || ways.best.plan.is_bounded())
        && let Some(ways) = ways_by_alternatives(collection, query)
    {
        return Ok(ways);
    }
    Ok(or_one_per_value(input, ways))
}

//! The planner: turns a canonical query into a read-only plan. It decides which keys to scan, in
//! which direction, and whether to sort. README.md in this folder describes the steps.
//!
//! The executor evaluates the whole filter again on every document that a plan reads, so bounds may
//! be wider than the filter but never narrower.

pub(crate) mod allowed;
mod alternatives;
mod between;
mod bounds;
mod build;
mod cache;
mod candidate;
mod choose;
mod conditions;
mod covering;
mod first_of;
mod geo;
mod hashed;
mod implication;
mod intersecting;
mod interval;
mod merging;
mod near;
mod no_scan;
pub(crate) mod plan_key;
#[cfg(test)]
mod plan_key_tests;
mod settings;
mod text;
mod tree;
mod wildcards;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, Direction, Index, KeyRange, whole_range};

use crate::language::shape::PlanShape;
use crate::language::{CanonicalQuery, Hint};
pub(crate) use alternatives::Alternatives;
use bounds::{FieldBounds, conjuncts, field_bounds};
pub use cache::forget_plans;
pub(crate) use cache::{CachedPlan, Choice, PlanCache};
pub use choose::is_clustered;
pub(crate) use choose::{extend, filter_bounds_of_point};
pub use first_of::OnePerValue;
pub(crate) use geo::{key_range, of_cells, of_squares};
pub(crate) use interval::texts;
pub(crate) use merging::SortKeys;
pub use near::NearAccess;
use plan_key::PlanKey;
pub use settings::{AtomicF64, PlannerSettings};
pub(crate) use text::no_text_index;
pub use text::{TextAccess, check_absent};
pub use tree::{EntryCheck, IndexScan, Plan, RecordScan};
pub(crate) use tree::{FilterBounds, UsedIndex, is_whole};

/// A way: the lower part of a plan, which reaches records or documents. `unordered` is set if they
/// do not arrive in the requested order.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) plan: Plan,
    pub(crate) unordered: bool,
}

impl Way {
    fn new(plan: Plan, unordered: bool) -> Way {
        Way { plan, unordered }
    }

    fn over_index(scan: IndexScan, unordered: bool) -> Way {
        Way::new(Plan::Index(Arc::new(scan)), unordered)
    }

    fn over_records(ranges: Vec<KeyRange>, direction: Direction, unordered: bool) -> Way {
        let filter_bounds = FilterBounds::default();
        let scan = RecordScan { ranges, direction, filter_bounds, by_id: false, clustered: false };
        Way::new(Plan::Records(Arc::new(scan)), unordered)
    }
}

/// The ways for a query, the best by rule first.
pub(crate) struct Ways {
    best: Way,
    /// Ways over other indexes, which a trial compares with the best.
    others: Vec<Way>,
    /// The parts of `best`, for an `$or` with several ways for some alternative.
    alternatives: Option<Box<Alternatives>>,
}

impl From<Way> for Ways {
    fn from(best: Way) -> Ways {
        Ways { best, others: Vec::new(), alternatives: None }
    }
}

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
    let (query, ways) = allowed::planned(collection, query)?;
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
    let (query, ways) = allowed::planned(collection, query)?;
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
    let (planned, ways) = allowed::planned(collection, query)?;
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
    build::built(
        collection,
        query,
        Way::over_records(vec![whole_range()], Direction::Forward, false),
    )
}

fn chosen(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Ways> {
    if let Some(search) = query.matcher.text() {
        return text::plan(collection, query, search).map(Ways::from);
    }
    let by_distance = query.matcher.seeks_by_distance();
    // An equality on `_id`, the most frequent query, needs no bounds.
    if let (None, false, Some(way)) =
        (&query.hint, by_distance, choose::point_by_id(collection, query))
        && allowed::allows_id(collection, query)
    {
        return Ok(way.into());
    }
    let mut predicates = Vec::new();
    if !conjuncts(query.matcher.root(), &mut predicates) {
        return Ok(Way::new(Plan::Nothing, false).into());
    }
    if let Some((path, near)) = near::sought(&predicates) {
        let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
        return near::plan(collection, query, path, near, &bounds).map(Ways::from);
    }
    // A sort by $natural requires a collection scan.
    if let (None, Some(_)) = (&query.hint, query.natural_backward) {
        return Ok(choose::collection_scan(collection, query).into());
    }
    let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
    if let Some(hint) = &query.hint {
        return hinted(collection, query, hint, &bounds)
            .map(|way| with_one_per_value(collection, query, way.into()));
    }
    let ways = choose::ways(collection, query, &bounds);
    // With a limit, a scan in the requested order may end early.
    let ends = query.limit.is_some() && query.sort.is_some() && !ways.best.unordered;
    if !(ends || ways.best.plan.is_bounded())
        && let Some(ways) = alternatives::ways(collection, query)
    {
        return Ok(ways);
    }
    Ok(with_one_per_value(collection, query, ways))
}

/// Replaces the ways by a scan with one document for each value, if the query allows that and an
/// index supports it.
fn with_one_per_value(collection: &Arc<Collection>, query: &CanonicalQuery, ways: Ways) -> Ways {
    let one = query.first_of.as_ref().map(|it| first_of::way(collection, query, it, &ways));
    one.flatten().map_or(ways, Ways::from)
}

fn hinted(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    hint: &Hint,
    bounds: &[FieldBounds<'_>],
) -> Result<Way> {
    if let Hint::Between { index, min, max } = hint {
        let way = hinted(collection, query, index, bounds)?;
        return between::narrowed(collection, way, query, min.as_ref(), max.as_ref());
    }
    let same = |index: &Index| match hint {
        Hint::Name(name) => index.spec.name() == name,
        Hint::Key(key) => mayfly_value::compare_docs(index.spec.key(), key.as_doc()).is_eq(),
        Hint::Natural { .. } | Hint::Between { .. } => false,
    };
    let wants_id = match hint {
        Hint::Name(name) => name == "_id_",
        Hint::Key(key) => {
            let mut fields = key.as_doc().iter();
            fields.next().is_some_and(|field| field.name() == "_id") && fields.next().is_none()
        }
        Hint::Natural { backward } => {
            let direction = if *backward { Direction::Backward } else { Direction::Forward };
            return Ok(Way::over_records(vec![whole_range()], direction, query.sort.is_some()));
        }
        Hint::Between { .. } => false,
    };
    // A collection that is not clustered by `_id` has an ordinary index on it.
    if wants_id && collection.id_index().is_none() {
        return Ok(choose::forced_by_id(collection, query, bounds));
    }
    // A hidden index serves no query, not even one with a hint for it.
    let usable = |index: &Arc<Index>| !index.spec.hidden() && same(index);
    match collection.plannable_indexes(query.indexes).into_iter().find(usable) {
        Some(index) => match candidate::candidates(&index, bounds).first() {
            Some(candidate) => Ok(choose::with_candidate(collection, query, candidate, bounds).1),
            None => Err(Error::new(
                ErrorCode::NoQueryExecutionPlans,
                "error processing query: No query solutions: the hinted index cannot serve this query",
            )),
        },
        None => Err(Error::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an \
             existing index",
        )),
    }
}

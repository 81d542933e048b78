//! From a canonical query to a read-only plan: which keys to look at, in which direction, and whether to sort.
//!
//! The whole filter is evaluated again on every document that a plan reaches, so bounds may be wider than the filter but never
//! narrower.

pub(crate) mod allowed;
mod alternatives;
mod between;
mod bounds;
mod build;
mod choose;
mod covering;
mod first_of;
mod hashed;
mod implication;
mod interval;
mod merging;
mod near;
mod no_scan;
mod places;
pub(crate) mod plan_key;
mod text;
mod tree;
mod wildcards;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, Direction, Index, KeyRange, whole_range};

use crate::language::{CanonicalQuery, Hint};
use bounds::{FieldBounds, conjuncts, field_bounds};
pub(crate) use choose::{extend, said_of_point};
pub use first_of::OnePerValue;
use first_of::with_first_of;
pub(crate) use interval::texts;
pub(crate) use merging::SortKeys;
pub use near::NearAccess;
pub(crate) use places::{key_range, of_cells, of_squares};
pub use text::{TextAccess, check_absent};
pub use tree::{EntryCheck, IndexScan, Plan, RecordScan};
pub(crate) use tree::{Said, is_whole};

/// A way to records or documents, and whether they come in another order than the wanted one.
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
        let scan = RecordScan { ranges, direction, said: Said::default(), by_id: false };
        Way::new(Plan::Records(Arc::new(scan)), unordered)
    }
}

/// Chooses the plan.
///
/// # Errors
/// 2 BadValue for a hint that fits no index, those of text searches.
pub fn plan(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Plan> {
    let (query, way) = allowed::planned(collection, query)?;
    let plan = build::built(collection, &query, way);
    no_scan::check(collection, &query, &plan)?;
    Ok(plan)
}

/// The plan that looks at every record in the order of the records.
pub(crate) fn plan_in_order(collection: &Collection, query: &CanonicalQuery) -> Plan {
    build::built(
        collection,
        query,
        Way::over_records(vec![whole_range()], Direction::Forward, false),
    )
}

fn chosen(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Way> {
    if let Some(search) = query.matcher.text() {
        return text::plan(collection, query, search);
    }
    let mut predicates = Vec::new();
    if !conjuncts(query.matcher.root(), &mut predicates) {
        return Ok(Way::new(Plan::Nothing, false));
    }
    if let Some((path, near)) = near::sought(&predicates) {
        let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
        return near::plan(collection, query, path, near, &bounds);
    }
    // The most frequent query of all needs no bounds.
    if let (None, Some(way)) = (&query.hint, choose::point_by_id(collection, query))
        && allowed::allows_id(collection, query)
    {
        return Ok(way);
    }
    // An order by $natural asks for a collection scan.
    if let (None, Some(_)) = (&query.hint, query.natural_backward) {
        return Ok(choose::collection_scan(collection, query));
    }
    let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
    match &query.hint {
        Some(hint) => hinted(collection, query, hint, &bounds),
        None => {
            let best = choose::best(collection, query, &bounds);
            // A scan in the wanted order may end soon.
            let ends = query.limit.is_some() && query.sort.is_some() && !best.unordered;
            let other = match ends || best.plan.is_bounded() {
                true => None,
                false => alternatives::way(collection, query),
            };
            Ok(other.unwrap_or_else(|| with_first_of(collection, query, best)))
        }
    }
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
    // Where records are not in its order it is an index like others.
    if wants_id && collection.id_index().is_none() {
        return Ok(choose::by_id(collection, query, bounds, "_id", true)
            .unwrap_or_else(|| choose::collection_scan(collection, query)));
    }
    // A hidden index supports no query, not even one that asks for it.
    let usable = |index: &Arc<Index>| !index.spec.hidden() && same(index);
    match collection.plannable_indexes().into_iter().find(usable) {
        Some(index) => match choose::candidates(&index, bounds).first() {
            Some(candidate) => Ok(choose::with_candidate(query, candidate, bounds).1),
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

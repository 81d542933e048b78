//! From a canonical query to a read-only plan: which keys to look at, in which direction, and whether to sort.
//!
//! The whole filter is evaluated again on every document that a plan reaches, so bounds may be wider than the filter but never
//! narrower.

mod alternatives;
mod between;
mod bounds;
mod choose;
mod covering;
mod first_of;
mod hashed;
mod implication;
mod interval;
mod near;
mod no_scan;
mod places;
mod text;
mod wildcards;

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::Matcher;
use mayfly_storage::{Collection, Direction, IdKey, Index, IndexField, KeyRange, whole_range};
use mayfly_value::shell::Shell;

use crate::language::{CanonicalQuery, Hint};
pub use alternatives::Alternative;
use bounds::{FieldBounds, conjuncts, field_bounds};
pub(crate) use choose::{extend, said_of_point};
pub use first_of::OnePerValue;
use first_of::with_first_of;
pub(crate) use interval::{Interval, texts};
pub use near::NearAccess;
pub(crate) use places::{key_range, of_cells, of_squares};
pub use text::{TextAccess, check_absent};

/// How documents are reached.
#[derive(Clone)]
pub enum Access {
    /// The filter cannot hold for any document.
    Nothing,
    /// One record by its `_id`.
    Id(IdKey),
    /// Records in their order: by insertion, by `_id` where they are clustered by it, by their start in a collection of buckets.
    Records {
        /// In the order of the scan.
        ranges: Vec<KeyRange>,
        /// Direction of the scan.
        direction: Direction,
    },
    /// Entries of the text index, under the terms of a search.
    Text(Box<TextAccess>),
    /// Entries of an index.
    Index {
        /// Which.
        index: Arc<Index>,
        /// In the order of the scan.
        ranges: Vec<KeyRange>,
        /// Direction of the scan.
        direction: Direction,
    },
    /// Entries of an index of places, the nearest first.
    Near(Box<NearAccess>),
    /// One way for each alternative of a `$or`; a record is shown once.
    Alternatives(Vec<Alternative>),
}

/// A plan.
#[derive(Clone)]
pub struct Plan {
    /// How documents are reached.
    pub access: Access,
    /// Whether results must be collected and sorted.
    pub blocking_sort: bool,
    /// Whether the bounds of the index say all that the filter says, as long as no document has two keys in it.
    pub exact: bool,
    /// Whether an index is asked for single values only: few documents, as a rule.
    pub narrow: bool,
    /// Whether the index may show one document several times, though none of its values is an array.
    pub repeats: bool,
    /// Whether entries are passed over whose first value was shown already.
    pub one_per_value: Option<OnePerValue>,
    /// The fields of the index's entries where they are not those of its definition: a wildcard stands for one path.
    pub fields: Option<Vec<IndexField>>,
    /// Where the values of further fields lie: an entry for which one does not is passed over.
    pub checks: Vec<EntryCheck>,
    /// What the bounds say of the filter.
    pub(crate) said: Said,
    /// Whether the entries of its index have all that is shown.
    pub(crate) covering: bool,
    /// What is tested on the keys of its index before documents are read.
    pub(crate) key_filter: Option<Arc<Matcher>>,
}

/// What the bounds of a plan say of the filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// What bounds each field of the index; nothing for all values.
    pub(crate) intervals: Vec<Option<Vec<Interval>>>,
    /// The outermost conditions that the bounds say all of.
    pub(crate) covered: Vec<usize>,
}

/// Where a field of an index's entries must lie that the ranges do not bound.
#[derive(Clone)]
pub struct EntryCheck {
    /// Its place among the fields.
    pub at: usize,
    /// Ascending and disjoint, as ordered keys in the field's direction.
    pub ranges: Vec<KeyRange>,
}

impl Plan {
    fn new(access: Access, blocking_sort: bool) -> Plan {
        let (exact, narrow, repeats) = (false, false, false);
        let one_per_value = None;
        Plan {
            access,
            blocking_sort,
            exact,
            narrow,
            repeats,
            one_per_value,
            fields: None,
            checks: Vec::new(),
            said: Said::default(),
            covering: false,
            key_filter: None,
        }
    }
}

impl Plan {
    /// As `planSummary` shows it.
    pub fn summary(&self) -> Cow<'static, str> {
        match &self.access {
            Access::Nothing => Cow::Borrowed("EOF"),
            Access::Id(_) => Cow::Borrowed("IDHACK"),
            Access::Records { ranges, .. } if ranges.len() == 1 && ranges[0] == whole_range() => {
                Cow::Borrowed("COLLSCAN")
            }
            Access::Records { .. } => Cow::Borrowed("IXSCAN { _id: 1 }"),
            Access::Text(text) => Cow::Owned(format!("IXSCAN {}", Shell(text.index.spec.key()))),
            Access::Index { index, .. } => {
                let stage = if self.one_per_value.is_some() { "DISTINCT_SCAN" } else { "IXSCAN" };
                Cow::Owned(format!("{stage} {}", Shell(index.spec.key())))
            }
            Access::Near(near) => {
                Cow::Owned(format!("{} {}", near.stage(), Shell(near.index.spec.key())))
            }
            Access::Alternatives(all) => {
                let all = all.iter().map(|one| one.plan.summary().into_owned());
                Cow::Owned(all.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Chooses the plan.
///
/// # Errors
/// 2 BadValue for a hint that fits no index, those of text searches.
pub fn plan(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Plan> {
    let mut plan = chosen(collection, query)?;
    no_scan::check(collection, query, &plan)?;
    plan.covering = covering::covers(collection, query, &plan);
    plan.key_filter = covering::key_filter(query, &plan);
    Ok(plan)
}

fn chosen(collection: &Arc<Collection>, query: &CanonicalQuery) -> Result<Plan> {
    if let Some(search) = query.matcher.text() {
        return text::plan(collection, query, search);
    }
    let mut predicates = Vec::new();
    if !conjuncts(query.matcher.root(), &mut predicates) {
        return Ok(Plan::new(Access::Nothing, false));
    }
    if let Some((path, near)) = near::sought(&predicates) {
        let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
        return near::plan(collection, query, path, near, &bounds);
    }
    // The most frequent query of all needs no bounds.
    if let (None, Some(plan)) = (&query.hint, choose::point_by_id(collection, query)) {
        return Ok(plan);
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
            let ends = query.limit.is_some() && query.sort.is_some() && !best.blocking_sort;
            let other = match ends || alternatives::is_bounded(&best) {
                true => None,
                false => alternatives::plan(collection, query),
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
) -> Result<Plan> {
    if let Hint::Between { index, min, max } = hint {
        let plan = hinted(collection, query, index, bounds)?;
        return between::narrowed(collection, plan, query, min.as_ref(), max.as_ref());
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
            let access = Access::Records { ranges: vec![whole_range()], direction };
            return Ok(Plan::new(access, query.sort.is_some()));
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

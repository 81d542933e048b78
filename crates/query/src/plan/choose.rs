//! Ranks the candidate indexes for a query: first by the number of bounded fields, then by whether
//! the index gives the requested order.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_storage::kinds::FieldKind;
use mayfly_storage::{Collection, Direction, KeyRange, whole_range};
use mayfly_value::{Collation, RawValue, SortOrder, same_collation};

use super::allowed::{allows, allows_id};
use super::bounds::{Bounds, FieldBounds};
use super::candidate::{Candidate, CollationMatch, candidates, has_all_of};
use super::interval::{Interval, ranges};
use super::{
    EntryCheck, FilterBounds, IndexScan, Plan, PlannerSettings, RecordScan, Way, Ways,
    intersecting, merging,
};
use crate::language::CanonicalQuery;
use mayfly_mql::Matcher;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};

/// Limit on the key ranges of one plan.
const MAX_RANGES: usize = 4096;

/// Rank of an index for a query. Fields are compared in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Score {
    /// Whether the scan finds at most one document.
    finds_one: bool,
    /// Number of fields bounded to single values.
    points: usize,
    /// Whether one more field is bounded to a range.
    ranged: bool,
    /// Whether the scan makes a sort unnecessary.
    ordered: bool,
    /// Whether the index is on these fields themselves, and not a wildcard index.
    own: bool,
}

impl Score {
    fn bounded(self) -> bool {
        self.points > 0 || self.ranged
    }
}

/// The best way by rule for a query without an equality on `_id`.
pub(super) fn best(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> Way {
    ways(collection, query, bounds).best
}

/// The ways for a query without an equality on `_id`.
pub(super) fn ways(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> Ways {
    let mut found: Vec<(Score, Way)> = Vec::new();
    for index in collection.plannable_indexes(query.indexes) {
        if index.spec.hidden() || !allows(query, &index) || !has_all_of(&index, query) {
            continue;
        }
        for candidate in candidates(&index, bounds) {
            if !candidate.has_all_of_paths(bounds) {
                continue;
            }
            let (score, way) = with_candidate(collection, query, &candidate, bounds);
            if score.bounded() || (score.ordered && query.sort.is_some()) {
                found.push((score, way));
            }
        }
    }
    // The sort is stable: of equal scores the first index of the catalog stays first.
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    let clustered = collection.clustered_by().filter(|_| allows_id(collection, query));
    let by_id = clustered.and_then(|path| by_id(collection, query, bounds, &path));
    match (found.first(), by_id) {
        // A range of `_id` beats an index that only gives the order. For a time series it also
        // beats a range of an index: buckets of one time span are adjacent, while those of an index
        // are read one by one.
        (Some((score, _)), Some(by_id))
            if score.points == 0 && collection.time_series().is_some()
                || !score.bounded()
                || *score < Score { ranged: true, ..Score::default() } =>
        {
            by_id.into()
        }
        (None, Some(by_id)) => by_id.into(),
        (None, None) => collection_scan(collection, query).into(),
        (Some((score, _)), _) => {
            // Trials are pointless for at most one document, and unsuited to buckets, each of which
            // holds many measurements.
            let settled = score.finds_one || collection.time_series().is_some();
            let intersects = PlannerSettings::of(collection).hash_intersection.load(Relaxed);
            let both = match intersects && !settled {
                true => intersecting::way(query, found.iter().map(|(_, way)| way)),
                false => None,
            };
            let mut ways = found.into_iter().map(|(_, way)| way);
            let Some(best) = ways.next() else {
                return collection_scan(collection, query).into();
            };
            let most =
                PlannerSettings::count(&PlannerSettings::of(collection).plans).saturating_sub(1);
            let most = if settled { 0 } else { usize::try_from(most).unwrap_or(usize::MAX) };
            let others = both.into_iter().chain(ways).take(most).collect();
            Ways { best, others, alternatives: None }
        }
    }
}

/// Whether an index, or the record order, bounds these conditions.
pub(super) fn is_bounded(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    part: &Expr,
    bounds: &[FieldBounds<'_>],
) -> bool {
    let Ok(matcher) = Matcher::of(part.clone()) else { return false };
    let query = CanonicalQuery { matcher: Arc::new(matcher), sort: None, ..query.clone() };
    !matches!(best(collection, &query, bounds).plan, Plan::Records(scan) if scan.is_whole())
}

pub(super) fn collection_scan(collection: &Collection, query: &CanonicalQuery) -> Way {
    let backward = query.natural_backward.unwrap_or(false);
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let clustered = query.sort.as_ref().and_then(|_| collection.clustered_by());
    let sorted = clustered.and_then(|path| clustered_order(collection, query, &path));
    let direction = sorted.unwrap_or(direction);
    let unordered = query.sort.is_some() && sorted.is_none();
    Way::over_records(vec![whole_range()], direction, unordered)
}

/// The direction in which a collection clustered by `path` gives the requested order, if it does.
fn clustered_order(
    collection: &Collection,
    query: &CanonicalQuery,
    path: &str,
) -> Option<Direction> {
    let fields = query.sort.as_ref()?.fields();
    let first = fields.first()?;
    let direction = match first.order {
        SortOrder::Ascending => Direction::Forward,
        SortOrder::Descending => Direction::Backward,
    };
    if path != "_id" {
        // Buckets with the same start may come in any order.
        return (fields.len() == 1 && first.path.as_str() == path).then_some(direction);
    }
    if !same_collation(collection.collation(), query.collation.as_ref()) {
        return None;
    }
    // `_id` is unique, so later fields of the sort have no effect.
    (first.path.as_str() == "_id").then_some(direction)
}

/// The way for an equality on `_id` in the top-level conjunction.
pub(super) fn point_by_id(collection: &Collection, query: &CanonicalQuery) -> Option<Way> {
    fn find(expr: &Expr) -> Option<RawValue<'_>> {
        match expr {
            Expr::And(parts) => parts.iter().find_map(find),
            Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } }
                if path.as_str() == "_id" =>
            {
                Some(value.as_raw())
            }
            _ => None,
        }
    }
    match find(query.matcher.root())? {
        // An `_id` is never an array, a regex or undefined. Null is an ordinary value of it.
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => None,
        value => {
            let readable = !Collation::concerns(value)
                || same_collation(collection.collation(), query.collation.as_ref());
            readable.then(|| Way::new(Plan::Id(collection.id_key(value)), false))
        }
    }
}

/// The bounds of a plan for one `_id`, for explain. Execution does not need them.
pub(crate) fn filter_bounds_of_point(query: &CanonicalQuery) -> FilterBounds {
    let id = |conjunct: &Expr| match conjunct {
        Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } } => {
            (path.as_str() == "_id").then(|| Interval::point(value.as_raw()))
        }
        _ => None,
    };
    let conjuncts = query.matcher.root().conjuncts().into_iter().enumerate();
    let found = conjuncts.into_iter().find_map(|(at, conjunct)| Some((at, id(conjunct)?)));
    found.map_or_else(FilterBounds::default, |(at, point)| FilterBounds {
        intervals: vec![Some(vec![point])],
        covered: vec![at],
    })
}

/// A scan of records with bounds on the field that the collection is clustered by: `_id`, or the
/// start of buckets.
pub(super) fn by_id(
    collection: &Collection,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
    path: &str,
) -> Option<Way> {
    let known = id_bounds(collection, query, bounds, path);
    known.intervals.is_some().then(|| over_ids(collection, query, path, known))
}

/// A scan of records in the order of `_id`, with or without bounds on it.
pub(super) fn forced_by_id(
    collection: &Collection,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> Way {
    over_ids(collection, query, "_id", id_bounds(collection, query, bounds, "_id"))
}

/// Bounds on the field that a collection is clustered by.
struct IdBounds {
    /// `None` for a field without bounds.
    intervals: Option<Vec<Interval>>,
    /// The top-level conjuncts that the bounds are equivalent to.
    covered: Vec<usize>,
}

fn id_bounds(
    collection: &Collection,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
    path: &str,
) -> IdBounds {
    let collation = collection.collation();
    let field = bounds.iter().find(|field| field.path == path);
    let collations = CollationMatch::of(collation, query);
    let collation = collation.map(|collation| &**collation);
    let usable = |known: &&Bounds| {
        known.items.is_empty()
            && (collations.is_same() || !known.collated)
            && (collation.is_none() || !known.plain)
    };
    let conditions = field.iter().flat_map(|field| &field.conditions).filter(usable);
    let covered: Vec<usize> = conditions.clone().filter_map(|known| known.whole).collect();
    let known = conditions.cloned().reduce(|all, known| all.and(&known, collation));
    let known = known.filter(|known| !known.is_everything());
    IdBounds { intervals: known.map(|known| known.intervals), covered }
}

fn over_ids(collection: &Collection, query: &CanonicalQuery, path: &str, known: IdBounds) -> Way {
    let collation = collection.collation().map(|collation| &**collation);
    let IdBounds { intervals, covered } = known;
    let mut ranges = match &intervals {
        Some(intervals) => ranges(intervals, SortOrder::Ascending, collation),
        None => vec![whole_range()],
    };
    let order = clustered_order(collection, query, path);
    let direction = order.unwrap_or(Direction::Forward);
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let unordered = query.sort.is_some() && order.is_none();
    let filter_bounds = FilterBounds { intervals: vec![intervals], covered };
    let clustered = is_clustered(collection);
    let scan = RecordScan { ranges, direction, filter_bounds, by_id: false, clustered };
    Way::new(Plan::Records(Arc::new(scan)), unordered)
}

/// Whether the collection was created clustered, so that clients see no `_id` index.
pub fn is_clustered(collection: &Collection) -> bool {
    collection.time_series().is_some()
        || collection.options().as_doc().get("clusteredIndex").is_some()
}

/// The score of one candidate, and the way over it, however low the score.
pub(super) fn with_candidate(
    collection: &Collection,
    query: &CanonicalQuery,
    candidate: &Candidate<'_>,
    bounds: &[FieldBounds<'_>],
) -> (Score, Way) {
    let (index, fields) = (candidate.index, &*candidate.fields);
    let collations = CollationMatch::of(index.spec.collation(), query);
    let reach = reach(candidate, bounds, collations);
    let Reach { mut score, mut ranges, fixed, filter_bounds, checks } = reach;
    score.ranged |= collection.time_series().is_some() && !checks.is_empty();
    let orders = collations.is_same() && !candidate.repeats && query.sort.is_some();
    let order = || index_order(query, candidate, if ranges.len() == 1 { fixed } else { 0 });
    let order = if orders { order() } else { None };
    // With several ranges that each begin with single values, merging the scans of these parts may
    // give the order.
    let parts = match orders && order.is_none() {
        true => index_order(query, candidate, fixed).and_then(|direction| {
            let most = PlannerSettings::count(&PlannerSettings::of(collection).merged_scans);
            Some((merging::parts(&ranges, &fields[..fixed], most)?, direction))
        }),
        false => None,
    };
    let all_fixed = fixed == fields.len() && ranges.len() == 1;
    score.finds_one = all_fixed && index.spec.unique() && candidate.multikey == 0;
    score.own = matches!(candidate.fields, Cow::Borrowed(_));
    score.ordered = order.is_some() || parts.is_some() || query.sort.is_none();
    let conjuncts = query.matcher.root().conjuncts().len();
    let everything = conjuncts > 0 || index.spec.kind().is_ordered();
    let exact = !candidate.repeats
        && everything
        && (0..conjuncts).all(|conjunct| filter_bounds.covered.contains(&conjunct));
    let direction = order.unwrap_or(Direction::Forward);
    let scan = IndexScan {
        exact,
        narrow: score.points > 0 && !score.ranged,
        repeats: candidate.repeats,
        multikey: candidate.multikey,
        fields: match &candidate.fields {
            Cow::Borrowed(_) => None,
            Cow::Owned(fields) => Some(fields.clone()),
        },
        checks,
        filter_bounds,
        ..IndexScan::new(index.clone(), Vec::new(), direction)
    };
    let way = match (parts, &query.sort) {
        (Some((parts, direction)), Some(pattern)) => {
            Way::new(merging::over(&scan, parts, direction, pattern), false)
        }
        _ => {
            if direction == Direction::Backward {
                ranges.reverse();
            }
            let unordered = query.sort.is_some() && order.is_none();
            Way::over_index(IndexScan { ranges, ..scan }, unordered)
        }
    };
    (score, way)
}

/// How far the bounds of a filter extend into the key of an index.
struct Reach {
    score: Score,
    ranges: Vec<KeyRange>,
    /// Number of leading key fields that are bounded to single values.
    fixed: usize,
    filter_bounds: FilterBounds,
    /// Checks on each entry, for fields after those in the ranges.
    checks: Vec<EntryCheck>,
}

fn reach(
    candidate: &Candidate<'_>,
    bounds: &[FieldBounds<'_>],
    collations: CollationMatch,
) -> Reach {
    let mut score = Score::default();
    let mut ranges = vec![whole_range()];
    let (index, fields) = (candidate.index, &*candidate.fields);
    // The path field of a wildcard entry is fixed too, but counts as no condition.
    let mut fixed = 0;
    let (mut intervals, mut covered) = (vec![None; fields.len()], Vec::new());
    let mut reached = 0;
    for (at, field) in fields.iter().enumerate() {
        let Some(found) = candidate.bounds_of(at, bounds, collations) else { break };
        let everything = found.bounds.is_everything();
        let list = found.ranges(field, index);
        if everything || ranges.len().saturating_mul(list.len()) > MAX_RANGES {
            // A scan of a sparse or partial index is bounded even without ranges: it lacks
            // documents.
            score.ranged |= everything && (index.spec.sparse() || index.is_partial());
            break;
        }
        reached = at + 1;
        ranges = extend(&ranges, &list);
        covered.extend(&found.covered);
        let points = found.bounds.points();
        intervals[at] = Some(found.bounds.intervals);
        if !points {
            score.ranged = true;
            break;
        }
        fixed += 1;
        score.points += usize::from(field.kind != FieldKind::Path);
    }
    // Bounds on later fields that the ranges do not contain are checked on each entry.
    let mut checks = Vec::new();
    for (at, field) in fields.iter().enumerate().skip(reached) {
        let checked = collations.is_same() && index.spec.kind().is_ordered();
        let found = candidate.bounds_of(at, bounds, CollationMatch::Same).filter(|_| checked);
        if let Some(found) = found.filter(|found| !found.bounds.is_everything()) {
            checks.push(EntryCheck { at, ranges: found.ranges(field, index) });
            covered.extend(&found.covered);
            intervals[at] = Some(found.bounds.intervals);
        }
    }
    Reach { score, ranges, fixed, filter_bounds: FilterBounds { intervals, covered }, checks }
}

/// Appends each interval to each single-value prefix.
pub(crate) fn extend(prefixes: &[KeyRange], intervals: &[KeyRange]) -> Vec<KeyRange> {
    if prefixes.len() == 1 && prefixes[0] == whole_range() {
        return intervals.to_vec();
    }
    let join = |prefix: &[u8], rest: &[u8]| [prefix, rest].concat();
    let mut out = Vec::with_capacity(prefixes.len() * intervals.len());
    for prefix in prefixes {
        for interval in intervals {
            out.push(KeyRange {
                start: join(&prefix.start, &interval.start),
                end: join(&prefix.start, &interval.end),
            });
        }
    }
    out
}

/// The direction in which this index gives the requested order, if it does, when its first `fixed`
/// fields have one value each.
fn index_order(
    query: &CanonicalQuery,
    candidate: &Candidate<'_>,
    fixed: usize,
) -> Option<Direction> {
    let sort = query.sort.as_ref()?;
    if candidate.multikey != 0 {
        return None;
    }
    // Fields with one value do not affect the order of the later fields.
    let fields = &*candidate.fields;
    let fixed_paths: Vec<&str> = fields[..fixed].iter().map(|field| field.path.as_str()).collect();
    let mut later = fields[fixed..].iter();
    let mut direction = None;
    for sort_field in sort.fields() {
        if fixed_paths.contains(&sort_field.path.as_str()) {
            continue;
        }
        let field = later.next()?;
        if !field.kind.holds_values() || field.path != sort_field.path.as_str() {
            return None;
        }
        let needed =
            if field.order == sort_field.order { Direction::Forward } else { Direction::Backward };
        if *direction.get_or_insert(needed) != needed {
            return None;
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

//! Which index serves a query best: the one that bounds most fields, then the one that gives the order.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_storage::kinds::{FieldKind, Kind};
use mayfly_storage::{Collection, Direction, Index, IndexField, KeyRange, whole_range};
use mayfly_value::{Collation, RawValue, same_collation};

use super::bounds::{FieldBounds, Intervals, conjunction_is_exact, intersect};
use super::implication::implies;
use super::{Access, EntryCheck, Plan, hashed, places, wildcards};
use crate::CanonicalQuery;
use crate::partial::filter_of;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};

/// Most ranges that one plan scans.
const MAX_RANGES: usize = 4096;

/// How good an index is for a query; compared from the first field on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Score {
    /// Fields bounded to single values.
    points: usize,
    /// Whether a further field is bounded to a range.
    ranged: bool,
    /// Whether no sort is needed.
    ordered: bool,
    /// Whether it is an index of these fields, and not of all.
    own: bool,
}

impl Score {
    fn bounded(self) -> bool {
        self.points > 0 || self.ranged
    }
}

/// The best plan for a query that does not name one record by its `_id`.
pub(super) fn best(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> Plan {
    let mut best: Option<(Score, Plan)> = None;
    for index in collection.plannable_indexes() {
        if index.spec.hidden() || !has_all_of(&index, query) {
            continue;
        }
        for candidate in candidates(&index, bounds) {
            if !candidate.has_all_of_paths(bounds) {
                continue;
            }
            let (mut score, mut plan) = with_candidate(query, &candidate, bounds);
            if collection.time_series().is_some() {
                plan.checks = checks(&candidate, query, bounds);
                score.ranged |= !plan.checks.is_empty();
            }
            let useful = score.bounded() || (score.ordered && query.sort.is_some());
            if useful && best.as_ref().is_none_or(|(other, _)| score > *other) {
                best = Some((score, plan));
            }
        }
    }
    let clustered = collection.clustered_by();
    let by_id = clustered.and_then(|path| by_id(collection, query, bounds, &path, false));
    match (best, by_id) {
        (Some((score, plan)), by_id) => match by_id {
            // A range of _id beats an index that only gives the order.
            // Buckets of one span of time lie together; those of an index must be looked for one by one.
            Some(by_id) if score.points == 0 && collection.time_series().is_some() => by_id,
            Some(by_id)
                if !score.bounded() || score < Score { ranged: true, ..Score::default() } =>
            {
                by_id
            }
            _ => plan,
        },
        (None, Some(by_id)) => by_id,
        (None, None) => collection_scan(collection, query),
    }
}

/// Whether some index, or the records' own order, bounds these conditions.
pub(super) fn is_bounded(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> bool {
    let plan = best(collection, &CanonicalQuery { sort: None, ..query.clone() }, bounds);
    !matches!(&plan.access, Access::Records { ranges, .. } if *ranges == [whole_range()])
}

/// Every document, in no order that counts.
pub(super) fn whole_collection(blocking_sort: bool) -> Plan {
    let access = Access::Records { ranges: vec![whole_range()], direction: Direction::Forward };
    Plan::new(access, blocking_sort)
}

pub(super) fn collection_scan(collection: &Collection, query: &CanonicalQuery) -> Plan {
    let backward = query.natural_backward.unwrap_or(false);
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let clustered = query.sort.as_ref().and_then(|_| collection.clustered_by());
    let sorted = clustered.and_then(|path| clustered_order(collection, query, &path));
    let direction = sorted.unwrap_or(direction);
    let blocking = query.sort.is_some() && sorted.is_none();
    Plan::new(Access::Records { ranges: vec![whole_range()], direction }, blocking)
}

/// The direction in which the order of the records, which are clustered by this path, is the wanted order.
fn clustered_order(
    collection: &Collection,
    query: &CanonicalQuery,
    path: &str,
) -> Option<Direction> {
    let fields = query.sort.as_ref()?.fields();
    let first = fields.first()?;
    let direction = if first.descending { Direction::Backward } else { Direction::Forward };
    if path != "_id" {
        // Of buckets with one start any may come first.
        return (fields.len() == 1 && first.path.as_str() == path).then_some(direction);
    }
    if !same_collation(collection.collation(), query.collation.as_ref()) {
        return None;
    }
    // Nothing behind _id can matter: it is unique.
    (first.path.as_str() == "_id").then_some(direction)
}

/// A filter that names one `_id` in its outermost conjunction.
pub(super) fn point_by_id(collection: &Collection, query: &CanonicalQuery) -> Option<Plan> {
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
        // An _id is never an array, a regex or undefined; null is an ordinary value of it.
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => None,
        value => {
            let readable = !Collation::concerns(value)
                || same_collation(collection.collation(), query.collation.as_ref());
            let access = || Access::Id(collection.id_key(value));
            readable.then(|| Plan::new(access(), false))
        }
    }
}

/// Bounds over the records on the field that they are clustered by: `_id`, or the start of buckets.
pub(super) fn by_id(
    collection: &Collection,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
    path: &str,
    forced: bool,
) -> Option<Plan> {
    let field = bounds.iter().find(|field| field.path == path);
    let mut ranges = match field {
        Some(field) => {
            let matching = same_collation(collection.collation(), query.collation.as_ref());
            let readable = field.conditions.iter().filter(|known| matching || !known.strings);
            let lists = readable.map(|condition| condition.ascending.as_slice());
            let bounded = lists.fold(None, |all: Option<Vec<KeyRange>>, list| {
                Some(all.map_or_else(|| list.to_vec(), |all| intersect(&all, list)))
            });
            match bounded {
                Some(ranges) => ranges,
                None if forced => vec![whole_range()],
                None => return None,
            }
        }
        None if forced => vec![whole_range()],
        None => return None,
    };
    let order = clustered_order(collection, query, path);
    let direction = order.unwrap_or(Direction::Forward);
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let blocking = query.sort.is_some() && order.is_none();
    Some(Plan::new(Access::Records { ranges, direction }, blocking))
}

/// A partial index lacks the documents that do not satisfy its filter.
pub(super) fn has_all_of(index: &Index, query: &CanonicalQuery) -> bool {
    match index.filter() {
        None => true,
        Some(filter) => {
            filter_of(filter).is_some_and(|filter| implies(query.matcher.root(), filter))
        }
    }
}

/// An index as a plan may use it: a wildcard index offers itself once for each path of the filter.
pub(super) struct Candidate<'a> {
    pub(super) index: &'a Arc<Index>,
    /// The fields of its entries, with the filter's path in place of a wildcard.
    pub(super) fields: Cow<'a, [IndexField]>,
    /// Whether one document may have several of the entries that it shows, though none of its values is an array.
    pub(super) repeats: bool,
}

/// What an index offers for these conditions.
pub(super) fn candidates<'a>(
    index: &'a Arc<Index>,
    bounds: &[FieldBounds<'_>],
) -> Vec<Candidate<'a>> {
    let as_it_is =
        || Candidate { index, fields: Cow::Borrowed(index.spec.fields()), repeats: false };
    match index.spec.kind() {
        Kind::Ordered | Kind::Hashed => vec![as_it_is()],
        Kind::Wildcard(wildcard) => wildcards::candidates(index, wildcard, bounds),
        Kind::Sphere(_) | Kind::Plane(_) if places::serves(index, bounds) => vec![as_it_is()],
        // These serve their own operators only.
        Kind::Text(_) | Kind::Sphere(_) | Kind::Plane(_) => Vec::new(),
    }
}

impl Candidate<'_> {
    /// A sparse index lacks documents that a condition on a missing field could want.
    fn has_all_of_paths(&self, bounds: &[FieldBounds<'_>]) -> bool {
        // An index of places only offers itself where its documents are all that can match.
        !self.index.spec.sparse()
            || !matches!(self.index.spec.kind(), Kind::Ordered | Kind::Hashed | Kind::Wildcard(_))
            || self.fields.iter().any(|field| {
                bounds.iter().any(|known| {
                    known.path == field.path
                        && known.conditions.iter().any(|condition| !condition.includes_missing)
                })
            })
    }

    /// What bounds the field at this place of an entry; nothing when no condition may be used there.
    pub(super) fn bounds_of(
        &self,
        at: usize,
        bounds: &[FieldBounds<'_>],
        same_collation: bool,
    ) -> Option<Intervals> {
        let field = &self.fields[at];
        let known = |path: &str| bounds.iter().find(|known| known.path == path);
        match field.kind {
            FieldKind::Ordered | FieldKind::Wildcard => {
                let known = known(&field.path)?;
                let usable = |condition: &&Intervals| {
                    (same_collation || !condition.strings)
                        && (field.kind == FieldKind::Ordered || wildcards::serves(condition))
                };
                self.intersected(at, known.conditions.iter().filter(usable))
            }
            FieldKind::Path => {
                let wildcard = self.fields.get(at + 1)?;
                wildcards::path_bounds(&wildcard.path, known(&wildcard.path)?)
            }
            FieldKind::Hashed => {
                let collation = self.index.spec.collation().map(|collation| &**collation);
                hashed::intervals(known(&field.path)?, field, collation, same_collation)
            }
            FieldKind::Sphere | FieldKind::Plane => {
                places::intervals(self.index, known(&field.path)?)
            }
            FieldKind::Text => None,
        }
    }

    /// All conditions together, where one value of a document must satisfy them all.
    fn intersected<'b>(
        &self,
        at: usize,
        mut conditions: impl Iterator<Item = &'b Intervals> + Clone,
    ) -> Option<Intervals> {
        let field = &self.fields[at];
        let multikey = self.index.multikey_mask() & (1 << at) != 0;
        if multikey {
            // Two fields below one array: a key combines values of one element, a filter may mean two.
            let shares = self.fields[..at].iter().any(|before| before.parts[0] == field.parts[0]);
            if shares {
                return None;
            }
            // Conditions may hold for different elements: only one of them bounds the keys.
            let mut rest = conditions.clone();
            let point = conditions.find(|condition| condition.points);
            return point.or_else(|| rest.next()).cloned();
        }
        let first = conditions.next()?.clone();
        Some(conditions.fold(first, |all, condition| Intervals {
            ascending: intersect(&all.ascending, &condition.ascending),
            descending: intersect(&all.descending, &condition.descending),
            points: all.points || condition.points,
            includes_missing: all.includes_missing && condition.includes_missing,
            strings: all.strings || condition.strings,
            documents: all.documents || condition.documents,
        }))
    }
}

/// The plan over one index, however good it is.
pub(super) fn with_candidate(
    query: &CanonicalQuery,
    candidate: &Candidate<'_>,
    bounds: &[FieldBounds<'_>],
) -> (Score, Plan) {
    let mut score = Score::default();
    let mut ranges = vec![whole_range()];
    let (index, fields) = (candidate.index, &*candidate.fields);
    let matching = same_collation(index.spec.collation(), query.collation.as_ref());
    // Fields of the key that are bounded, and how many of those to single values; a path is no condition.
    let (mut bounded, mut fixed) = (0, 0);
    for (at, field) in fields.iter().enumerate() {
        let Some(intervals) = candidate.bounds_of(at, bounds, matching) else { break };
        let list = if field.descending { &intervals.descending } else { &intervals.ascending };
        if ranges.len().saturating_mul(list.len()) > MAX_RANGES {
            break;
        }
        ranges = extend(&ranges, list);
        bounded += 1;
        if !intervals.points {
            score.ranged = true;
            break;
        }
        fixed += 1;
        score.points += usize::from(field.kind != FieldKind::Path);
    }
    let order = match matching && !candidate.repeats {
        true => index_order(query, candidate, ranges.len(), fixed),
        false => None,
    };
    score.own = matches!(candidate.fields, Cow::Borrowed(_));
    score.ordered = order.is_some() || query.sort.is_none();
    let direction = order.unwrap_or(Direction::Forward);
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let blocking = query.sort.is_some() && order.is_none();
    let bounded = &fields[..bounded];
    // Conditions on strings bound nothing in an index of another collation.
    let strings = || bounds.iter().any(|field| field.conditions.iter().any(|known| known.strings));
    let hashes = bounded.iter().any(|field| field.kind == FieldKind::Hashed);
    let exact = (matching || !strings())
        && !(hashes || candidate.repeats)
        && conjunction_is_exact(query.matcher.root(), bounded);
    let access = Access::Index { index: index.clone(), ranges, direction };
    let narrow = score.points > 0 && !score.ranged;
    let fields = match &candidate.fields {
        Cow::Borrowed(_) => None,
        Cow::Owned(fields) => Some(fields.clone()),
    };
    let repeats = candidate.repeats;
    (score, Plan { exact, narrow, repeats, fields, ..Plan::new(access, blocking) })
}

/// What conditions say of fields that the ranges do not reach: those behind one without a single value.
fn checks(
    candidate: &Candidate<'_>,
    query: &CanonicalQuery,
    bounds: &[FieldBounds<'_>],
) -> Vec<EntryCheck> {
    let index = candidate.index;
    let plain = index.spec.kind().is_ordered() && !index.is_multikey();
    if !plain || !same_collation(index.spec.collation(), query.collation.as_ref()) {
        return Vec::new();
    }
    let bounds_of = |at| candidate.bounds_of(at, bounds, true);
    let mut places = 0..candidate.fields.len();
    // The first of them bounds the ranges itself.
    let reached = places.by_ref().find(|at| bounds_of(*at).is_none_or(|known| !known.points));
    if reached.is_none() {
        return Vec::new();
    }
    places
        .filter_map(|at| {
            let known = bounds_of(at)?;
            let descending = candidate.fields[at].descending;
            let ranges = if descending { known.descending } else { known.ascending };
            Some(EntryCheck { at, ranges })
        })
        .collect()
}

/// Puts each interval behind each single value of the fields before.
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

/// The direction in which this index gives the wanted order, if it does.
fn index_order(
    query: &CanonicalQuery,
    candidate: &Candidate<'_>,
    ranges: usize,
    points: usize,
) -> Option<Direction> {
    let sort = query.sort.as_ref()?;
    if candidate.index.is_multikey() {
        return None;
    }
    // Fields bounded to one value do not disturb the order of those behind them.
    let fixed = if ranges == 1 { points } else { 0 };
    let fields = &*candidate.fields;
    let fixed_paths: Vec<&str> = fields[..fixed].iter().map(|field| field.path.as_str()).collect();
    let mut behind = fields[fixed..].iter();
    let mut direction = None;
    for wanted in sort.fields() {
        if fixed_paths.contains(&wanted.path.as_str()) {
            continue;
        }
        let field = behind.next()?;
        let ordered = matches!(field.kind, FieldKind::Ordered | FieldKind::Wildcard);
        if !ordered || field.path != wanted.path.as_str() {
            return None;
        }
        let needed = if field.descending == wanted.descending {
            Direction::Forward
        } else {
            Direction::Backward
        };
        if *direction.get_or_insert(needed) != needed {
            return None;
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

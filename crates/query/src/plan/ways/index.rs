//! The way over a candidate: how far the bounds extend into its key, which order it gives, and how
//! it ranks.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_storage::kinds::FieldKind;
use mayfly_storage::{Direction, Index, KeyRange, whole_range};

use super::merging;
use crate::language::CanonicalQuery;
use crate::plan::candidates::candidate::candidates;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::bounds::FieldBounds;
use crate::plan::types::candidate::{Candidate, CollationMatch};
use crate::plan::types::scan::{EntryCheck, FilterBounds, IndexScan};
use crate::plan::types::settings::PlannerSettings;
use crate::plan::types::way::Way;

/// Limit on the key ranges of one plan.
const MAX_RANGES: usize = 4096;

/// Rank of an index for a query. Fields are compared in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Score {
    /// Whether the scan finds at most one document.
    pub(crate) finds_one: bool,
    /// Number of fields bounded to single values.
    pub(crate) points: usize,
    /// Whether one more field is bounded to a range.
    pub(crate) ranged: bool,
    /// Whether the scan makes a sort unnecessary.
    pub(crate) ordered: bool,
    /// Whether the index is on these fields themselves, and not a wildcard index.
    pub(crate) own: bool,
}

impl Score {
    pub(crate) fn bounded(self) -> bool {
        self.points > 0 || self.ranged
    }
}

/// The ways over the candidates of an index that a caller accepts, with their scores, however low.
pub(crate) fn ways_over<'i>(
    input: &'i PlanInput<'_>,
    index: &'i Arc<Index>,
    accepts: impl Fn(&Candidate<'_>) -> bool,
) -> impl Iterator<Item = (Score, Way)> {
    let found = candidates(index, &input.bounds).into_iter().filter(accepts);
    found.map(|candidate| with_candidate(input, &candidate))
}

/// The score of one candidate, and the way over it.
fn with_candidate(input: &PlanInput<'_>, candidate: &Candidate<'_>) -> (Score, Way) {
    let (collection, query) = (input.collection, input.query);
    let (index, fields) = (candidate.index, &*candidate.fields);
    let collations = CollationMatch::of(index.spec.collation(), query);
    let reach = reach(candidate, &input.bounds, collations);
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
            merging::over(&scan, parts, direction, pattern).into()
        }
        _ => {
            if direction == Direction::Backward {
                ranges.reverse();
            }
            let unordered = query.sort.is_some() && order.is_none();
            Way { plan: IndexScan { ranges, ..scan }.into(), unordered }
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
    for wanted in sort.fields() {
        if fixed_paths.contains(&wanted.path.as_str()) {
            continue;
        }
        let field = later.next()?;
        if !field.kind.holds_values() || field.path != wanted.path.as_str() {
            return None;
        }
        let needed =
            if field.order == wanted.order { Direction::Forward } else { Direction::Backward };
        if *direction.get_or_insert(needed) != needed {
            return None;
        }
    }
    Some(direction.unwrap_or(Direction::Forward))
}

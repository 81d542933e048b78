//! Ways over records: a scan of the collection, or a range of the field that it is clustered by.

use mayfly_storage::{Collection, Direction, whole_range};
use mayfly_value::{SortOrder, same_collation};

use crate::language::CanonicalQuery;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::bounds::Bounds;
use crate::plan::types::candidate::CollationMatch;
use crate::plan::types::interval::{Interval, ranges};
use crate::plan::types::scan::{FilterBounds, RecordScan};
use crate::plan::types::way::Way;

/// A scan of all records.
pub(crate) fn collection_scan(collection: &Collection, query: &CanonicalQuery) -> Way {
    let backward = query.natural_backward.unwrap_or(false);
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let clustered = query.sort.as_ref().and_then(|_| collection.clustered_by());
    let sorted = clustered.and_then(|path| clustered_order(collection, query, &path));
    let direction = sorted.unwrap_or(direction);
    let unordered = query.sort.is_some() && sorted.is_none();
    Way { plan: RecordScan::new(vec![whole_range()], direction).into(), unordered }
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

/// A scan of records with bounds on the field that the collection is clustered by: `_id`, or the
/// start of buckets.
pub(crate) fn by_id(input: &PlanInput<'_>) -> Option<Way> {
    let path = input.clustered_by.as_deref()?;
    let known = id_bounds(input, path);
    known.intervals.is_some().then(|| over_ids(input, path, known))
}

/// A scan of records in the order of `_id`, with or without bounds on it.
pub(crate) fn forced_by_id(input: &PlanInput<'_>) -> Way {
    over_ids(input, "_id", id_bounds(input, "_id"))
}

/// Bounds on the field that a collection is clustered by.
struct IdBounds {
    /// `None` for a field without bounds.
    intervals: Option<Vec<Interval>>,
    /// The top-level conjuncts that the bounds are equivalent to.
    covered: Vec<usize>,
}

fn id_bounds(input: &PlanInput<'_>, path: &str) -> IdBounds {
    let collation = input.collection.collation();
    let field = input.bounds.iter().find(|field| field.path == path);
    let collations = CollationMatch::of(collation, input.query);
    let collation = collation.map(|collation| &**collation);
    let usable = |known: &&Bounds| {
        known.items.is_empty()
            && (collations.is_same() || !known.collated)
            && (collation.is_none() || !known.plain)
    };
    let conditions = field.iter().flat_map(|field| &field.conditions).filter(usable);
    let covered: Vec<usize> = conditions.clone().filter_map(|known| known.whole).collect();
    let known = Bounds::all(conditions, collation).filter(|known| !known.is_everything());
    IdBounds { intervals: known.map(|known| known.intervals), covered }
}

fn over_ids(input: &PlanInput<'_>, path: &str, known: IdBounds) -> Way {
    let (collection, query) = (input.collection, input.query);
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
    let scan = RecordScan { filter_bounds, clustered, ..RecordScan::new(ranges, direction) };
    Way { plan: scan.into(), unordered }
}

/// Whether the collection was created clustered, so that clients see no `_id` index.
pub fn is_clustered(collection: &Collection) -> bool {
    collection.time_series().is_some()
        || collection.options().as_doc().get("clusteredIndex").is_some()
}

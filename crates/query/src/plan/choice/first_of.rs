//! Scans that return one document for each value of a field, for `distinct` and for a `$group` that
//! needs no other. In an index that begins with the field, or has it after fields with one value
//! each, documents with equal values are adjacent. The scan returns the first and seeks past the
//! others. Manual: "Aggregation Pipeline Optimization", "$group Optimizations"; "$group", "Optimize
//! to Return the First or Last Document of Each Group".

use std::sync::Arc;

use mayfly_storage::{Direction, Index, whole_range};
use mayfly_value::paths::array_index;
use mayfly_value::same_collation;

use crate::language::{CanonicalQuery, FirstOf};
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::interval::Interval;
use crate::plan::types::scan::{IndexScan, OnePerValue};
use crate::plan::types::tree::Plan;
use crate::plan::types::way::{Way, Ways};

/// Replaces the ways by a scan with one document for each value, if the query allows that and an
/// index supports it.
pub(crate) fn or_one_per_value(input: &PlanInput<'_>, ways: Ways) -> Ways {
    let first_of = input.query.first_of.as_ref();
    first_of.and_then(|first_of| one_per_value(input, first_of, &ways)).map_or(ways, Ways::from)
}

/// One of the ways, or another way in their place, as a scan with one document for each value.
/// Preferred ways come first.
fn one_per_value(input: &PlanInput<'_>, first_of: &FirstOf, ways: &Ways) -> Option<Way> {
    let (collection, query) = (input.collection, input.query);
    if first_of.path.split('.').any(|part| array_index(part).is_some()) {
        return None;
    }
    let readable = |index: &Index| {
        !first_of.whole && index.spec.collation().is_none() && !collection.hides_expired()
    };
    let everything = query.matcher.root().conjuncts().is_empty();
    let one = |way: &Way| {
        let Plan::Index(scan) = &way.plan else { return None };
        let fields = fields_before(scan, first_of, query).filter(|_| !way.unordered)? + 1;
        let covered = readable(&scan.index) && (scan.exact || everything);
        let one_per_value = Some(OnePerValue {
            covered,
            fields,
            missing_is_distinct: first_of.missing_is_distinct,
        });
        let mut scan = IndexScan { one_per_value, ..(**scan).clone() };
        if first_of.last {
            scan.ranges.reverse();
            scan.direction = match scan.direction {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
        }
        Some((covered, Plan::from(scan).into()))
    };
    if let Some((_, way)) = one(&ways.best) {
        return Some(way);
    }
    let by_keys = ways.others.iter().filter_map(one).find(|(covered, _)| *covered);
    if let Some((_, way)) = by_keys {
        return Some(way);
    }
    let scans = everything && query.sort.is_none() && query.hint.is_none();
    if !scans || !matches!(ways.best.plan, Plan::Records(_)) {
        return None;
    }
    let complete = |index: &&Arc<Index>| {
        let all = !index.spec.sparse() && !index.is_partial();
        let serves = stands_together(index, query)
            && index.spec.fields().first().is_some_and(|field| field.path == first_of.path);
        all && serves && readable(index)
    };
    let index = input.indexes.iter().find(complete)?.clone();
    let one_per_value = Some(OnePerValue {
        covered: true,
        fields: 1,
        missing_is_distinct: first_of.missing_is_distinct,
    });
    let scan = IndexScan::new(index, vec![whole_range()], Direction::Forward);
    Some(Plan::from(IndexScan { one_per_value, ..scan }).into())
}

/// Number of single-value fields before the field of `first_of`, if the scan returns results in the
/// order of its index.
fn fields_before(scan: &IndexScan, first_of: &FirstOf, query: &CanonicalQuery) -> Option<usize> {
    let fields = scan.index.spec.fields();
    let place = fields.iter().position(|field| field.path == first_of.path)?;
    let in_order = match &query.sort {
        None => !first_of.whole,
        Some(sort) => {
            let sorted = sort.fields().iter().map(|field| field.path.as_str());
            place == 0 && sorted.eq(fields.iter().map(|field| field.path.as_str()))
        }
    };
    let single = |intervals: &Option<Vec<Interval>>| {
        intervals.as_ref().is_some_and(|list| list.len() == 1 && list[0].is_point(None))
    };
    let fixed = place == 0
        || scan.ranges.len() == 1 && scan.filter_bounds.intervals.get(..place)?.iter().all(single);
    let alone = !scan.repeats && scan.fields.is_none() && scan.multikey == 0;
    (in_order && fixed && alone && stands_together(&scan.index, query)).then_some(place)
}

/// Whether documents with the same value of a field are adjacent in the index.
fn stands_together(index: &Index, query: &CanonicalQuery) -> bool {
    let spec = &index.spec;
    spec.kind().is_ordered()
        && !index.is_multikey()
        && same_collation(spec.collation(), query.collation.as_ref())
}

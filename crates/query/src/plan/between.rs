//! The arguments `min` and `max` of `find`: keys of the hinted index between which the scan runs,
//! `min` inclusive and `max` exclusive, in the order of the index. They replace the bounds that
//! come from the filter.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, Direction, KeyRange};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, DocBuf, SortOrder};

use super::{IndexScan, Plan, Way};
use crate::language::CanonicalQuery;

/// Returns the way over the same index, restricted to the keys between `min` and `max`.
///
/// # Errors
/// 51174 when they do not name the fields of the index, 51175 when `min` is not before `max`.
pub(super) fn narrowed(
    collection: &Collection,
    way: Way,
    query: &CanonicalQuery,
    min: Option<&DocBuf>,
    max: Option<&DocBuf>,
) -> Result<Way> {
    let scan = way.plan.index_scan();
    let fields: Vec<(&str, SortOrder)> = match scan {
        Some(scan) => {
            let fields = scan.index.spec.fields().iter();
            fields.map(|field| (field.path.as_str(), field.order)).collect()
        }
        None => vec![("_id", SortOrder::Ascending)],
    };
    let collation = match scan {
        Some(scan) => scan.index.spec.collation(),
        None => collection.collation(),
    };
    let collation = collation.map(|collation| &**collation);
    let start = min.map(|min| key_of(min, &fields, collation)).transpose()?.unwrap_or_default();
    let end = max.map(|max| key_of(max, &fields, collation)).transpose()?.unwrap_or_default();
    if !end.is_empty() && start >= end {
        return Err(Error::new(
            ErrorCode(51175),
            "The value provided for min() does not come before the value provided for max() in the hinted index",
        ));
    }
    let ranges = vec![KeyRange { start, end }];
    // An order that depended on single-value bounds is lost with those bounds.
    let unordered = query.sort.is_some();
    Ok(match (scan, &way.plan) {
        (Some(scan), _) => {
            let (index, direction) = (scan.index.clone(), scan.direction);
            Way::over_index(IndexScan::new(index, ranges, direction), unordered)
        }
        (None, Plan::Records(scan)) => Way::over_records(ranges, scan.direction, unordered),
        // Text and geo searches take no hint.
        (None, _) => Way::over_records(ranges, Direction::Forward, unordered),
    })
}

/// The ordered key of `bound`, which must name the fields of the index in order.
fn key_of(
    bound: &DocBuf,
    fields: &[(&str, SortOrder)],
    collation: Option<&Collation>,
) -> Result<Vec<u8>> {
    let names = bound.as_doc().iter().map(|field| field.name());
    if !names.eq(fields.iter().map(|(name, _)| *name)) {
        let text = "The index chosen is not compatible with min/max";
        return Err(Error::new(ErrorCode(51174), text));
    }
    let mut key = Vec::new();
    for (field, (_, order)) in bound.as_doc().iter().zip(fields) {
        let mut bits = TypeBits::default();
        keys::append_value_in(&mut key, &mut bits, field.value(), *order, collation);
    }
    Ok(key)
}

//! The stage `COUNT_SCAN`: counts by index entries.

use mayfly_value::{DocBuf, DocBuilder, RawValue, SortOrder};

use super::node::{Node, number};
use super::tree::input_of;
use crate::exec::NodeStats;
use crate::plan::IndexScan;

/// Replaces an index scan of a count; the bounds of a single interval are shown as keys.
pub(super) fn counted_scan(scan: &IndexScan, leaf: Node, ran: &NodeStats) -> Node {
    let Some(bounds) = ends(scan).filter(|_| scan.checks.is_empty()) else { return leaf };
    let mut fields = DocBuilder::new();
    let fields_of_leaf = leaf.fields.as_doc();
    for field in
        fields_of_leaf.iter().filter(|it| !matches!(it.name(), "direction" | "indexBounds"))
    {
        fields.append(field.name(), field.value());
    }
    fields.append("indexBounds", &bounds);
    let keys = input_of(ran).counters.keys;
    let counted = |out: &mut DocBuilder| {
        out.append("keysExamined", number(keys));
    };
    Node { stage: "COUNT_SCAN", fields: fields.finish(), ..leaf }.counting(counted)
}

/// The first and last key of a scan of one range.
fn ends(scan: &IndexScan) -> Option<DocBuf> {
    let (mut start, mut end) = (DocBuilder::new(), DocBuilder::new());
    let (mut includes_start, mut includes_end) = (true, true);
    for (at, field) in scan.fields().iter().enumerate() {
        let (low, high) = match scan.filter_bounds.intervals.get(at) {
            Some(Some(intervals)) => match &intervals[..] {
                [one] => (Some(&one.low), Some(&one.high)),
                _ => return None,
            },
            _ => (None, None),
        };
        let (least, greatest) = (RawValue::MinKey, RawValue::MaxKey);
        let (first, last, least, greatest) = match field.order {
            SortOrder::Ascending => (low, high, least, greatest),
            SortOrder::Descending => (high, low, greatest, least),
        };
        start.append(&field.path, first.map_or(least, |end| end.value.as_raw()));
        end.append(&field.path, last.map_or(greatest, |end| end.value.as_raw()));
        includes_start &= first.is_none_or(|end| end.inclusive);
        includes_end &= last.is_none_or(|end| end.inclusive);
    }
    let mut out = DocBuilder::new();
    out.append("startKey", &start.finish()).append("startKeyInclusive", includes_start);
    out.append("endKey", &end.finish()).append("endKeyInclusive", includes_end);
    Some(out.finish())
}

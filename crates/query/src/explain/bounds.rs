//! The bounds of an index scan as text: `["[1, 1]"]`, `["(5, inf.0]"]`, `["[MinKey, MaxKey]"]`; and
//! the residual filter.

use mayfly_mql::matcher::Expr;
use mayfly_storage::{IndexField, KeyRange};
use mayfly_value::{DocBuf, DocBuilder};

use crate::language::CanonicalQuery;
use crate::plan::{FilterBounds, texts};

/// The fields and ranges of a scan.
pub(super) struct Scan<'a> {
    pub(super) fields: &'a [IndexField],
    pub(super) multikey: u32,
    pub(super) ranges: &'a [KeyRange],
    pub(super) backward: bool,
}

/// The bounds of a scan.
pub(super) fn scan_bounds(scan: &Scan<'_>, filter_bounds: &FilterBounds) -> DocBuf {
    let mut text = DocBuilder::new();
    for (at, field) in scan.fields.iter().enumerate() {
        text.start_array(&field.path);
        let order = if scan.backward { field.order.reversed() } else { field.order };
        match filter_bounds.intervals.get(at) {
            Some(Some(intervals)) => {
                for interval in texts(intervals, order) {
                    text.push(interval.as_str());
                }
            }
            _ if order.is_descending() => {
                text.push("[MaxKey, MinKey]");
            }
            _ => {
                text.push("[MinKey, MaxKey]");
            }
        }
        text.end();
    }
    text.finish()
}

/// The residual filter: the conditions that the bounds do not cover.
pub(super) fn rest(filter_bounds: &FilterBounds, query: &CanonicalQuery) -> Vec<DocBuf> {
    let conjuncts = query.matcher.root().conjuncts().into_iter().enumerate();
    let rest = conjuncts.filter(|(at, _)| !filter_bounds.covered.contains(at));
    Expr::And(rest.map(|(_, conjunct)| conjunct.clone()).collect()).conditions()
}

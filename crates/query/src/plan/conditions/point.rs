//! The bounds of a plan for one `_id`.

use mayfly_mql::matcher::{CmpOp, Expr, Predicate};

use crate::language::CanonicalQuery;
use crate::plan::types::interval::Interval;
use crate::plan::types::scan::FilterBounds;

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

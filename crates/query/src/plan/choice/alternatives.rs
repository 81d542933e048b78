//! Plans for a filter with `$or` whose alternatives each have an index. If every alternative gives
//! the requested order, the scans are merged; otherwise they run one after the other. Each
//! alternative with several candidate indexes is tried on its own. Manual: "$or Clauses and
//! Indexes", "$or and sort() Operations".

use std::sync::Arc;

use mayfly_mql::matcher::Expr;
use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::Collection;

use crate::language::CanonicalQuery;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::tree::Plan;
use crate::plan::types::way::{Alternatives, Way, Ways};
use crate::plan::ways::ranking;

/// An `$or` with more alternatives is not planned by this module.
const MAX_ALTERNATIVES: usize = 256;

/// Ways for the first `$or` in the filter whose alternatives all have an index.
pub(crate) fn ways_by_alternatives(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
) -> Option<Ways> {
    let conjuncts = query.matcher.root().conjuncts();
    conjuncts.iter().enumerate().find_map(|(at, conjunct)| {
        let Expr::Or(parts) = conjunct else { return None };
        if parts.len() > MAX_ALTERNATIVES {
            return None;
        }
        let others = conjuncts.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Expr> = others.map(|(_, other)| (*other).clone()).collect();
        let each = |sort: Option<&SortPattern>| -> Option<Vec<_>> {
            parts.iter().map(|part| one(collection, query, (part, &others), sort)).collect()
        };
        let merged = query.sort.as_ref().and_then(|pattern| each(Some(pattern)));
        let found = match merged {
            Some(parts) => Alternatives { parts, merged: query.sort.clone(), unordered: false },
            None => {
                Alternatives { parts: each(None)?, merged: None, unordered: query.sort.is_some() }
            }
        };
        let best = found.ways().next()?;
        let several = found.are_several().then(|| Box::new(found));
        Some(Ways { alternatives: several, ..best.into() })
    })
}

/// Plans one alternative, together with the other conjuncts of the filter, in the given order.
/// Returns `None` if no index serves it.
fn one(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    (part, others): (&Expr, &[Expr]),
    sort: Option<&SortPattern>,
) -> Option<(CanonicalQuery, Vec<Way>)> {
    let all = part.conjuncts().into_iter().chain(others).cloned().collect();
    let matcher = Arc::new(Matcher::of(Expr::and(all)).ok()?);
    let query = CanonicalQuery {
        matcher,
        sort: sort.cloned(),
        skip: 0,
        limit: None,
        projection: None,
        first_of: None,
        ..query.clone()
    };
    let ways = ranking::ways(&PlanInput::of(collection, &query));
    let scans = |way: &Way| matches!(way.plan, Plan::Merge { .. } | Plan::Index(_));
    let serves = |way: &Way| {
        let ordered = sort.is_none() || scans(way) && !way.unordered;
        ordered && way.plan.is_bounded()
    };
    // The best way by rule must qualify: a worse one may examine far more documents.
    serves(&ways.best).then_some(())?;
    let others = ways.others.into_iter().filter(|way| serves(way) && scans(way));
    Some((query, std::iter::once(ways.best).chain(others).collect()))
}

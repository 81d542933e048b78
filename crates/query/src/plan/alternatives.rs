//! Plans for a filter with `$or` whose alternatives each have an index. If every alternative gives
//! the requested order, the scans are merged; otherwise they run one after the other. Each
//! alternative with several candidate indexes is tried on its own. Manual: "$or Clauses and
//! Indexes", "$or and sort() Operations".

use std::sync::Arc;

use mayfly_mql::matcher::Expr;
use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::Collection;

use super::bounds::field_bounds;
use super::{Plan, Way, Ways, choose};
use crate::language::CanonicalQuery;

/// An `$or` with more alternatives is not planned by this module.
const MAX_ALTERNATIVES: usize = 256;

/// The alternatives of an `$or`, each with its ways.
pub(crate) struct Alternatives {
    /// Each alternative as a query of its own, with its ways; the best by rule comes first.
    pub(crate) parts: Vec<(CanonicalQuery, Vec<Way>)>,
    /// The order in which the inputs are merged, if each of them gives it.
    merged: Option<SortPattern>,
    /// Whether results arrive in another order than the requested one.
    unordered: bool,
}

impl Alternatives {
    /// Whether any alternative has more than one way.
    fn are_several(&self) -> bool {
        self.parts.iter().any(|(_, ways)| ways.len() > 1)
    }

    /// Combines one way of each alternative into a way for the whole filter.
    pub(crate) fn way(&self, chosen: impl Iterator<Item = Way>) -> Way {
        let plans = chosen.map(|way| way.plan);
        let plan = match &self.merged {
            None => Plan::Or(plans.collect()),
            Some(pattern) => {
                let scans = plans.flat_map(|plan| match plan {
                    Plan::Merge { inputs, .. } => inputs,
                    plan => vec![plan],
                });
                let (inputs, pattern) = (scans.collect(), pattern.clone());
                Plan::Merge { inputs, pattern, disjoint: false }
            }
        };
        Way::new(plan, self.unordered)
    }

    /// Combined ways such that each way of each alternative occurs in at least one. The first
    /// combines the ways that are best by rule.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        let most = self.parts.iter().map(|(_, ways)| ways.len()).max().unwrap_or(0);
        (0..most).map(|at| {
            let one = |ways: &[Way]| ways.get(at).or(ways.first()).cloned();
            self.way(self.parts.iter().filter_map(|(_, ways)| one(ways)))
        })
    }
}

/// Ways for the first `$or` in the filter whose alternatives all have an index.
pub(super) fn ways(collection: &Arc<Collection>, query: &CanonicalQuery) -> Option<Ways> {
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
    let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
    let ways = choose::ways(collection, &query, &bounds);
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

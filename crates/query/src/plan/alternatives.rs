//! A filter with `$or`: each alternative by an index of its own, when each has one. Where each gives the wanted order, they are
//! merged. Which of several indexes an alternative uses is found out for it alone. Manual: "$or Clauses and Indexes", "$or and
//! sort() Operations".

use std::sync::Arc;

use mayfly_mql::matcher::Expr;
use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::Collection;

use super::bounds::field_bounds;
use super::{Plan, Way, Ways, choose};
use crate::language::CanonicalQuery;

/// Alternatives that are looked at.
const MAX_ALTERNATIVES: usize = 256;

/// The alternatives of an `$or`, each with the ways to its documents.
pub(crate) struct Alternatives {
    /// Each as a query of its own, and its ways, the best by rule first.
    pub(crate) parts: Vec<(CanonicalQuery, Vec<Way>)>,
    /// The order in which they are merged, where each has it.
    merged: Option<SortPattern>,
    /// They come in another order than the wanted one.
    unordered: bool,
}

impl Alternatives {
    /// Whether there is something to choose.
    fn are_several(&self) -> bool {
        self.parts.iter().any(|(_, ways)| ways.len() > 1)
    }

    /// The way by one of each alternative.
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

    /// Ways, of which each way of an alternative is a part; the first by those that are the best by rule.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        let most = self.parts.iter().map(|(_, ways)| ways.len()).max().unwrap_or(0);
        (0..most).map(|at| {
            let one = |ways: &[Way]| ways.get(at).or(ways.first()).cloned();
            self.way(self.parts.iter().filter_map(|(_, ways)| one(ways)))
        })
    }
}

/// Ways for the first `$or` of the filter whose alternatives all have an index.
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

/// One as a query, and its ways in an order that is wanted; nothing when there is none by an index.
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
    // The best by rule must serve: a worse one may look at far more.
    serves(&ways.best).then_some(())?;
    let others = ways.others.into_iter().filter(|way| serves(way) && scans(way));
    Some((query, std::iter::once(ways.best).chain(others).collect()))
}

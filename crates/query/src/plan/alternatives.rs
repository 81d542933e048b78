//! A filter with `$or`: each alternative by an index of its own, when each has one. Where each gives the wanted order, they are
//! merged. Manual: "$or Clauses and Indexes", "$or and sort() Operations".

use std::sync::Arc;

use mayfly_mql::matcher::Expr;
use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::Collection;

use super::bounds::field_bounds;
use super::{Plan, Way, choose};
use crate::language::CanonicalQuery;

/// Alternatives that are looked at.
const MAX_ALTERNATIVES: usize = 256;

/// A way for the first `$or` of the filter whose alternatives all have an index.
pub(super) fn way(collection: &Arc<Collection>, query: &CanonicalQuery) -> Option<Way> {
    let conjuncts = query.matcher.root().conjuncts();
    conjuncts.iter().enumerate().find_map(|(at, conjunct)| {
        let Expr::Or(parts) = conjunct else { return None };
        if parts.len() > MAX_ALTERNATIVES {
            return None;
        }
        let others = conjuncts.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Expr> = others.map(|(_, other)| (*other).clone()).collect();
        let each = |sort: Option<&SortPattern>| -> Option<Vec<Way>> {
            parts.iter().map(|part| one(collection, query, (part, &others), sort)).collect()
        };
        if let Some(pattern) = &query.sort
            && let Some(inputs) = each(Some(pattern)).and_then(ordered)
        {
            let pattern = pattern.clone();
            return Some(Way::new(Plan::Merge { inputs, pattern, disjoint: false }, false));
        }
        let inputs = each(None)?.into_iter().map(|way| way.plan).collect();
        Some(Way::new(Plan::Or(inputs), query.sort.is_some()))
    })
}

fn one(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    (part, others): (&Expr, &[Expr]),
    sort: Option<&SortPattern>,
) -> Option<Way> {
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
    let way = choose::best(collection, &query, &bounds);
    way.plan.is_bounded().then_some(way)
}

/// Scans to be merged, when all of these have the wanted order.
fn ordered(ways: Vec<Way>) -> Option<Vec<Plan>> {
    let mut scans = Vec::new();
    for way in ways {
        match way.plan {
            _ if way.unordered => return None,
            Plan::Merge { inputs, .. } => scans.extend(inputs),
            plan @ Plan::Index(_) => scans.push(plan),
            _ => return None,
        }
    }
    Some(scans)
}

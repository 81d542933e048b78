//! A filter with `$or`: each alternative by an index of its own, when each has one. Manual: "$or Clauses and Indexes".

use std::sync::Arc;

use mayfly_mql::Matcher;
use mayfly_mql::matcher::Expr;
use mayfly_storage::{Collection, whole_range};

use super::bounds::field_bounds;
use super::{Access, Plan, choose};
use crate::language::CanonicalQuery;

/// Alternatives that are looked at.
const MAX_ALTERNATIVES: usize = 256;

/// One of several ways to documents: what it asks for, and how it reaches that.
#[derive(Clone)]
pub struct Alternative {
    /// The alternative, and what the filter asks for beside the `$or`.
    pub query: CanonicalQuery,
    /// Its plan, which sorts nothing.
    pub plan: Plan,
}

/// A plan for the first `$or` of the filter whose alternatives all have an index.
pub(super) fn plan(collection: &Arc<Collection>, query: &CanonicalQuery) -> Option<Plan> {
    let conjuncts = query.matcher.root().conjuncts();
    let alternatives = conjuncts.iter().enumerate().find_map(|(at, conjunct)| {
        let Expr::Or(parts) = conjunct else { return None };
        let others = conjuncts.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Expr> = others.map(|(_, other)| (*other).clone()).collect();
        each(collection, query, parts, &others)
    })?;
    Some(Plan::new(Access::Alternatives(alternatives), query.sort.is_some()))
}

fn each(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    parts: &[Expr],
    others: &[Expr],
) -> Option<Vec<Alternative>> {
    if parts.len() > MAX_ALTERNATIVES {
        return None;
    }
    parts.iter().map(|part| one(collection, query, part, others)).collect()
}

fn one(
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
    part: &Expr,
    others: &[Expr],
) -> Option<Alternative> {
    let all = part.conjuncts().into_iter().chain(others).cloned().collect();
    let matcher = Arc::new(Matcher::of(Expr::and(all)).ok()?);
    let query = CanonicalQuery {
        matcher,
        sort: None,
        skip: 0,
        limit: None,
        projection: None,
        first_of: None,
        ..query.clone()
    };
    let bounds = field_bounds(query.matcher.root(), query.collation.as_deref());
    let plan = choose::best(collection, &query, &bounds);
    is_bounded(&plan).then_some(Alternative { query, plan })
}

/// Whether a plan looks at a part of its index, or of the records, only.
pub(super) fn is_bounded(plan: &Plan) -> bool {
    match &plan.access {
        Access::Index { ranges, index, .. } => {
            *ranges != [whole_range()] || index.spec.sparse() || index.is_partial()
        }
        Access::Records { ranges, .. } => *ranges != [whole_range()],
        Access::Nothing | Access::Id(_) => true,
        Access::Text(_) | Access::Near(_) | Access::Alternatives(_) => true,
    }
}

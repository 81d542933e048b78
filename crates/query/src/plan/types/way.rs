//! Ways: the lower parts of plans, before fetches, sorts and limits are added.

use mayfly_mql::SortPattern;

use super::tree::Plan;
use crate::language::CanonicalQuery;

/// A way: the lower part of a plan, which reaches records or documents. `unordered` is set if they
/// do not arrive in the requested order.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) plan: Plan,
    pub(crate) unordered: bool,
}

/// A way in the requested order.
impl From<Plan> for Way {
    fn from(plan: Plan) -> Way {
        Way { plan, unordered: false }
    }
}

/// The ways for a query, the best by rule first.
pub(crate) struct Ways {
    pub(crate) best: Way,
    /// Ways over other indexes, which a trial compares with the best.
    pub(crate) others: Vec<Way>,
    /// The parts of `best`, for an `$or` with several ways for some alternative.
    pub(crate) alternatives: Option<Box<Alternatives>>,
}

impl From<Way> for Ways {
    fn from(best: Way) -> Ways {
        Ways { best, others: Vec::new(), alternatives: None }
    }
}

/// The alternatives of an `$or`, each with its ways.
pub(crate) struct Alternatives {
    /// Each alternative as a query of its own, with its ways; the best by rule comes first.
    pub(crate) parts: Vec<(CanonicalQuery, Vec<Way>)>,
    /// The order in which the inputs are merged, if each of them gives it.
    pub(crate) merged: Option<SortPattern>,
    /// Whether results arrive in another order than the requested one.
    pub(crate) unordered: bool,
}

impl Alternatives {
    /// Whether any alternative has more than one way.
    pub(crate) fn are_several(&self) -> bool {
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
        Way { plan, unordered: self.unordered }
    }

    /// Combined ways such that each way of each alternative occurs in at least one. The first
    /// combines the ways that are best by rule.
    pub(crate) fn ways(&self) -> impl Iterator<Item = Way> {
        let most = self.parts.iter().map(|(_, ways)| ways.len()).max().unwrap_or(0);
        (0..most).map(|at| {
            let one = |ways: &[Way]| ways.get(at).or(ways.first()).cloned();
            self.way(self.parts.iter().filter_map(|(_, ways)| one(ways)))
        })
    }
}

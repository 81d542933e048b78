//! Rules for `$match`: merges adjacent ones, and moves them to the front as far as results stay the
//! same.

use mayfly_mql::Matcher;
use mayfly_mql::matcher::Expr;

use crate::stage::Step;
use crate::stage::filter::Match;

/// The filter of a `$match`.
pub(super) fn filter_of(step: &Step) -> Option<&Expr> {
    step.get::<Match>().map(|found| found.0.root())
}

/// A `$match` with all of these conditions; `None` if there are none, or if they cannot be
/// combined.
pub(super) fn filter_step(conditions: Vec<Expr>) -> Option<Step> {
    if conditions.is_empty() {
        return None;
    }
    Matcher::of(Expr::and(conditions)).ok().map(Step::filter)
}

fn conditions(filter: &Expr) -> impl Iterator<Item = Expr> {
    filter.conjuncts().into_iter().cloned()
}

/// Merges two filters.
pub(super) fn merge(steps: &mut Vec<Step>, at: usize) -> bool {
    let (Some(first), Some(second)) = (filter_of(&steps[at - 1]), filter_of(&steps[at])) else {
        return false;
    };
    let all: Vec<Expr> = conditions(first).chain(conditions(second)).collect();
    if all.is_empty() {
        steps.remove(at);
        return true;
    }
    let Some(merged) = filter_step(all) else { return false };
    steps.splice(at - 1..=at, [merged]);
    true
}

/// Moves as many conditions of a filter as possible before a stage.
pub(super) fn push(steps: &mut Vec<Step>, at: usize) -> bool {
    let Some(filter) = filter_of(&steps[at]) else { return false };
    let effect = steps[at - 1].stage().effect();
    let (mut ahead, mut staying) = (Vec::new(), Vec::new());
    for condition in conditions(filter) {
        match effect.before(&condition) {
            Some(moved) => ahead.push(moved),
            None => staying.push(condition),
        }
    }
    let Some(ahead) = filter_step(ahead) else { return false };
    if staying.is_empty() {
        steps.remove(at);
    } else if let Some(staying) = filter_step(staying) {
        steps[at] = staying;
    }
    steps.insert(at - 1, ahead);
    true
}

//! Rules for `$sort`: turns a sort before a limit into a top-k sort, and moves sorts before joins,
//! where documents are smaller and an index may give the order.

use crate::stage::Step;
use crate::stage::sort::Sort;
use crate::stage::window::{Limit, Skip};

/// Moves a sort before a join that does not change its keys.
pub(super) fn pass_joins(steps: &mut Vec<Step>, at: usize) -> bool {
    let Some(sort) = steps[at].get::<Sort>() else { return false };
    let join = steps[at - 1].stage();
    let joins = join.is_one_for_one() && !join.collections().is_empty();
    let effect = join.effect();
    let passes = joins && sort.paths().all(|path| effect.leaves(&path));
    if passes {
        steps.swap(at - 1, at);
    }
    passes
}

/// Sets the number of results of sorts before limits.
pub(super) fn limit(steps: &mut Vec<Step>) -> bool {
    for at in 0..steps.len() {
        let (front, later) = steps.split_at_mut(at + 1);
        let Some(sort) = front[at].get_mut::<Sort>() else { continue };
        let mut skipped = 0u64;
        for step in later {
            if let Some(Skip(count)) = step.get() {
                skipped = skipped.saturating_add(*count);
                continue;
            }
            sort.keep = step.get().map(|Limit(count)| skipped.saturating_add(*count));
            break;
        }
    }
    false
}

//! Sorts keep no more of their results than a limit behind them lets through.

use crate::stage::Step;
use crate::stage::sort::Sort;
use crate::stage::window::{Limit, Skip};

/// Tells them.
pub(super) fn limit(steps: &mut Vec<Step>) -> bool {
    for at in 0..steps.len() {
        let (front, behind) = steps.split_at_mut(at + 1);
        let Some(sort) = front[at].get_mut::<Sort>() else { continue };
        let mut skipped = 0u64;
        for step in behind {
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

//! Rules for `$limit` and `$skip`: merges adjacent ones, and moves them before stages with one
//! output for each input.

use mayfly_value::RawValue;

use crate::stage::window::{Limit, Skip};
use crate::stage::{Step, written};

fn shown(name: &str, count: u64) -> mayfly_value::DocBuf {
    written(name, RawValue::Int64(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Merges two limits to the smaller one.
pub(super) fn merge_limits(steps: &mut Vec<Step>, at: usize) -> bool {
    let (Some(Limit(first)), Some(Limit(second))) = (steps[at - 1].get(), steps[at].get()) else {
        return false;
    };
    let least = *first.min(second);
    steps.splice(at - 1..=at, [Step::made(Limit(least), shown("$limit", least))]);
    true
}

/// Merges two skips to their sum, unless it overflows.
pub(super) fn merge_skips(steps: &mut Vec<Step>, at: usize) -> bool {
    let (Some(Skip(first)), Some(Skip(second))) = (steps[at - 1].get(), steps[at].get()) else {
        return false;
    };
    let Some(sum) = first.checked_add(*second).filter(|sum| i64::try_from(*sum).is_ok()) else {
        return false;
    };
    steps.splice(at - 1..=at, [Step::made(Skip(sum), shown("$skip", sum))]);
    true
}

/// Moves a limit or a skip before a stage with one output for each input.
pub(super) fn pass_one_for_one(steps: &mut Vec<Step>, at: usize) -> bool {
    let counts = steps[at].is::<Limit>() || steps[at].is::<Skip>();
    let passes = counts && steps[at - 1].stage().is_one_for_one();
    if passes {
        steps.swap(at - 1, at);
    }
    passes
}

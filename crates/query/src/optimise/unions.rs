//! Moves a filter after a `$unionWith` into both of its inputs.

use super::filters::filter_of;
use crate::stage::Step;
use crate::stage::union_with::UnionWith;

/// Moves the filter.
pub(super) fn filter_both_sides(steps: &mut Vec<Step>, at: usize) -> bool {
    let Some(union) = steps[at - 1].get::<UnionWith>() else { return false };
    let Some(filter) = filter_of(&steps[at]).filter(|filter| filter.reads().is_some()) else {
        return false;
    };
    let filtered = union.filtered(filter);
    let shown = filtered.written();
    steps[at - 1] = Step::made(filtered, shown);
    steps.swap(at - 1, at);
    true
}

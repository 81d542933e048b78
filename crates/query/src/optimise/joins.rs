//! Lets joins absorb the `$unwind` of their result and conditions on it.

use super::filters::filter_of;
use crate::stage::Step;
use crate::stage::lookup::Lookup;
use crate::stage::unwind::Unwind;

/// Lets joins absorb the stages after them.
pub(super) fn fold(steps: &mut Vec<Step>) -> bool {
    let mut at = 1;
    while at < steps.len() {
        let (front, later) = steps.split_at_mut(at);
        let Some(lookup) = front[at - 1].get_mut::<Lookup>() else {
            at += 1;
            continue;
        };
        let folded = match (later[0].get::<Unwind>(), filter_of(&later[0])) {
            (Some(unwind), _) => lookup.fold(unwind),
            (None, Some(filter)) => lookup.absorb(filter),
            (None, None) => false,
        };
        let shown = lookup.written();
        front[at - 1].set_written(shown);
        if folded {
            steps.remove(at);
        } else {
            at += 1;
        }
    }
    false
}

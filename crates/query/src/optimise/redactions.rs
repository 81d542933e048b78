//! Copies conditions of a `$match` after a `$redact` to a `$match` before it. A redacted document
//! contains nothing that the original does not, so comparisons with values that hold after the
//! stage also hold before it.

use mayfly_mql::matcher::Expr;
use mayfly_value::paths::array_index;

use super::filters::{filter_of, filter_step};
use crate::stage::Step;
use crate::stage::fields::compares_only;
use crate::stage::redact::Redact;

/// Inserts the filter.
pub(super) fn filter_before(steps: &mut Vec<Step>) -> bool {
    let mut changed = false;
    for at in (1..steps.len()).rev() {
        let (true, Some(filter)) = (steps[at - 1].is::<Redact>(), filter_of(&steps[at])) else {
            continue;
        };
        let conjuncts = filter.conjuncts().into_iter();
        let safe: Vec<Expr> = conjuncts.filter(|condition| is_safe(condition)).cloned().collect();
        if let Some(before) = filter_step(safe) {
            steps.insert(at - 1, before);
            changed = true;
        }
    }
    changed
}

fn is_safe(condition: &Expr) -> bool {
    let Expr::Path { path, .. } = condition else { return false };
    // Redaction changes the positions of array items.
    let moves = path.parts().iter().any(|part| array_index(part).is_some());
    !moves && compares_only(condition)
}

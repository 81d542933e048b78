//! Drops fields that no later stage reads, before stages that buffer documents.

use crate::language::needed::Fields;
use crate::stage::Step;
use crate::stage::fields::needed_fields;
use crate::stage::filter::Match;
use crate::stage::group::Group;
use crate::stage::project::{KeepFields, Project};
use crate::stage::sort::Sort;
use crate::stage::window_fields::WindowFields;

/// The fields that the stages from an index on read, for a buffering stage at that index.
fn kept_at(steps: &[Step], at: usize) -> Option<Fields> {
    Fields::few(needed_fields(steps.get(at..)?.iter())?)
}

/// The fields for a sort that becomes a part of the planner's query.
pub(crate) fn kept_by_front_sort(steps: &[Step]) -> Option<Fields> {
    match steps {
        [sort, ..] if sort.is::<Sort>() => kept_at(steps, 0),
        [filter, sort, ..] if filter.is::<Match>() && sort.is::<Sort>() => kept_at(steps, 1),
        _ => None,
    }
}

/// Inserts a stage that drops unread fields before stages that buffer documents.
pub(super) fn narrow(steps: &mut Vec<Step>) -> bool {
    for at in (1..steps.len()).rev() {
        // This sort becomes a part of the planner's query.
        let front = at == 1 && steps[0].is::<Match>() && steps[at].is::<Sort>();
        let keeps = steps[at].is::<Sort>() || steps[at].is::<WindowFields>();
        let narrow = steps[at - 1].is::<Project>() || steps[at - 1].is::<Group>();
        if keeps
            && !front
            && !narrow
            && let Some(fields) = kept_at(steps, at)
        {
            steps.insert(at, Step::hidden(KeepFields(fields)));
        }
    }
    false
}

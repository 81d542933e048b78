//! Stages that keep documents keep the fields only that somebody behind looks at.

use crate::language::needed::Fields;
use crate::stage::Step;
use crate::stage::fields::wanted;
use crate::stage::filter::Match;
use crate::stage::group::Group;
use crate::stage::project::{Keep, Project};
use crate::stage::sort::Sort;
use crate::stage::window_fields::WindowFields;

/// What the stages from this place on look at, when the one there keeps documents.
fn kept_at(steps: &[Step], at: usize) -> Option<Fields> {
    Fields::few(wanted(steps.get(at..)?.iter())?)
}

/// What the sort keeps that the planner takes from the front of a pipeline.
pub(crate) fn kept_by_front_sort(steps: &[Step]) -> Option<Fields> {
    match steps {
        [sort, ..] if sort.is::<Sort>() => kept_at(steps, 0),
        [filter, sort, ..] if filter.is::<Match>() && sort.is::<Sort>() => kept_at(steps, 1),
        _ => None,
    }
}

/// Leaves away, before stages that keep documents, the fields that nobody behind looks at.
pub(super) fn narrow(steps: &mut Vec<Step>) -> bool {
    for at in (1..steps.len()).rev() {
        // The planner takes it.
        let front = at == 1 && steps[0].is::<Match>() && steps[at].is::<Sort>();
        let keeps = steps[at].is::<Sort>() || steps[at].is::<WindowFields>();
        let narrow = steps[at - 1].is::<Project>() || steps[at - 1].is::<Group>();
        if keeps
            && !front
            && !narrow
            && let Some(fields) = kept_at(steps, at)
        {
            steps.insert(at, Step::hidden(Keep(fields)));
        }
    }
    false
}

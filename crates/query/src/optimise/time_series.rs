//! Moves conditions on measurements to their buckets.

use mayfly_mql::matcher::Expr;

use super::filters::filter_of;
use crate::stage::Step;
use crate::stage::fields::needed_fields;
use crate::stage::filter::Match;
use crate::timeseries::OnBuckets;
use crate::timeseries::show_buckets::ShowBuckets;
use crate::timeseries::unpack::Unpack;

/// Inserts a filter on buckets at the front, which explain does not show.
fn put_first(steps: &mut Vec<Step>, filter: Option<Expr>) {
    if let Some(matcher) = filter.and_then(|filter| mayfly_mql::Matcher::of(filter).ok()) {
        steps.insert(0, Step::hidden(Match(matcher)));
    }
}

/// Passes the conditions and fields of the later stages to the stage that unpacks buckets.
pub(super) fn ask_buckets(steps: &mut Vec<Step>) -> bool {
    let Some((first, later)) = steps.split_first_mut() else { return false };
    let Some(unpack) = first.get_mut::<Unpack>() else { return false };
    unpack.needed = needed_fields(later.iter());
    let Some(filter) = later.first().and_then(filter_of) else { return false };
    let mut asked = OnBuckets::of(filter, &unpack.fields, unpack.span_ms);
    unpack.tests = std::mem::take(&mut asked.tests);
    put_first(steps, asked.filter());
    false
}

/// Moves conditions on displayed buckets to stored buckets.
pub(super) fn ask_stored_buckets(steps: &mut Vec<Step>) -> bool {
    let [first, second, ..] = &steps[..] else { return false };
    let (Some(show), Some(filter)) = (first.get::<ShowBuckets>(), filter_of(second)) else {
        return false;
    };
    let asked = show.on_stored(filter);
    put_first(steps, asked);
    false
}

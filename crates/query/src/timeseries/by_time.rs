//! Detects top-k sorts by time over measurements, and restricts the search to the buckets that they
//! need ([`super::top_k`]).

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_mql::SortPattern;
use mayfly_storage::Collection;
use mayfly_value::{DocBuilder, RawDoc, RawValue, SortOrder};
use parking_lot::Mutex;

use super::top_k::{SharedTopKTimes, TopKTimes};
use super::unpack::Unpack;
use crate::exec::Flow;
use crate::language::CanonicalQuery;
use crate::plan::plan;
use crate::stage::filter::Match;
use crate::stage::project::KeepFields;
use crate::stage::sort::Sort;
use crate::stage::{Next, Reads, Running, Stage, StageContext, Step};

/// Sorts with more results read everything.
const MAX_KEPT: u64 = 10_000;

/// Records the times of measurements that passed the filters.
#[derive(Debug)]
struct NoteTimes {
    field: String,
    top_k: SharedTopKTimes,
}

impl Stage for NoteTimes {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        self
    }

    fn reads(&self) -> Reads {
        Reads::some([self.field.clone()])
    }
}

impl Running for NoteTimes {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        match document.get(&self.field) {
            Some(RawValue::Date(time)) if !self.top_k.lock().note(time) => Ok(Flow::More),
            _ => next(document),
        }
    }
}

/// Prepares a top-k search by time, if these stages are one. The query then finds buckets in the
/// order of their starts, if that needs no sort.
///
/// # Errors
/// Errors of planning.
pub(crate) fn prepare(
    collection: &Arc<Collection>,
    query: &mut CanonicalQuery,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let Some((first, later)) = steps.split_first_mut() else { return Ok(()) };
    let Some(unpack) = first.get_mut::<Unpack>() else { return Ok(()) };
    let filters = later.iter().take_while(|step| step.is::<Match>()).count();
    let mut rest = later[filters..].iter().skip_while(|step| step.is::<KeepFields>());
    let Some(Sort { pattern, keep: Some(kept), .. }) = rest.next().and_then(Step::get::<Sort>)
    else {
        return Ok(());
    };
    let Some(time_order) = by_time(pattern, unpack) else { return Ok(()) };
    if !(1..=MAX_KEPT).contains(kept) || query.sort.is_some() {
        return Ok(());
    }
    let mut order = DocBuilder::new();
    order.append(&format!("control.min.{}", unpack.fields.time), time_order.sign());
    let sort = Some(SortPattern::parse(order.finish().as_doc())?);
    let ordered = CanonicalQuery { sort, ..query.clone() };
    let in_order = !plan(collection, &ordered)?.blocking_sort();
    if in_order {
        *query = ordered;
    }
    let top_k = TopKTimes::new(time_order, *kept as usize, unpack.span_ms);
    let top_k = if in_order { top_k.in_order() } else { top_k };
    let top_k = Arc::new(Mutex::new(top_k));
    let field = unpack.fields.time.clone();
    unpack.top_k = Some(top_k.clone());
    steps.insert(1 + filters, Step::hidden(NoteTimes { field, top_k }));
    Ok(())
}

/// The order of a sort by time; `None` if time is not its first field.
fn by_time(pattern: &SortPattern, unpack: &Unpack) -> Option<SortOrder> {
    if pattern.has_metadata() {
        return None;
    }
    let first = pattern.fields().first()?;
    (first.path.as_str() == unpack.fields.time).then_some(first.order)
}

//! `rawData`: the command reads or writes the buckets of a time series. It has no effect on other
//! collections. Manual: "Time Series Collections", the argument `rawData` of commands.

use mayfly_storage::{ReadView, Store};

use crate::request::Request;

/// Whether the value of a command names a time series.
#[cold]
pub(crate) fn names_series(store: &Store, request: &Request<'_>) -> bool {
    let named = request.namespace().ok();
    named.is_some_and(|ns| store.time_series_named(&ReadView::now(), &ns).is_some())
}

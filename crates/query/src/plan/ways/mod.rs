//! Ways to the documents of a query: over each candidate, over records, by text and by distance,
//! and their ranking by rule.

pub(crate) mod hinted;
pub(crate) mod index;
mod merging;
pub(crate) mod near;
pub(crate) mod ranking;
pub(crate) mod records;
pub(crate) mod text;

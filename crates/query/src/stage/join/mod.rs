//! Common parts of joins: the filter for the values of a document, the other collection as a table,
//! and the choice between index and table.

mod choice;
mod stats;
mod table;
mod values;

pub(super) use choice::Choice;
pub(super) use stats::{Examined, JoinStats};
pub(super) use table::JoinTable;
pub(super) use values::{equality_filter, local_values};

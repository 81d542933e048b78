//! What joins have in common: the values of a document as a filter, the other collection as a table by values, and the choice between
//! asking for each document and reading that table.

mod choice;
mod stats;
mod table;
mod values;

pub(super) use choice::Choice;
pub(super) use stats::{Examined, JoinStats};
pub(super) use table::JoinTable;
pub(super) use values::{equality_filter, local_values};

//! Indexes as values: definitions and their rules, the kinds of indexes, the keys of a document,
//! and the filters and validators in a collection's definition.
//!
//! This module does not access the byte store.

pub(crate) mod building;
mod filter;
mod id_index;
pub(crate) mod keygen;
pub mod kinds;
pub(crate) mod range;
pub(crate) mod sorter;
pub(crate) mod spec;
pub(crate) mod validation;

pub use filter::{FilterCompiler, RecordFilter};
pub use id_index::check_id_index;
pub use spec::{IndexField, IndexSpec};
pub use validation::{DocumentCheck, WriteTime};

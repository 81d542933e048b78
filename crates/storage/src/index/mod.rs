//! Indexes as values: definitions and their rules, the kinds of indexes, the keys that a document has, and the filters and
//! validators that a collection's definition holds.
//!
//! Nothing here reads or writes the byte store.

pub(crate) mod building;
mod filter;
pub(crate) mod keygen;
pub mod kinds;
pub(crate) mod range;
pub(crate) mod sorter;
pub(crate) mod spec;
pub(crate) mod validation;

pub use filter::{FilterCompiler, RecordFilter};
pub use spec::{IndexField, IndexSpec};
pub use validation::DocumentCheck;

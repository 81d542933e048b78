//! BSON as bytes and as values: borrowed access, building, comparison order and collations,
//! numbers, dotted paths and order-preserving keys.
//!
//! Pure and synchronous: no IO, no clock. Geometry and text analysis are crates of their own
//! (`geo`, `text`): they read values, and BSON does not depend on them.

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
pub mod arguments;
mod build;
mod changed_path;
pub mod collation;
pub mod compare;
pub mod decimal;
mod depth;
pub mod extjson;
mod hashed;
pub mod keys;
mod names;
pub mod number;
mod object_id;
pub mod paths;
pub mod raw;
mod set;
pub mod shell;
mod size;
mod sort_order;
mod validate;

pub use bson;
pub use build::DocBuilder;
pub use changed_path::{ChangedPath, PathWrite};
pub use collation::{Collation, same_collation};
pub use compare::{canonical_type, compare_docs, compare_values, compare_values_in, equal_values};
pub use depth::check_depth;
pub use hashed::hashed_key;
pub use names::Names;
pub use number::Number;
pub use object_id::new_object_id;
pub use raw::{DocBuf, Finder, RawDoc, RawElement, RawIter, RawValue, ValueBuf, ty, type_name};
pub use set::ValueSet;
pub use size::check_size;
pub use sort_order::SortOrder;
pub use validate::validate;

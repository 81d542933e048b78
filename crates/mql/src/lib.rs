//! The query language: matcher, projection, sort patterns, update operators; pure and synchronous.
//!
//! Every construct is parsed once into a tree that the planner can read, and then evaluated over
//! borrowed bytes.

mod field_path;
pub mod matcher;
pub mod projection;
pub mod sort;
pub mod update;

#[cfg(test)]
mod robustness;

pub use field_path::FieldPath;
pub use matcher::{Matcher, ParseContext};
pub use projection::{Projection, ProjectionKind};
pub use sort::{SortField, SortPattern};
pub use update::{Update, UpdateContext, Upserted};

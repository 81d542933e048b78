//! Parsed and checked requests: the query, its shape, metadata, field lists, the filters and
//! validators that storage uses, and the views that search indexes can be on.

mod allowed;
mod canonical;
mod everything;
pub(crate) mod metadata;
pub(crate) mod needed;
pub(crate) mod partial;
mod query_shape;
#[cfg(test)]
mod query_shape_tests;
pub(crate) mod searched_view;
pub(crate) mod shape;
mod stage_shape;
pub(crate) mod validator;

pub use allowed::{AllowedBy, AllowedIndexes, IndexHints};
pub(crate) use canonical::sorts_by_score;
pub use canonical::{CanonicalQuery, FindOptions, FirstOf, Hint};
pub use query_shape::{QueryShape, QueryShapeHash};
pub use searched_view::SearchedView;
pub use shape::PlanShape;
pub(crate) use stage_shape::ShapeOf;
pub use stage_shape::StageShape;

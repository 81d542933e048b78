//! The conditions of a filter: bounds for each path, and which filters imply which.

pub(crate) mod implication;
pub(crate) mod operators;
pub(crate) mod point;
pub(crate) mod reader;

//! BSON as bytes and as values: borrowed access, building, comparison order, numbers, dotted paths and
//! order-preserving keys.
//!
//! Pure and synchronous: no IO, no clock.

mod build;
pub mod raw;
pub mod shell;

pub use bson;
pub use build::DocBuilder;
pub use raw::{DocBuf, RawDoc, RawElement, RawIter, RawValue, ValueBuf, ty, type_name};

//! Aggregation expressions and accumulators; pure and synchronous.
//!
//! An expression is parsed once and evaluated over borrowed documents; it owns only what it constructs. The tables
//! [`op::ROWS`] and [`accum::ROWS`] say what exists, so that "unrecognized" and "not implemented" stay apart.

pub mod accum;
mod expression;
pub mod op;

pub use expression::Expression;

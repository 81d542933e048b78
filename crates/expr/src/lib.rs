//! Aggregation expressions, accumulators and window functions; pure and synchronous.
//!
//! An expression is parsed once and evaluated over borrowed documents; it owns only values that it
//! constructs. The tables [`op::rows`], [`accum::ROWS`] and [`window::ROWS`] list all operators, so
//! that "unrecognized" and "not implemented" can be distinguished. Regular expressions and
//! JavaScript are crates of their own (`pattern`, `scripts`): this crate has no unsafe code.

pub mod accum;
mod decimal;
mod dependencies;
mod equality;
mod expression;
pub mod op;
mod order;
mod parse;
mod random;
mod scope;
mod sum;
mod value;
pub mod window;

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod tests;

pub use dependencies::Dependencies;
pub use expression::{Expression, FEW_EXPRESSIONS, Frame};
pub use order::{Order, OrderField};
pub use parse::Parser;
pub use random::random_unit;
pub use scope::{OperationTime, Scope, Scripts};
pub use sum::Sum;
pub use value::Value;

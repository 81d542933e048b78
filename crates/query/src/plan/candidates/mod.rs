//! The indexes that a query may use, and what the filter bounds of each.

pub(crate) mod candidate;
pub(crate) mod geo;
mod hashed;
pub(crate) mod input;
mod plan_key;
#[cfg(test)]
mod plan_key_tests;
pub(crate) mod restriction;
mod wildcards;

//! Queries for encrypted values: the tags that answer them, a predicate for one stored value, and
//! the rewriting of filters.

mod filter;
mod predicate;
mod tags;

pub use filter::{FallbackField, FilterRewriter};
pub use predicate::ValuePredicate;
pub use tags::{DEFAULT_MAX_TAGS, TagSearch, find_tags};

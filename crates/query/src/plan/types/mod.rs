//! The types of the planner, without its decisions: intervals and bounds, candidates, scans, ways
//! and plans, the plan cache, index filters, settings.

pub(crate) mod access;
pub(crate) mod bounds;
pub(crate) mod cache;
pub(crate) mod candidate;
pub(crate) mod index_filters;
pub(crate) mod interval;
pub(crate) mod plan_key;
pub(crate) mod scan;
pub(crate) mod settings;
pub(crate) mod sort_keys;
pub(crate) mod tree;
pub(crate) mod way;

//! Aggregation expressions and accumulators; pure and synchronous.

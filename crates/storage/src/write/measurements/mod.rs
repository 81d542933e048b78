//! Writing measurements: the operations of write units on the buckets of a time series. Buckets as
//! values are in [`crate::timeseries`].

mod insert;
#[cfg(test)]
mod store_tests;
mod unit;

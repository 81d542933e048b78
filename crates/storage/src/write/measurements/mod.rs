//! Writing measurements: what write units do with the buckets of a time series. The buckets themselves, as values, are
//! [`crate::timeseries`].

mod insert;
#[cfg(test)]
mod store_tests;
mod unit;

//! Time series: measurements kept in buckets, one record for many of them.
//!
//! The collection that clients call `X` is `system.buckets.X` here; `X` itself is a view that takes its buckets apart. The story
//! of an insert:
//! 1. measurements are grouped by their meta value, bytes compared ([`crate::write`]);
//! 2. each goes into the open bucket of its group whose span it falls into; which buckets are open stands in memory, bounded,
//!    and what is not there is looked for in the store ([`open`]);
//! 3. a bucket that gets more is taken apart, added to and packed again ([`mod@bucket`], [`mod@column`]): one record, its index keys and
//!    one oplog entry in the unit's transaction.
//!
//! Clients read and restore whole buckets in the reference's format ([`exchange`]).
//!
//! Buckets are kept in the order of their start, so that whole ones expire from the low end. Expiry contract, section 7.

pub(crate) mod append;
mod bson_column;
pub(crate) mod bucket;
mod check;
mod column;
mod definition;
pub(crate) mod exchange;
mod indexes;
mod numbers;
pub(crate) mod open;
mod options;
pub(crate) mod replay;
#[cfg(test)]
mod tests;

pub use bucket::{BucketView, MeasurementFields, measurement_time};
pub use exchange::shown_bucket;
pub use indexes::shown_to_clients;
pub(crate) use indexes::{check_policy, checked_on_buckets, default_index};
pub(crate) use open::OpenBuckets;
pub use options::{BUCKETS_PREFIX, Granularity, TimeSeries};

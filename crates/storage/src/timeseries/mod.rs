//! Time series: measurements stored in buckets, many in one record.
//!
//! The collection that clients call `X` is `system.buckets.X` in the store; `X` itself is a view
//! that unpacks the buckets. An insert takes these steps:
//! 1. Measurements are grouped by their meta value, compared as bytes ([`crate::write`]).
//! 2. Each goes into the open bucket of its group whose span contains its time. A bounded number of
//!    open buckets is cached in memory; the others are found in the store ([`open`]).
//! 3. A bucket that gets more measurements is decoded, extended and packed again
//!    ([`mayfly_buckets`]): one record, its index keys and one oplog entry in the unit's
//!    transaction.
//!
//! Buckets are stored in the order of their start, so that whole buckets expire from the low end.
//! Expiry contract, section 7.

mod indexes;
pub(crate) mod open;

pub use indexes::listed_for_clients;
pub(crate) use indexes::{check_policy, checked_on_buckets, default_index};
pub(crate) use open::OpenBuckets;

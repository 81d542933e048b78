//! Time series in the store: measurements kept in buckets, one record for many of them.
//!
//! The collection that clients call `X` is `system.buckets.X` here; `X` itself is a view that takes its buckets apart. The story
//! of an insert:
//! 1. measurements are grouped by their meta value, bytes compared ([`crate::write`]);
//! 2. each goes into the open bucket of its group whose span contains its time. Memory knows some open buckets, within a bound; the
//!    others are found in the store ([`open`]);
//! 3. a bucket that gets more measurements is decoded, extended and packed again ([`mayfly_buckets`]): one record, its index keys and
//!    one oplog entry in the unit's transaction.
//!
//! Buckets are kept in the order of their start, so that whole ones expire from the low end. Expiry contract, section 7.

mod indexes;
pub(crate) mod open;

pub use indexes::shown_to_clients;
pub(crate) use indexes::{check_policy, checked_on_buckets, default_index};
pub(crate) use open::OpenBuckets;

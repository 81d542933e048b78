//! Time series: conditions on measurements as conditions on buckets, the stages that unpack and
//! display buckets, deletes and updates of measurements, and those of whole buckets.

mod by_time;
mod measurements;
mod on_buckets;
mod raw_buckets;
pub(crate) mod show_buckets;
mod top_k;
pub(crate) mod unpack;

pub(crate) use by_time::prepare;
pub use measurements::{delete_measurements, find_and_remove_measurement, update_buckets};
pub(crate) use on_buckets::OnBuckets;
pub use raw_buckets::{delete_raw_buckets, find_and_modify_raw_bucket, update_raw_buckets};

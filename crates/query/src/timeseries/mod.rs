//! Time series: conditions on measurements as conditions on buckets, the stages that unpack and
//! display buckets, and deletes and updates of measurements.

mod by_time;
mod measurements;
mod on_buckets;
pub(crate) mod show_buckets;
mod top_k;
pub(crate) mod unpack;

pub(crate) use by_time::prepare;
pub use measurements::{delete_measurements, find_and_remove_measurement, update_buckets};
pub(crate) use on_buckets::OnBuckets;

//! Time series: what a query on measurements says about their buckets, the stages that take buckets apart and show them, and
//! deletes and updates of measurements.

mod by_time;
mod foremost;
mod measurements;
mod on_buckets;
pub(crate) mod show_buckets;
pub(crate) mod unpack;

pub(crate) use by_time::prepare;
pub use measurements::{delete_measurements, find_and_remove_measurement, update_buckets};
pub(crate) use on_buckets::OnBuckets;

//! Time series: what a query on measurements says about their buckets, and the stages that take buckets apart and show them.

mod by_time;
mod foremost;
mod on_buckets;
pub(crate) mod show_buckets;
pub(crate) mod unpack;

pub(crate) use by_time::prepare;
pub(crate) use on_buckets::OnBuckets;

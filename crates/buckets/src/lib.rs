//! Buckets of time series: packing measurements into the document of a bucket, and back. A codec
//! without IO.
//!
//! A bucket contains many measurements of one source within a time span, column by column. This
//! server packs columns in its own format ([`bucket`], [`mod@column`], [`numbers`]), which is
//! smaller and can be appended to without unpacking ([`append`]). Clients read and restore buckets
//! in the reference's format: [`exchange`] converts whole buckets, [`bson_column`] their columns.
//! Both formats represent the same measurements.
//!
//! * [`TimeSeries`] is the option of a collection, [`MeasurementFields`] its special fields.
//! * [`BucketView`] reads a stored bucket, [`Bucket`] is one that is being filled or changed.
//! * [`AddedRows`] replays the log entry of an append on a bucket that may be packed differently.
//! * [`TimeSeries::check_bucket`] validates a stored bucket, for the command `validate`.
//!
//! The crate does not choose the bucket of a measurement, and does not know records, indexes or the
//! log: `storage` does. Decoders accept any bytes; malformed ones are an error, within memory
//! limits.

mod append;
mod bson_column;
mod bucket;
mod check;
mod column;
mod definition;
mod exchange;
mod fields;
mod numbers;
mod options;
mod replay;
#[cfg(test)]
mod tests;

pub use append::{Packed, packed_with};
pub use bucket::{Bucket, BucketView, MAX_MEASUREMENTS, has_room, start_key};
pub use exchange::{logged, restored, shown_bucket};
pub use fields::{MeasurementFields, measurement_time};
pub use options::{BUCKETS_PREFIX, Granularity, TimeSeries};
pub use replay::{AddedRows, is_same_bucket};

//! Buckets of time series as values: from measurements to the document of a bucket, and back. A codec without IO.
//!
//! A bucket holds many measurements of one source within a span of time, column by column. This server packs columns in a format of its
//! own ([`bucket`], [`mod@column`], [`numbers`]), because it is smaller and can be added to without unpacking ([`append`]). Clients read
//! and restore buckets in the reference's format: [`exchange`] converts whole buckets, [`bson_column`] its columns. Both formats
//! give the same measurements.
//!
//! * [`TimeSeries`] is the option of a collection, [`MeasurementFields`] the fields that it names.
//! * [`BucketView`] reads a stored bucket, [`Bucket`] is one that is being filled or changed.
//! * [`AddedRows`] replays the log's entry of an addition on a bucket that may be packed differently.
//! * [`TimeSeries::check_bucket`] is what `validate` asks of a stored bucket.
//!
//! The crate does not choose the bucket of a measurement, and does not know records, indexes or the log: `storage` does. Decoders take
//! any bytes; what no encoder wrote is an error, within bounds of memory.

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
pub use replay::AddedRows;

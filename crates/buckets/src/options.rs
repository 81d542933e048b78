//! The `timeseries` option of a collection, as stored.
//!
//! | granularity | longest span of a bucket | starts are rounded down to |
//! |---|---|---|
//! | seconds | 1 hour | a minute |
//! | minutes | 1 day | an hour |
//! | hours | 30 days | a day |
//! | custom | n seconds | n seconds |

use mayfly_base::Namespace;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use crate::fields::MeasurementFields;

/// Prefix of the names of bucket collections.
pub const BUCKETS_PREFIX: &str = "system.buckets.";

/// The expected interval between measurements of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the option")]
pub enum Granularity {
    Seconds,
    Minutes,
    Hours,
}

impl Granularity {
    /// The granularity with this name.
    pub fn of(name: &str) -> Option<Granularity> {
        [Granularity::Seconds, Granularity::Minutes, Granularity::Hours]
            .into_iter()
            .find(|granularity| granularity.name() == name)
    }

    /// The name in the option.
    pub fn name(self) -> &'static str {
        match self {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
        }
    }

    /// The longest span of a bucket, in seconds.
    pub fn max_span_secs(self) -> i64 {
        match self {
            Granularity::Seconds => 3600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }

    /// The unit to which starts of buckets are rounded down, in seconds.
    pub fn rounding_secs(self) -> i64 {
        match self {
            Granularity::Seconds => 60,
            Granularity::Minutes => 3600,
            Granularity::Hours => 86_400,
        }
    }
}

/// The parsed option of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeSeries {
    /// The special fields.
    pub fields: MeasurementFields,
    /// `None` for custom spans.
    pub granularity: Option<Granularity>,
    /// The longest span of a bucket, in seconds.
    pub max_span_secs: i64,
    /// The unit to which starts of buckets are rounded down, in seconds.
    pub rounding_secs: i64,
}

impl TimeSeries {
    /// Reads the option from the stored options of a collection.
    pub fn from_options(options: RawDoc<'_>) -> Option<TimeSeries> {
        let given = options.get("timeseries")?.as_document()?;
        let text = |name: &str| given.get(name).and_then(RawValue::as_str).map(str::to_owned);
        let number = |name: &str| {
            given.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact)
        };
        let granularity = text("granularity").as_deref().and_then(Granularity::of);
        let usual = granularity.unwrap_or(Granularity::Seconds);
        Some(TimeSeries {
            fields: MeasurementFields { time: text("timeField")?, meta: text("metaField") },
            granularity,
            max_span_secs: number("bucketMaxSpanSeconds")
                .unwrap_or(usual.max_span_secs())
                .clamp(1, 31_536_000),
            rounding_secs: number("bucketRoundingSeconds")
                .unwrap_or(usual.rounding_secs())
                .clamp(1, 31_536_000),
        })
    }

    /// The option as `listCollections` returns it.
    pub fn document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("timeField", self.fields.time.as_str());
        if let Some(meta) = &self.fields.meta {
            out.append("metaField", meta.as_str());
        }
        match self.granularity {
            Some(granularity) => {
                out.append("granularity", granularity.name());
            }
            None => {
                out.append("bucketRoundingSeconds", self.rounding_secs as i32);
            }
        }
        out.append("bucketMaxSpanSeconds", self.max_span_secs as i32);
        out.finish()
    }

    /// The start of the bucket that begins with this measurement.
    pub fn start_of(&self, time_ms: i64) -> i64 {
        let rounding = self.rounding_secs * 1000;
        time_ms.checked_sub(time_ms.rem_euclid(rounding)).unwrap_or(time_ms)
    }

    /// Whether a measurement is within the span of a bucket with this start.
    pub fn spans(&self, start_ms: i64, time_ms: i64) -> bool {
        let after = i128::from(time_ms) - i128::from(start_ms);
        (0..i128::from(self.max_span_secs) * 1000).contains(&after)
    }

    /// The bucket collection of a time series; `None` when the name is too long.
    pub fn buckets_of(ns: &Namespace) -> Option<Namespace> {
        Namespace::new(ns.db(), &format!("{BUCKETS_PREFIX}{}", ns.collection())).ok()
    }

    /// The name of the time series of a bucket collection.
    pub fn name_of(buckets: &Namespace) -> Option<&str> {
        buckets.collection().strip_prefix(BUCKETS_PREFIX)
    }
}

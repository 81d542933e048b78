//! The `timeseries` option of `create` and `$out`, and its changes by `collMod`. Manual: "create",
//! "timeseries"; "$out", "Syntax"; expiry contract, section 7.4.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawDoc;
use mayfly_value::arguments::{Argument, Fields};

use crate::fields::MeasurementFields;
use crate::options::{Granularity, TimeSeries};

/// Longest span of a bucket, in seconds: a year.
const MAX_SPAN_SECS: i64 = 31_536_000;

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

const NAMES: &[&str] = &["seconds", "minutes", "hours"];

const GRANULARITY: Argument = Argument::choice("granularity", NAMES);
const MAX_SPAN: Argument =
    Argument::whole("bucketMaxSpanSeconds").at_least(1).at_most(MAX_SPAN_SECS);
const ROUNDING: Argument =
    Argument::whole("bucketRoundingSeconds").at_least(1).at_most(MAX_SPAN_SECS);
/// The fields of the option when a series is created.
const CREATED: &[Argument] = &[
    Argument::string("timeField").required(),
    Argument::string("metaField"),
    GRANULARITY,
    MAX_SPAN,
    ROUNDING,
];
/// The fields of the option when a series is changed.
const CHANGED: &[Argument] = &[GRANULARITY, MAX_SPAN, ROUNDING];

/// The options that determine the span of buckets.
struct SpanOptions {
    granularity: Option<Granularity>,
    max_span: Option<i64>,
    rounding: Option<i64>,
}

impl SpanOptions {
    fn parse(fields: &Fields<'_>) -> Result<SpanOptions> {
        Ok(SpanOptions {
            granularity: fields.string("granularity")?.and_then(Granularity::of),
            max_span: fields.long("bucketMaxSpanSeconds")?,
            rounding: fields.long("bucketRoundingSeconds")?,
        })
    }

    /// Custom span and rounding; `None` when they follow from a granularity.
    fn own(&self) -> Result<Option<(i64, i64)>> {
        if let Some(granularity) = self.granularity {
            // The span that listings return may be given again; they return no rounding.
            let usual = granularity.max_span_secs();
            if self.rounding.is_none() && self.max_span.is_none_or(|given| given == usual) {
                return Ok(None);
            }
            return Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' cannot be set together with 'granularity', \
                 except for the default value of 'bucketMaxSpanSeconds'",
            ));
        }
        match (self.max_span, self.rounding) {
            (None, None) => Ok(None),
            (Some(span), Some(rounding)) if span == rounding => Ok(Some((span, rounding))),
            (Some(_), Some(_)) => Err(invalid(
                "Timeseries 'bucketRoundingSeconds' needs to be equal to 'bucketMaxSpanSeconds'",
            )),
            _ => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set alongside each other",
            )),
        }
    }
}

impl TimeSeries {
    /// Parses the option; `path` is its name in errors.
    ///
    /// # Errors
    /// 40414, 40415, 14, 2 and 72 for its fields.
    pub fn parse(given: RawDoc<'_>, path: &str) -> Result<TimeSeries> {
        let members = Fields::read(given, path, CREATED)?;
        let time = members.string("timeField")?.ok_or_else(|| members.missing("timeField"))?;
        let meta = members.string("metaField")?;
        for (name, value) in [("timeField", Some(time)), ("metaField", meta)] {
            let Some(value) = value else { continue };
            if value.contains('\0') {
                let text = format!("'{name}' cannot contain embedded null bytes");
                return Err(Error::bad_value(text));
            }
            if value.contains('.') {
                let text = format!("'{name}' must be a top-level field and not contain a '.'");
                return Err(invalid(text));
            }
        }
        if meta == Some("_id") {
            return Err(invalid("'metaField' cannot be \"_id\""));
        }
        if meta == Some(time) {
            return Err(invalid("'metaField' cannot be the same as 'timeField'"));
        }
        let spans = SpanOptions::parse(&members)?;
        let fields = MeasurementFields { time: time.to_owned(), meta: meta.map(str::to_owned) };
        let Some((span, rounding)) = spans.own()? else {
            let granularity = spans.granularity.unwrap_or(Granularity::Seconds);
            return Ok(TimeSeries::with_granularity(fields, granularity));
        };
        Ok(TimeSeries { fields, granularity: None, max_span_secs: span, rounding_secs: rounding })
    }

    fn with_granularity(fields: MeasurementFields, granularity: Granularity) -> TimeSeries {
        TimeSeries {
            fields,
            granularity: Some(granularity),
            max_span_secs: granularity.max_span_secs(),
            rounding_secs: granularity.rounding_secs(),
        }
    }

    /// The option changed by `collMod: { timeseries: { ... } }`: spans can only grow.
    ///
    /// # Errors
    /// 72 for smaller spans, errors of the fields.
    pub fn grown(&self, given: RawDoc<'_>) -> Result<TimeSeries> {
        let spans = SpanOptions::parse(&Fields::read(given, "collMod.timeseries", CHANGED)?)?;
        let fields = self.fields.clone();
        if let Some((span, rounding)) = spans.own()? {
            if span < self.max_span_secs || rounding < self.rounding_secs {
                return Err(invalid(
                    "Invalid transition for timeseries.bucketMaxSpanSeconds and timeseries.bucketRoundingSeconds: they \
                     cannot decrease",
                ));
            }
            let (max_span_secs, rounding_secs) = (span, rounding);
            return Ok(TimeSeries { fields, granularity: None, max_span_secs, rounding_secs });
        }
        let Some(granularity) = spans.granularity else { return Ok(self.clone()) };
        let longer = match self.granularity {
            Some(before) => granularity >= before,
            None => {
                granularity.max_span_secs() >= self.max_span_secs
                    && granularity.rounding_secs() >= self.rounding_secs
            }
        };
        if !longer {
            return Err(invalid(
                "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or \
                 'minutes' to 'hours'.",
            ));
        }
        Ok(TimeSeries::with_granularity(fields, granularity))
    }
}

//! The `timeseries` option of `create` and `$out`, and its changes by `collMod`. Manual: "create",
//! "timeseries"; "$out", "Syntax"; expiry contract, section 7.4.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawDoc, RawValue};

use crate::fields::MeasurementFields;
use crate::options::{Granularity, TimeSeries};

/// Longest span of a bucket, in seconds: a year.
const MAX_SPAN_SECS: i64 = 31_536_000;

const SPANS: &[&str] = &["granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"];

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

/// The option's fields; null counts as absent.
#[derive(Clone, Copy)]
struct OptionFields<'a> {
    doc: RawDoc<'a>,
    /// The name of the option in errors.
    path: &'a str,
}

impl<'a> OptionFields<'a> {
    fn strict(doc: RawDoc<'a>, path: &'a str, known: &[&str]) -> Result<OptionFields<'a>> {
        let unknown = doc
            .iter()
            .find(|member| !SPANS.contains(&member.name()) && !known.contains(&member.name()));
        match unknown {
            Some(member) => Err(Error::new(
                ErrorCode(40415),
                format!("BSON field '{path}.{}' is an unknown field.", member.name()),
            )),
            None => Ok(OptionFields { doc, path }),
        }
    }

    fn get(self, name: &str) -> Option<RawValue<'a>> {
        self.doc.get(name).filter(|it| !matches!(it, RawValue::Null | RawValue::Undefined))
    }

    fn wrong(self, name: &str, value: RawValue<'_>, expected: &str) -> Error {
        Error::type_mismatch(format!(
            "BSON field '{}.{name}' is the wrong type '{}', expected {expected}",
            self.path,
            value.type_name()
        ))
    }

    fn string(self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, other, "type 'string'")),
        }
    }

    fn seconds(self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let seconds = match value {
            RawValue::Int32(number) => i64::from(number),
            RawValue::Int64(number) => number,
            // Fractions are truncated, NaN is 0.
            RawValue::Double(number) => number as i64,
            RawValue::Decimal128(_) => Number::from_value(value).map_or(0, |n| n.to_f64() as i64),
            other => return Err(self.wrong(name, other, "types '[long, int, decimal, double]'")),
        };
        let bound = |relation: &str, bound: i64| {
            Err(Error::bad_value(format!(
                "BSON field '{name}' value must be {relation} {bound}, actual value '{seconds}'"
            )))
        };
        match seconds {
            ..1 => bound(">=", 1),
            1..=MAX_SPAN_SECS => Ok(Some(seconds)),
            _ => bound("<=", MAX_SPAN_SECS),
        }
    }
}

/// The options that determine the span of buckets.
struct SpanOptions {
    granularity: Option<Granularity>,
    max_span: Option<i64>,
    rounding: Option<i64>,
}

impl SpanOptions {
    fn parse(members: OptionFields<'_>) -> Result<SpanOptions> {
        let granularity = members.string("granularity")?.map(|name| {
            Granularity::of(name).ok_or_else(|| {
                Error::bad_value(format!(
                    "Enumeration value '{name}' for field '{}.granularity' is not a valid value.",
                    members.path
                ))
            })
        });
        Ok(SpanOptions {
            granularity: granularity.transpose()?,
            max_span: members.seconds("bucketMaxSpanSeconds")?,
            rounding: members.seconds("bucketRoundingSeconds")?,
        })
    }

    /// Custom span and rounding; `None` when they follow from a granularity.
    fn own(&self) -> Result<Option<(i64, i64)>> {
        if let Some(granularity) = self.granularity {
            let usual = |given: Option<i64>, usual| given.is_none_or(|given| given == usual);
            // The values that listings return may be given again.
            if usual(self.max_span, granularity.max_span_secs())
                && usual(self.rounding, granularity.rounding_secs())
            {
                return Ok(None);
            }
            return Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' cannot be set together with 'granularity', \
                 unless they have its default values",
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
        let members = OptionFields::strict(given, path, &["timeField", "metaField"])?;
        let Some(time) = members.string("timeField")? else {
            let text = format!("BSON field '{path}.timeField' is missing but a required field");
            return Err(Error::new(ErrorCode(40414), text));
        };
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
        let spans = SpanOptions::parse(members)?;
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
        let spans = SpanOptions::parse(OptionFields::strict(given, "collMod.timeseries", &[])?)?;
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
        let by_one = match self.granularity {
            Some(before) => granularity >= before && granularity as u8 - before as u8 <= 1,
            None => {
                granularity.max_span_secs() >= self.max_span_secs
                    && granularity.rounding_secs() >= self.rounding_secs
            }
        };
        if !by_one {
            return Err(invalid(
                "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or \
                 'minutes' to 'hours'.",
            ));
        }
        Ok(TimeSeries::with_granularity(fields, granularity))
    }
}

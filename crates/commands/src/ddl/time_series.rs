//! The parts of `create` and `collMod` that are about time series. Expiry contract, sections 7.1 and 7.4; manual: "create",
//! "timeseries", "collMod", "timeseries".

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::ttl::value::expire_after_for_collection;
use mayfly_storage::{Granularity, MeasurementFields, TimeSeries};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::options::{Defining, invalid, policy};
use crate::{CommandContext, Fields};

/// Options that a time series cannot have.
const INCOMPATIBLE: &[&str] = &[
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "idIndex",
    "autoIndexId",
    "viewOn",
    "pipeline",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
];

/// Longest span of a bucket, in seconds: a year.
const MAX_SPAN_SECS: i64 = 31_536_000;

/// Creates a time series.
///
/// # Errors
/// 72, 2, 14, 40414, 40415 for its options; 48 NamespaceExists for a name that is taken.
pub(super) fn create(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    given: RawDoc<'_>,
    defining: &Defining<'_>,
) -> Result<()> {
    let ns = defining.ns;
    for name in INCOMPATIBLE.iter().filter(|name| fields.get(name).is_some()) {
        if fields.get(name) != Some(RawValue::Bool(false)) {
            return Err(invalid(format!("'timeseries' is not allowed with '{name}'")));
        }
    }
    if fields.document("collation")?.is_some_and(|collation| !collation.is_empty()) {
        return Err(Error::not_implemented("the collation of a time series"));
    }
    let series = parse(given)?;
    let mut options = DocBuilder::new();
    if let Some(value) = fields.get("expireAfterSeconds") {
        let seconds = expire_after_for_collection(value, defining.now_ms, defining.rules)?;
        options.append("expireAfterSeconds", seconds);
    }
    options.append("timeseries", &series.document());
    policy(fields, &mut options)?;
    if let Some(ttl) = fields.get("ttl") {
        ctx.service.store.check_collection_policy(defining.ns, ttl, true)?;
    }
    let options = options.finish();
    let store = &ctx.service.store;
    let Some(buckets) = TimeSeries::buckets_of(ns) else {
        let text = format!("Fully qualified namespace is too long: '{ns}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    };
    if let Some((existing, _)) = store.time_series_named(ns) {
        return match existing.options() == options {
            true => Ok(()),
            false => Err(exists(ns)),
        };
    }
    if store.collection(ns).is_some() || store.view(ns)?.is_some() {
        return Err(exists(ns));
    }
    match store.create_collection(&buckets, options) {
        Err(error) if error.code() == ErrorCode::NamespaceExists => Err(exists(ns)),
        other => other.map(|_| ()),
    }
}

fn exists(ns: &Namespace) -> Error {
    Error::new(ErrorCode::NamespaceExists, format!("Collection {ns} already exists."))
}

/// The option as it was given to `create`.
fn parse(given: RawDoc<'_>) -> Result<TimeSeries> {
    let known =
        &["timeField", "metaField", "granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"];
    let fields = Fields::strict(given, "create.timeseries", known)?;
    let time = fields.string("timeField")?.ok_or_else(|| fields.missing("timeField"))?;
    let meta = fields.string("metaField")?;
    for (name, value) in [("timeField", Some(time)), ("metaField", meta)] {
        let Some(value) = value else { continue };
        if value.contains('\0') {
            return Err(Error::bad_value(format!("'{name}' cannot contain embedded null bytes")));
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
    let spans = Spans::parse(&fields)?;
    let fields = MeasurementFields { time: time.to_owned(), meta: meta.map(str::to_owned) };
    let Some((span, rounding)) = spans.own()? else {
        let granularity = spans.granularity.unwrap_or(Granularity::Seconds);
        return Ok(with_granularity(fields, granularity));
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

/// What was said about spans of buckets.
struct Spans {
    granularity: Option<Granularity>,
    max_span: Option<i64>,
    rounding: Option<i64>,
}

impl Spans {
    fn parse(fields: &Fields<'_>) -> Result<Spans> {
        let granularity = fields.string("granularity")?.map(|name| {
            Granularity::of(name).ok_or_else(|| {
                Error::bad_value(format!(
                    "Enumeration value '{name}' for field '{}' is not a valid value.",
                    fields.path_of("granularity")
                ))
            })
        });
        let seconds = |name: &str| match fields.long(name)? {
            Some(seconds) if seconds < 1 => Err(Error::bad_value(format!(
                "BSON field '{name}' value must be >= 1, actual value '{seconds}'"
            ))),
            Some(seconds) if seconds > MAX_SPAN_SECS => Err(Error::bad_value(format!(
                "BSON field '{name}' value must be <= {MAX_SPAN_SECS}, actual value '{seconds}'"
            ))),
            seconds => Ok(seconds),
        };
        Ok(Spans {
            granularity: granularity.transpose()?,
            max_span: seconds("bucketMaxSpanSeconds")?,
            rounding: seconds("bucketRoundingSeconds")?,
        })
    }

    /// Span and rounding of their own, when they do not follow from a granularity.
    fn own(&self) -> Result<Option<(i64, i64)>> {
        if let Some(granularity) = self.granularity {
            let usual = |given: Option<i64>, usual| given.is_none_or(|given| given == usual);
            // What listings show can be given again.
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

/// The options with what `collMod: { timeseries: { ... } }` says: spans only grow.
///
/// # Errors
/// 72 for what would shrink them, those of the members.
pub(super) fn changed(old: RawDoc<'_>, series: &TimeSeries, given: RawDoc<'_>) -> Result<DocBuf> {
    let known = &["granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"];
    let spans = Spans::parse(&Fields::strict(given, "collMod.timeseries", known)?)?;
    let fields = series.fields.clone();
    let new = match (spans.own()?, spans.granularity) {
        (Some((span, rounding)), _) => {
            if span < series.max_span_secs || rounding < series.rounding_secs {
                return Err(invalid(
                    "Invalid transition for timeseries.bucketMaxSpanSeconds and timeseries.bucketRoundingSeconds: they \
                     cannot decrease",
                ));
            }
            TimeSeries { fields, granularity: None, max_span_secs: span, rounding_secs: rounding }
        }
        (None, Some(granularity)) => {
            let by_one = match series.granularity {
                Some(before) => granularity >= before && granularity as u8 - before as u8 <= 1,
                None => {
                    granularity.max_span_secs() >= series.max_span_secs
                        && granularity.rounding_secs() >= series.rounding_secs
                }
            };
            if !by_one {
                return Err(invalid(
                    "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or \
                     'minutes' to 'hours'.",
                ));
            }
            with_granularity(fields, granularity)
        }
        (None, None) => series.clone(),
    };
    let mut out = DocBuilder::new();
    for element in old {
        match element.name() {
            "timeseries" => out.append("timeseries", &new.document()),
            _ => out.append_element(element),
        };
    }
    Ok(out.finish())
}

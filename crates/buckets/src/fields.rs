//! The fields that a time series names, and how paths of measurements look on buckets.
//!
//! ```text
//! measurements   buckets
//! meta, meta.x   meta, meta.x
//! others         control.min.<field>, control.max.<field>   (of a descending key: max before min)
//! ```

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

/// The fields that a collection of measurements names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementFields {
    /// The one that holds the time.
    pub time: String,
    /// The one that says whose measurement it is.
    pub meta: Option<String>,
}

impl MeasurementFields {
    /// The path on buckets of one at or below the meta field; nothing for other paths.
    pub fn on_bucket_meta(&self, path: &str) -> Option<String> {
        let below = path.strip_prefix(self.meta.as_deref()?)?;
        (below.is_empty() || below.starts_with('.')).then(|| format!("meta{below}"))
    }

    /// A key pattern of measurements as it stands on buckets.
    pub fn key_on_buckets(&self, key: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        for field in key {
            self.append_key_on_buckets(&mut out, field.name(), field.value());
        }
        out.finish()
    }

    /// Appends the fields of a key pattern on buckets that stand for one of measurements.
    pub fn append_key_on_buckets(&self, out: &mut DocBuilder, path: &str, order: RawValue<'_>) {
        if let Some(path) = self.on_bucket_meta(path) {
            out.append(&path, order);
            return;
        }
        let descending = Number::from_value(order).is_some_and(|order| order.to_f64() < 0.0);
        let sides = if descending { ["max", "min"] } else { ["min", "max"] };
        for side in sides {
            out.append(&format!("control.{side}.{path}"), order);
        }
    }

    /// A filter on the meta field as one on buckets. The caller has parsed it, so that its depth is bounded.
    pub fn filter_on_bucket_meta(&self, filter: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        for element in filter {
            match (element.name(), element.value()) {
                (name, RawValue::Array(items)) if name.starts_with('$') => {
                    out.start_array(name);
                    for item in items {
                        match item.value() {
                            RawValue::Document(inner) => {
                                out.push(&self.filter_on_bucket_meta(inner))
                            }
                            other => out.push(other),
                        };
                    }
                    out.end();
                }
                (name, _) => {
                    let path = self.on_bucket_meta(name);
                    out.append_renamed(path.as_deref().unwrap_or(name).as_bytes(), element);
                }
            }
        }
        out.finish()
    }
}

/// The time of a measurement.
///
/// # Errors
/// 2 BadValue when it has none.
pub fn measurement_time(measurement: RawDoc<'_>, fields: &MeasurementFields) -> Result<i64> {
    match measurement.get(&fields.time) {
        Some(RawValue::Date(date)) => Ok(date),
        _ => Err(Error::bad_value(format!(
            "'{}' must be present and contain a valid BSON UTC datetime value",
            fields.time
        ))),
    }
}

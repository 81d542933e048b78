//! The fields of a time series, and the translation of paths of measurements to paths of buckets.
//!
//! ```text
//! measurements   buckets
//! meta, meta.x   meta, meta.x
//! others         control.min.<field>, control.max.<field>   (for a descending key: max before min)
//! ```

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

/// The special fields of a time series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementFields {
    /// The field with the time.
    pub time: String,
    /// The field that identifies the source of a measurement.
    pub meta: Option<String>,
}

impl MeasurementFields {
    /// The bucket path of a path at or below the meta field; `None` for other paths.
    pub fn on_bucket_meta(&self, path: &str) -> Option<String> {
        let below = path.strip_prefix(self.meta.as_deref()?)?;
        (below.is_empty() || below.starts_with('.')).then(|| format!("meta{below}"))
    }

    /// Translates a key pattern of measurements to one of buckets.
    pub fn key_on_buckets(&self, key: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        for field in key {
            self.append_key_on_buckets(&mut out, field.name(), field.value());
        }
        out.finish()
    }

    /// Appends the bucket fields of one field of a key pattern.
    pub fn append_key_on_buckets(&self, out: &mut DocBuilder, path: &str, order: RawValue<'_>) {
        if let Some(path) = self.on_bucket_meta(path) {
            out.append(&path, order);
            return;
        }
        let descending = Number::from_value(order).is_some_and(|order| order.to_f64() < 0.0);
        let sides = if descending { ["max", "min"] } else { ["min", "max"] };
        // The bounds of places have an order, but no shape.
        let order = if let RawValue::String(_) = order { RawValue::Int32(1) } else { order };
        for side in sides {
            out.append(&format!("control.{side}.{path}"), order);
        }
    }

    /// Translates a filter on the meta field to one on buckets. The caller has parsed the filter,
    /// so its depth is bounded.
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
                ("$jsonSchema", RawValue::Document(schema)) => {
                    match self.schema_on_bucket_meta(schema) {
                        Some(schema) => out.append("$jsonSchema", &schema),
                        None => out.append_element(element),
                    };
                }
                (name, _) => {
                    let path = self.on_bucket_meta(name);
                    out.append_renamed(path.as_deref().unwrap_or(name).as_bytes(), element);
                }
            }
        }
        out.finish()
    }

    /// Translates a schema of measurements to one of buckets; `None` if it names other fields than
    /// the meta field.
    pub fn schema_on_bucket_meta(&self, schema: RawDoc<'_>) -> Option<DocBuf> {
        let meta = self.meta.as_deref()?;
        let mut out = DocBuilder::new();
        for element in schema {
            match (element.name(), element.value()) {
                ("required", RawValue::Array(names)) => {
                    out.start_array("required");
                    for name in names {
                        out.push((name.value() == RawValue::String(meta)).then_some("meta")?);
                    }
                    out.end();
                }
                ("properties", RawValue::Document(properties)) => {
                    out.start_document("properties");
                    for property in properties {
                        let name = (property.name() == meta).then_some("meta")?;
                        out.append_renamed(name.as_bytes(), property);
                    }
                    out.end();
                }
                _ => {
                    out.append_element(element);
                }
            }
        }
        Some(out.finish())
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

//! Indexes of a collection of measurements: what clients ask for, and what stands on the buckets.
//!
//! ```text
//! asked for      on buckets
//! meta, meta.x   meta, meta.x
//! others         control.min.<field>, control.max.<field>   (descending: max before min)
//! ```
//!
//! The definition on the buckets carries what was asked for as `originalSpec`.

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::MeasurementFields;
use crate::index_spec::{IndexSpec, as_f64};

/// The index that a collection with a meta field gets.
pub(crate) fn default_index(fields: &MeasurementFields) -> Result<Option<IndexSpec>> {
    let Some(meta) = &fields.meta else { return Ok(None) };
    let mut asked = DocBuilder::new();
    asked.append("v", 2).start_document("key").append(meta, 1).append(&fields.time, 1).end();
    asked.append("name", format!("{meta}_1_{}_1", fields.time).as_str());
    IndexSpec::from_catalog(on_buckets(asked.finish().as_doc(), fields)).map(Some)
}

/// What stands on the buckets for a definition that was checked.
pub(crate) fn on_buckets(asked: RawDoc<'_>, fields: &MeasurementFields) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in asked {
        match (element.name(), element.value()) {
            ("key", RawValue::Document(key)) => {
                out.start_document("key");
                for field in key {
                    append_key(&mut out, field.name(), field.value(), fields);
                }
                out.end();
            }
            ("partialFilterExpression", RawValue::Document(filter)) => {
                let renamed = fields.filter_on_bucket_meta(filter);
                out.append("partialFilterExpression", &renamed);
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.append("originalSpec", asked);
    out.finish()
}

fn append_key(out: &mut DocBuilder, path: &str, order: RawValue<'_>, fields: &MeasurementFields) {
    if let Some(path) = fields.on_bucket_meta(path) {
        out.append(&path, order);
        return;
    }
    let descending = as_f64(order).is_some_and(|order| order < 0.0);
    let sides = if descending { ["max", "min"] } else { ["min", "max"] };
    for side in sides {
        out.append(&format!("control.{side}.{path}"), order);
    }
}

impl MeasurementFields {
    /// The path on buckets of one at or below the meta field; nothing for other paths.
    pub fn on_bucket_meta(&self, path: &str) -> Option<String> {
        let below = path.strip_prefix(self.meta.as_deref()?)?;
        (below.is_empty() || below.starts_with('.')).then(|| format!("meta{below}"))
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

/// A definition as clients of the measurements see it.
pub fn shown_to_clients(spec: &IndexSpec) -> Option<DocBuf> {
    let asked = spec.document().get("originalSpec")?.as_document()?;
    let mut out = DocBuilder::new();
    for element in asked.iter().filter(|element| element.name() != "hidden") {
        out.append_element(element);
    }
    if spec.hidden() {
        out.append("hidden", true);
    }
    Some(out.finish())
}

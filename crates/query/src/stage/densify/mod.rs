//! `$densify`: adds documents where the values of a field have gaps, in each partition.
//!
//! Values are numbers or dates. Steps of months and longer follow the calendar: each is computed
//! from the base by `$dateAdd`, so that steps from the end of a month stay at ends of months.

mod range;
mod run;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Collation, RawValue};
use std::sync::Arc;

use super::unwind::parts;
use super::{PipelineContext, Reads, Running, Stage};
use range::{Range, parse_range};

/// A parsed `$densify`.
#[derive(Clone, Debug)]
pub(crate) struct Densify {
    field: String,
    path: Vec<String>,
    partition: Vec<String>,
    range: Range,
    collation: Option<Arc<Collation>>,
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text = format!("The $densify stage specification must be an object, found {kind}");
        return Err(fault(5733201, text));
    };
    let (mut field, mut partition, mut range) = (None, Vec::new(), None);
    for option in spec {
        match (option.name(), option.value()) {
            ("field", RawValue::String(path)) => field = Some(path),
            ("partitionByFields", RawValue::Array(fields)) => {
                for field in fields {
                    match field.value() {
                        RawValue::String(path) => {
                            parts(path)?;
                            partition.push(path.to_owned());
                        }
                        other => return Err(wrong("partitionByFields", other)),
                    }
                }
            }
            ("range", RawValue::Document(spec)) => range = Some(spec),
            (name @ ("field" | "partitionByFields" | "range"), other) => {
                return Err(wrong(name, other));
            }
            (other, _) => {
                return Err(fault(
                    40415,
                    format!("BSON field '$densify.{other}' is an unknown field."),
                ));
            }
        }
    }
    let missing = |name: &str| {
        fault(40414, format!("BSON field '$densify.{name}' is missing but a required field"))
    };
    let field = field.ok_or_else(|| missing("field"))?.to_owned();
    let range = range.ok_or_else(|| missing("range"))?;
    if field.starts_with('$') {
        return Err(fault(16410, "Cannot densify field starting with '$'"));
    }
    let path = parts(&field)?;
    let inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
    if partition.iter().any(|by| *by == field || inside(by, &field) || inside(&field, by)) {
        let text = "BSON field '$densify.partitionByFields' contains a field that is, or lies in, the field to densify";
        return Err(fault(8993000, text));
    }
    let range = parse_range(range, &partition)?;
    let collation = context.scope.collation().cloned();
    Ok(Box::new(Densify { field, path, partition, range, collation }))
}

impl Stage for Densify {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        run::start(*self)
    }

    fn reads(&self) -> Reads {
        Reads::some(self.partition.iter().chain([&self.field]).cloned())
    }
}

fn wrong(name: &str, other: RawValue<'_>) -> Error {
    Error::type_mismatch(format!(
        "BSON field '$densify.{name}' is the wrong type '{}'",
        other.type_name()
    ))
}

//! `$densify`: adds documents where the values of a field have gaps, in each partition.
//!
//! Values are numbers or dates. Steps of months and longer follow the calendar: each is computed
//! from the base by `$dateAdd`, so that steps from the end of a month stay at ends of months.

mod range;
mod run;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::{Argument, Fields, error::wrong_type};
use mayfly_value::{Collation, RawDoc, RawValue};
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

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("field").required(),
    Argument::document("range").required(),
    Argument::array("partitionByFields"),
];

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text = format!("The $densify stage specification must be an object, found {kind}");
        return Err(fault(5733201, text));
    };
    let given = Fields::read(spec, "$densify", ARGUMENTS)?;
    let mut partition = Vec::new();
    for by in given.array("partitionByFields")?.into_iter().flatten() {
        let RawValue::String(path) = by.value() else {
            let path = format_args!("$densify.partitionByFields.{}", by.name());
            return Err(wrong_type(path, by.value(), "string"));
        };
        parts(path)?;
        partition.push(path.to_owned());
    }
    let field = given.string("field")?.unwrap_or_default().to_owned();
    let range = given.document("range")?.unwrap_or(RawDoc::EMPTY);
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

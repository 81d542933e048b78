//! `$densify`: adds documents where the values of a field have gaps, in each partition.
//!
//! Values are numbers or dates. Each step is taken from the value before: numbers are added as by
//! `$add`, units of time as by `$dateAdd`. A month after January 31 is February 28, and a month
//! after that March 28.

mod range;
mod run;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::{Argument, Fields, error::wrong_type};
use mayfly_value::{Collation, RawDoc, RawValue};
use std::sync::Arc;

use super::unwind::parts;
use super::{PipelineContext, Reads, Running, Stage};
use range::{Bounds, Range, parse_range};

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
        return Err(Error::failed_to_parse(format!(
            "The $densify stage specification must be an object, found {kind}"
        )));
    };
    let given = Fields::read(spec, "$densify", ARGUMENTS)?;
    let range = parse_range(given.document("range")?.unwrap_or(RawDoc::EMPTY))?;
    let field = given.string("field")?.unwrap_or_default().to_owned();
    let mut partition = Vec::new();
    for by in given.array("partitionByFields")?.into_iter().flatten() {
        let RawValue::String(by_path) = by.value() else {
            let path = format_args!("$densify.partitionByFields.{}", by.name());
            return Err(wrong_type(path, by.value(), "string"));
        };
        check_apart(&field, by_path)?;
        parts(by_path)?;
        partition.push(by_path.to_owned());
    }
    let path = parts(&field)?;
    if partition.is_empty() && matches!(range.bounds, Bounds::Partition) {
        return Err(fault(
            5733408,
            "One cannot specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You \
             may have meant to specify 'full' bounds.",
        ));
    }
    let collation = context.scope.collation().cloned();
    Ok(Box::new(Densify { field, path, partition, range, collation }))
}

/// Checks that neither of both fields contains the other.
fn check_apart(field: &str, by: &str) -> Result<()> {
    let inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
    if by == field || inside(by, field) {
        let text = format!(
            "partitionByFields '{by}' cannot include field '{field}' that is being densified."
        );
        return Err(fault(8993000, text));
    }
    if inside(field, by) {
        let text = format!(
            "field '{field}' that is being densified cannot include partitionByFields '{by}'."
        );
        return Err(fault(9554500, text));
    }
    Ok(())
}

impl Stage for Densify {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        run::start(*self)
    }

    fn reads(&self) -> Reads {
        Reads::some(self.partition.iter().chain([&self.field]).cloned())
    }
}

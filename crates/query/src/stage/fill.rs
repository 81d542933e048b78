//! `$fill`: rewritten to a `$setWindowFields`, which fills from neighbours, and an `$addFields`,
//! which fills with values.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::{Argument, Fields, error::wrong_type};
use mayfly_value::paths::check_field_path;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::written;

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>) -> Result<Vec<DocBuf>> {
    let (windows, values) = expanded(value)?;
    let windows = windows.map(|windows| written("$setWindowFields", &windows));
    let values = values.map(|values| written("$addFields", &values));
    Ok(windows.into_iter().chain(values).collect())
}

/// The stage that a `$fill` is rewritten to in an update, which sees one document at a time; `None`
/// for another stage.
///
/// # Errors
/// Errors of the operand; 72 InvalidOptions if it fills from other documents.
pub(super) fn values(stage: RawDoc<'_>) -> Result<Option<DocBuf>> {
    let mut fields = stage.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return Ok(None) };
    if field.name() != "$fill" {
        return Ok(None);
    }
    let (windows, values) = expanded(field.value())?;
    if windows.is_some() {
        let text = "$setWindowFields is not allowed to be used within an update";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    Ok(values.map(|values| written("$addFields", &values)))
}

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::document("output").required(),
    Argument::any("partitionBy"),
    Argument::array("partitionByFields"),
    Argument::document("sortBy"),
];

/// How one field is filled.
const OUTPUT: &[Argument] = &[Argument::any("value"), Argument::string("method")];

/// The specifications of both stages.
fn expanded(value: RawValue<'_>) -> Result<(Option<DocBuf>, Option<DocBuf>)> {
    let RawValue::Document(spec) = value else {
        return Err(Error::failed_to_parse(format!(
            "the $fill stage specification must be an object, found {}",
            value.type_name()
        )));
    };
    let given = Fields::read(spec, "$fill", ARGUMENTS)?;
    let (partition, fields) = (spec.get("partitionBy"), given.array("partitionByFields")?);
    let sort = given.document("sortBy")?;
    let output = given.document("output")?.unwrap_or(RawDoc::EMPTY);
    let partition = partition.filter(|partition| !matches!(partition, RawValue::Null));
    if let Some(other) = partition
        && !matches!(other, RawValue::String(_) | RawValue::Document(_))
    {
        return Err(wrong_type("$fill.partitionBy", other, "[object, string]"));
    }
    if output.is_empty() {
        let text = "The output field in '$fill' must contain an object with at least one element";
        return Err(fault(6050203, text));
    }
    let (mut windows, mut values) = (DocBuilder::new(), DocBuilder::new());
    windows.start_document("output");
    let mut by_neighbours = false;
    for field in output {
        by_neighbours |= write_field(field.name(), field.value(), &mut windows, &mut values)?;
    }
    windows.end();
    if partition.is_some() && fields.is_some() {
        let text =
            "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'";
        return Err(fault(6050204, text));
    }
    if by_neighbours {
        write_partition(partition, fields, &mut windows)?;
        if let Some(sort) = sort {
            windows.append("sortBy", sort);
        }
    }
    let by_values = !values.is_empty();
    Ok((by_neighbours.then(|| windows.finish()), by_values.then(|| values.finish())))
}

fn write_partition(
    partition: Option<RawValue<'_>>,
    fields: Option<RawDoc<'_>>,
    windows: &mut DocBuilder,
) -> Result<()> {
    if let Some(partition) = partition {
        windows.append("partitionBy", partition);
    }
    let Some(fields) = fields else { return Ok(()) };
    windows.start_document("partitionBy");
    for field in fields {
        match field.value() {
            // `$setWindowFields` reports a name with a dollar sign.
            RawValue::String(path) if !path.contains('.') => {
                if !path.starts_with('$') || path.contains('\0') {
                    check_field_path(path)?;
                }
                windows.append(path, format!("${path}").as_str());
            }
            // Fields of a document have no dotted names, so the position in the list names it.
            RawValue::String(path) => {
                windows.append(field.name(), format!("${path}").as_str());
            }
            other => {
                let path = format_args!("$fill.partitionByFields.{}", field.name());
                return Err(wrong_type(path, other, "string"));
            }
        }
    }
    windows.end();
    Ok(())
}

/// Writes how a field is filled. Returns whether it is filled from neighbours.
fn write_field(
    name: &str,
    value: RawValue<'_>,
    windows: &mut DocBuilder,
    values: &mut DocBuilder,
) -> Result<bool> {
    let RawValue::Document(spec) = value else {
        let text = "Each fill output specification must be an object with exactly one field";
        return Err(fault(6050200, text));
    };
    let given = Fields::read(spec, "$fill", OUTPUT)?;
    let path = format!("${name}");
    let Some(method) = given.string("method")? else {
        if let Some(value) = spec.get("value") {
            values.start_document(name).start_array("$ifNull").push(path.as_str()).push(value);
            values.end().end();
        }
        return Ok(false);
    };
    if spec.get("value").is_some() {
        let text = "Each fill output specification must have exactly one of 'method' or 'value' fields, not both";
        return Err(fault(6050201, text));
    }
    let method = match method {
        "linear" => "$linearFill",
        "locf" => "$locf",
        _ => return Err(fault(6050202, "Method must be either locf or linear")),
    };
    windows.start_document(name).append(method, path.as_str()).end();
    Ok(true)
}

//! Update documents to modifications.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::op::{self, Operand, Parse};
use super::path::{check_conflicts, compare_paths, parse_path};
use super::{Action, Kind, Modification};
use crate::matcher::ParseContext;

pub(super) fn parse(update: RawDoc<'_>, context: &ParseContext) -> Result<Kind> {
    match update.iter().next() {
        Some(first) if first.name_bytes().starts_with(b"$") => {
            parse_operators(update, context).map(Kind::Operators)
        }
        _ => parse_replacement(update),
    }
}

fn parse_replacement(update: RawDoc<'_>) -> Result<Kind> {
    for element in update.iter() {
        let name = element.name();
        if name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db") {
            return Err(Error::new(
                ErrorCode::DollarPrefixedFieldName,
                format!(
                    "The dollar ($) prefixed field '{name}' in '{name}' is not allowed for storage."
                ),
            ));
        }
    }
    Ok(Kind::Replacement(update.to_owned()))
}

fn parse_operators(update: RawDoc<'_>, context: &ParseContext) -> Result<Vec<Modification>> {
    let mut modifications = Vec::new();
    for operator in update.iter() {
        let name = operator.name();
        let Some(row) = op::find(name) else {
            return Err(Error::failed_to_parse(format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update \
                 specified as an array"
            )));
        };
        let RawValue::Document(fields) = operator.value() else {
            let shown = ShellValue(operator.value());
            return Err(Error::failed_to_parse(format!(
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: \
                 ...}}}} not {{{name}: {shown}}}",
                operator.value().type_name()
            )));
        };
        for field in fields.iter() {
            modifications.push(parse_field(&row.parse, field, context, name)?);
        }
    }
    modifications.sort_by(|a, b| compare_paths(&a.path, &b.path));
    let mut paths = Vec::with_capacity(modifications.len());
    for modification in &modifications {
        paths.push(&modification.path);
        if let Action::RenameFrom(from) = &modification.action {
            paths.push(from);
        }
    }
    check_conflicts(paths)?;
    Ok(modifications)
}

fn parse_field(
    parse: &Parse,
    field: RawElement<'_>,
    context: &ParseContext,
    operator: &str,
) -> Result<Modification> {
    let path = parse_path(field.name())?;
    let operand = Operand { operator, name: field.name(), value: field.value(), context };
    let action = match parse {
        Parse::Modifier(parse) => Action::Modify(parse(&operand)?),
        Parse::OnInsert(parse) => Action::ModifyOnInsert(parse(&operand)?),
        Parse::Rename => {
            let RawValue::String(to) = field.value() else {
                let shown = ShellValue(field.value());
                return Err(Error::bad_value(format!(
                    "The 'to' field for $rename must be a string: {}: {shown}",
                    field.name()
                )));
            };
            if to == field.name() {
                return Err(Error::bad_value(format!(
                    "The source and target field for $rename must differ: {}: \"{to}\"",
                    field.name()
                )));
            }
            return Ok(Modification { path: parse_path(to)?, action: Action::RenameFrom(path) });
        }
    };
    Ok(Modification { path, action })
}

//! Parses update documents.

use mayfly_base::{Error, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::array_filters::ArrayFilters;
use super::op::{self, Operand, Parse};
use super::path::{ArrayPart, array_part, check_conflicts, compare_paths, parse_path};
use super::{Action, Modification, Operators, UpdateKind};
use crate::FieldPath;
use crate::matcher::ParseContext;

pub(super) fn parse(
    update: RawDoc<'_>,
    filters: ArrayFilters,
    context: &ParseContext,
) -> Result<UpdateKind> {
    match update.iter().next() {
        Some(first) if first.name_bytes().starts_with(b"$") => {
            parse_operators(update, filters, context).map(UpdateKind::Operators)
        }
        _ => Ok(UpdateKind::Replacement(update.to_owned())),
    }
}

fn parse_operators(
    update: RawDoc<'_>,
    filters: ArrayFilters,
    context: &ParseContext,
) -> Result<Operators> {
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
            let modification = parse_field(&row.parse, field, context, name)?;
            filters.check_known(&modification.path)?;
            modifications.push(modification);
        }
    }
    modifications.sort_by(|a, b| compare_paths(&a.path, &b.path));
    if !matches!(&modifications[..], [one] if one.is_single()) {
        let mut paths = Vec::with_capacity(modifications.len());
        for modification in &modifications {
            paths.push(&modification.path);
            if let Action::RenameFrom(from) = &modification.action {
                paths.push(from);
            }
        }
        check_conflicts(paths)?;
    }
    filters.check_used(update, &modifications)?;
    let dynamic = modifications.iter().any(|modification| modification.dynamic);
    let positional = dynamic && modifications.iter().any(has_matched_part);
    Ok(Operators { modifications, filters, dynamic, positional })
}

fn has_matched_part(modification: &Modification) -> bool {
    modification.path.parts().iter().any(|part| array_part(part) == Some(ArrayPart::Matched))
}

fn is_dynamic(path: &FieldPath) -> bool {
    path.parts().iter().any(|part| array_part(part).is_some())
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
        Parse::Rename => return rename(path, field),
    };
    let dynamic = is_dynamic(&path);
    Ok(Modification { path, dynamic, action })
}

fn rename(from: FieldPath, field: RawElement<'_>) -> Result<Modification> {
    let RawValue::String(to) = field.value() else {
        let shown = ShellValue(field.value());
        return Err(Error::bad_value(format!(
            "The 'to' field for $rename must be a string: {}: {shown}",
            field.name()
        )));
    };
    if to.contains('\0') {
        let text = "The 'to' field for $rename cannot contain an embedded null byte";
        return Err(Error::bad_value(text));
    }
    if to == field.name() {
        return Err(Error::bad_value(format!(
            "The source and target field for $rename must differ: {}: \"{to}\"",
            field.name()
        )));
    }
    let inside = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
    };
    if inside(field.name(), to) || inside(to, field.name()) {
        return Err(Error::bad_value(format!(
            "The source and target field for $rename must not be on the same path: {}: \"{to}\"",
            field.name()
        )));
    }
    let to = parse_path(to)?;
    for (path, role) in [(&from, "source"), (&to, "destination")] {
        if is_dynamic(path) {
            let text = format!("The {role} field for $rename may not be dynamic: {path}");
            return Err(Error::bad_value(text));
        }
    }
    Ok(Modification { path: to, dynamic: false, action: Action::RenameFrom(from) })
}

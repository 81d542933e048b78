//! `$mergeObjects`, `$objectToArray`, `$arrayToObject`, `$getField`, `$setField`, `$unsetField`:
//! documents as data, with arbitrary field names.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::check_size;
use mayfly_value::shell::{Brief, ShellValue};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::operand::{array, document, fault, parts, required};
use super::{ANY, OpRow, Prepared, list, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$mergeObjects", "3.5.6", "Documents in one, later fields over earlier.", ANY, merge),
    list("$objectToArray", "3.4.4", "Fields as { k, v } items.", (1, 1), to_array),
    list("$arrayToObject", "3.4.4", "Items of k and v as fields.", (1, 1), to_object),
    own("$getField", "5.0", "A field by any name.", parse_get),
    own("$setField", "5.0", "A field by any name, set or removed.", parse_set),
    own("$unsetField", "5.0", "A field by any name, removed.", parse_set),
];

/// Fields in the order of their first occurrence, each with its last value.
#[derive(Default)]
pub(crate) struct Fields<'v> {
    fields: Vec<(&'v str, RawValue<'v>)>,
    places: std::collections::HashMap<&'v str, usize>,
}

impl<'v> Fields<'v> {
    /// Sets a field.
    pub(crate) fn set(&mut self, name: &'v str, value: RawValue<'v>) {
        match self.places.get(name) {
            Some(at) => self.fields[*at].1 = value,
            None => {
                self.places.insert(name, self.fields.len());
                self.fields.push((name, value));
            }
        }
    }

    /// Sets all fields of a document.
    pub(crate) fn set_all(&mut self, document: RawDoc<'v>) {
        for element in document {
            self.set(element.name(), element.value());
        }
    }

    /// Builds the document.
    pub(crate) fn build(self) -> Result<DocBuilder> {
        let mut out = DocBuilder::new();
        for (name, value) in self.fields {
            out.append(name, value);
            check_size(out.len())?;
        }
        Ok(out)
    }
}

/// The error of `$mergeObjects` for a value that is not a document. The expression and the
/// accumulator have different codes.
pub(crate) fn merge_fault(code: i32, value: RawValue<'_>) -> Error {
    let (shown, kind) = (Brief(value), value.type_name());
    let text = format!("$mergeObjects requires object inputs, but input {shown} is of type {kind}");
    fault(code, text)
}

/// An input document of `$mergeObjects`; `None` for null and missing values.
pub(super) fn take_document(value: RawValue<'_>) -> Result<Option<RawDoc<'_>>> {
    match value {
        RawValue::Document(fields) => Ok(Some(fields)),
        RawValue::Null | RawValue::Undefined => Ok(None),
        other => Err(merge_fault(40400, other)),
    }
}

fn merge<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        values.push(argument.evaluate(frame)?);
    }
    // A single array argument provides its items as inputs.
    let single = match values.as_slice() {
        [single] => single.or_undefined().as_array(),
        _ => None,
    };
    let mut fields = Fields::default();
    if let Some(items) = single {
        for item in items {
            if let Some(inner) = take_document(item.value())? {
                fields.set_all(inner);
            }
        }
    } else {
        for value in &values {
            if let Some(inner) = take_document(value.or_undefined())? {
                fields.set_all(inner);
            }
        }
    }
    document(fields.build()?)
}

fn to_array<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    match value.or_undefined() {
        RawValue::Document(fields) => {
            let mut out = DocBuilder::new_array();
            for field in fields {
                out.push_document();
                out.append("k", field.name());
                out.append("v", field.value());
                out.end();
                check_size(out.len())?;
            }
            array(out)
        }
        RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
        _ => {
            let found = value.type_name();
            Err(fault(40390, format!("$objectToArray requires a document input, found: {found}")))
        }
    }
}

fn to_object<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = value.or_undefined() else {
        let found = value.type_name();
        return Err(fault(
            40386,
            format!("$arrayToObject requires an array input, found: {found}"),
        ));
    };
    let mut fields = Fields::default();
    let mut pairs = None;
    for item in items.iter().map(|item| item.value()) {
        let (name, value) = match item {
            RawValue::Array(pair) if pairs != Some(false) => {
                pairs = Some(true);
                from_pair(pair)?
            }
            RawValue::Document(entry) if pairs != Some(true) => {
                pairs = Some(false);
                from_entry(entry)?
            }
            other => return Err(inconsistent(pairs, other)),
        };
        if name.contains('\0') {
            let code = if pairs == Some(true) { 4_940_400 } else { 4_940_401 };
            return Err(fault(code, "Key field cannot contain an embedded null byte"));
        }
        fields.set(name, value);
    }
    document(fields.build()?)
}

fn inconsistent(pairs: Option<bool>, other: RawValue<'_>) -> Error {
    let found = other.type_name();
    match pairs {
        None => fault(40398, format!("Unrecognised input type format for $arrayToObject: {found}")),
        Some(true) => fault(
            40396,
            format!(
                "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Array was detected, now found: {found}"
            ),
        ),
        Some(false) => fault(
            40391,
            format!(
                "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Object was detected, now found: {found}"
            ),
        ),
    }
}

fn from_pair(pair: RawDoc<'_>) -> Result<(&str, RawValue<'_>)> {
    let mut items = pair.iter().map(|item| item.value());
    let (Some(key), Some(value), None) = (items.next(), items.next(), items.next()) else {
        let size = pair.iter().count();
        let text = format!(
            "$arrayToObject requires an array of size 2 arrays,found array of size: {size}"
        );
        return Err(fault(40397, text));
    };
    match key {
        RawValue::String(name) => Ok((name, value)),
        other => {
            let found = other.type_name();
            Err(fault(
                40395,
                format!(
                    "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {found}"
                ),
            ))
        }
    }
}

fn from_entry(entry: RawDoc<'_>) -> Result<(&str, RawValue<'_>)> {
    let size = entry.iter().count();
    if size != 2 {
        let text = format!(
            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{size}"
        );
        return Err(fault(40392, text));
    }
    let (Some(key), Some(value)) = (entry.get("k"), entry.get("v")) else {
        let shown = ShellValue(RawValue::Document(entry)).to_string();
        let text = format!(
            "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {shown}"
        );
        return Err(fault(40393, text));
    };
    match key {
        RawValue::String(name) => Ok((name, value)),
        other => {
            let found = other.type_name();
            Err(fault(
                40394,
                format!(
                    "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {found}"
                ),
            ))
        }
    }
}

/// Parses a field name that must be constant.
fn constant_name(
    parser: &mut Parser<'_>,
    operator: &str,
    field: RawValue<'_>,
) -> Result<Expression> {
    // Operators other than `$getField` accept only constants; a path would be confused with a name
    // that begins with a dollar sign.
    if let RawValue::String(path) = field
        && path.starts_with('$')
    {
        let text = format!(
            "'{path}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '{path}'}}?"
        );
        return Err(Error::new(ErrorCode::InvalidPipelineOperator, text));
    }
    // Documents and arrays with expressions are no constants, even if all expressions in them are.
    let computes = match field {
        RawValue::Array(_) => true,
        RawValue::Document(fields) => {
            let first = fields.iter().next();
            !first.is_some_and(|first| matches!(first.name(), "$literal" | "$const"))
        }
        _ => false,
    };
    let field = parser.parse(field)?;
    if computes {
        return Err(not_constant(operator));
    }
    match field.as_constant() {
        Some(RawValue::String(name)) if name.contains('\0') => {
            let text = format!("{operator}: 'field' cannot contain an embedded null byte");
            Err(fault(9_534_700, text))
        }
        Some(RawValue::String(_)) => Ok(field),
        Some(other) => {
            let found = other.type_name();
            let text =
                format!("{operator} requires 'field' to evaluate to type String, but got {found}");
            Err(fault(4_161_107, text))
        }
        None => Err(not_constant(operator)),
    }
}

fn not_constant(operator: &str) -> Error {
    let text = format!(
        "{operator} requires 'field' to evaluate to a constant, but got a non-constant argument"
    );
    fault(4_161_106, text)
}

/// The short form is the field name alone, applied to the whole document.
fn parse_get(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let named = match operand {
        RawValue::Document(fields) => {
            !fields.iter().next().is_some_and(|field| field.name().starts_with('$'))
        }
        _ => false,
    };
    let (field, input) = if named {
        let [field, input] = parts(
            operand,
            ["field", "input"],
            |_| fault(4_161_100, "$getField only supports an object as its argument"),
            |name| fault(3_041_701, format!("$getField found an unknown argument: {name}")),
        )?;
        let field = required(parser, field, || {
            fault(3_041_702, "$getField requires 'field' to be specified")
        })?;
        let input = required(parser, input, || {
            fault(3_041_703, "$getField requires 'input' to be specified")
        })?;
        (field, input)
    } else {
        (parser.parse(operand)?, parser.root())
    };
    if let Some(constant) = field.as_constant()
        && constant.as_str().is_none()
    {
        return Err(field_fault(constant.type_name()));
    }
    parser.call(row, get, vec![field, input])
}

fn field_fault(found: &str) -> Error {
    let text = format!("$getField requires 'field' to evaluate to type String, but got {found}");
    fault(3_041_704, text)
}

fn get<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let field = arguments[0].evaluate(frame)?;
    let RawValue::String(name) = field.or_undefined() else {
        return Err(field_fault(field.type_name()));
    };
    let input = arguments[1].evaluate(frame)?;
    match input.or_undefined() {
        RawValue::Document(inner) => Ok(Value::from(inner.get(name)).detached()),
        RawValue::Null | RawValue::Undefined if input.as_raw().is_some() => Ok(Value::NULL),
        _ => Ok(Value::Missing),
    }
}

fn parse_set(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let unset = name == "$unsetField";
    let [field, input, value] = parts(
        operand,
        ["field", "input", "value"],
        |_| fault(4_161_100, format!("{name} only supports an object as its argument")),
        |part| fault(4_161_101, format!("{name} found an unknown argument: {part}")),
    )?;
    let missing =
        |code: i32, part: &str| fault(code, format!("{name} requires '{part}' to be specified"));
    if unset && value.is_some() {
        return Err(fault(4_161_101, format!("{name} found an unknown argument: value")));
    }
    let field = field.ok_or_else(|| missing(4_161_102, "field"))?;
    let value = match value {
        Some(value) => parser.parse(value)?,
        None if unset => Expression::Missing,
        None => return Err(missing(4_161_103, "value")),
    };
    let input = required(parser, input, || missing(4_161_109, "input"))?;
    let field = constant_name(parser, name, field)?;
    parser.ready(row, set, Prepared::Which(name), vec![field, input, value])
}

fn set<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(operator) = *prepared else { return Ok(Value::NULL) };
    let field = arguments[0].evaluate(frame)?;
    let name = field.or_undefined().as_str().unwrap_or("");
    let input = arguments[1].evaluate(frame)?;
    let inner = match input.or_undefined() {
        RawValue::Document(inner) => inner,
        RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
        _ => {
            let text = format!("{operator} requires 'input' to evaluate to type Object");
            return Err(fault(4_161_105, text));
        }
    };
    let value = arguments[2].evaluate(frame)?;
    let mut out = DocBuilder::new();
    let mut waiting = value.as_raw();
    for element in inner {
        if element.name() != name {
            out.append_element(element);
        } else if let Some(value) = waiting.take() {
            out.append(name, value);
        }
    }
    if let Some(value) = waiting {
        out.append(name, value);
    }
    document(out)
}

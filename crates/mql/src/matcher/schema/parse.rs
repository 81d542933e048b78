//! Parses schemas: a row per keyword, with the reference's rules for its value.

use mayfly_value::arguments::error::mistyped;
use std::collections::HashSet;

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawDoc, RawElement, RawValue, ty};

use super::evaluate::unordered_key;
use super::{AdditionalRule, Dependency, Items, Schema};
use crate::matcher::op::type_of_alias;
use crate::matcher::{Regex, TypeSet};

/// Parses a keyword's value into the schema; the number is the nesting depth.
type KeywordParser = fn(&mut Schema, RawElement<'_>, usize) -> Result<()>;

/// All supported keywords.
const KEYWORDS: &[(&str, KeywordParser)] = &[
    ("additionalItems", |schema, element, depth| {
        schema.arrays.additional = Some(additional(element, depth)?);
        Ok(())
    }),
    ("additionalProperties", |schema, element, depth| {
        schema.objects.additional = Some(additional(element, depth)?);
        Ok(())
    }),
    ("allOf", |schema, element, depth| {
        schema.all_of = schemas(element, depth)?;
        Ok(())
    }),
    ("anyOf", |schema, element, depth| {
        schema.any_of = Some(schemas(element, depth)?);
        Ok(())
    }),
    ("bsonType", |schema, element, _| types(schema, element, bson_type)),
    ("dependencies", dependencies),
    ("description", |_, element, _| text(element).map(|_| ())),
    ("enum", enumeration),
    ("exclusiveMaximum", |schema, element, _| {
        schema.numbers.exclusive_maximum = flag(element)?;
        Ok(())
    }),
    ("exclusiveMinimum", |schema, element, _| {
        schema.numbers.exclusive_minimum = flag(element)?;
        Ok(())
    }),
    ("items", items),
    ("maxItems", |schema, element, _| set(&mut schema.arrays.most, size(element))),
    ("maxLength", |schema, element, _| set(&mut schema.texts.most, size(element))),
    ("maxProperties", |schema, element, _| set(&mut schema.objects.most, size(element))),
    ("maximum", |schema, element, _| set(&mut schema.numbers.maximum, number(element))),
    ("minItems", |schema, element, _| set(&mut schema.arrays.least, size(element))),
    ("minLength", |schema, element, _| set(&mut schema.texts.least, size(element))),
    ("minProperties", |schema, element, _| set(&mut schema.objects.least, size(element))),
    ("minimum", |schema, element, _| set(&mut schema.numbers.minimum, number(element))),
    ("multipleOf", multiple_of),
    ("not", |schema, element, depth| {
        let inner = object(element)?;
        schema.not = Some(Box::new(parse(inner, depth + 1)?));
        Ok(())
    }),
    ("oneOf", |schema, element, depth| {
        schema.one_of = Some(schemas(element, depth)?);
        Ok(())
    }),
    ("pattern", |schema, element, _| {
        schema.texts.pattern = Some(Regex::new(text(element)?, "")?);
        Ok(())
    }),
    ("patternProperties", pattern_properties),
    ("properties", properties),
    ("required", |schema, element, _| {
        let required = names(element)?;
        schema.objects.named += required.len();
        schema.objects.required = required;
        Ok(())
    }),
    ("title", |_, element, _| text(element).map(|_| ())),
    ("type", |schema, element, _| types(schema, element, json_type)),
    ("uniqueItems", |schema, element, _| {
        schema.arrays.unique = flag(element)?;
        Ok(())
    }),
];

/// Keywords of the standard that the reference rejects by name.
const REFUSED: &[&str] = &["$ref", "$schema", "default", "definitions", "format", "id"];

/// Parses a schema at this nesting depth.
pub(super) fn parse(document: RawDoc<'_>, depth: usize) -> Result<Schema> {
    if depth > MAX_FILTER_DEPTH {
        return Err(Error::bad_value("$jsonSchema is nested too deeply"));
    }
    let mut schema = Schema::default();
    let mut seen: Vec<&str> = Vec::new();
    for element in document {
        let name = element.name();
        let Some((known, take)) = KEYWORDS.iter().find(|(known, _)| *known == name) else {
            return Err(unknown(name));
        };
        if seen.contains(known) {
            return Err(Error::failed_to_parse(format!("Duplicate $jsonSchema keyword: {name}")));
        }
        seen.push(known);
        take(&mut schema, element, depth)?;
    }
    if seen.contains(&"type") && seen.contains(&"bsonType") {
        let text = "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'";
        return Err(Error::failed_to_parse(text));
    }
    for (bound, exclusive) in [("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")] {
        if seen.contains(&exclusive) && !seen.contains(&bound) {
            return Err(Error::failed_to_parse(format!(
                "$jsonSchema keyword '{bound}' must be a present if {exclusive} is present"
            )));
        }
    }
    Ok(schema)
}

fn unknown(name: &str) -> Error {
    if REFUSED.contains(&name) {
        let text = format!("$jsonSchema keyword '{name}' is not currently supported");
        return Error::failed_to_parse(text);
    }
    match name {
        "encrypt" | "encryptMetadata" => {
            Error::not_implemented(format!("$jsonSchema keyword '{name}'"))
        }
        _ => Error::failed_to_parse(format!("Unknown $jsonSchema keyword: {name}")),
    }
}

fn set<T>(place: &mut Option<T>, value: Result<T>) -> Result<()> {
    *place = Some(value?);
    Ok(())
}

/// The error 14 TypeMismatch for a keyword.
fn must(element: RawElement<'_>, be: &str) -> Error {
    mistyped(format!("$jsonSchema keyword '{}' must be {be}", element.name()))
}

fn flag(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Bool(value) => Ok(value),
        _ => Err(must(element, "a boolean")),
    }
}

fn text<'a>(element: RawElement<'a>) -> Result<&'a str> {
    match element.value() {
        RawValue::String(text) => Ok(text),
        _ => Err(must(element, "a string")),
    }
}

fn number(element: RawElement<'_>) -> Result<Number> {
    Number::from_value(element.value()).ok_or_else(|| must(element, "a number"))
}

fn object<'a>(element: RawElement<'a>) -> Result<RawDoc<'a>> {
    match element.value() {
        RawValue::Document(document) => Ok(document),
        _ => Err(must(element, "an object")),
    }
}

fn array<'a>(element: RawElement<'a>) -> Result<RawDoc<'a>> {
    match element.value() {
        RawValue::Array(items) => Ok(items),
        _ => Err(must(element, "an array")),
    }
}

/// A non-negative whole number.
fn size(element: RawElement<'_>) -> Result<i64> {
    let shown = format!("{}: {}", element.name(), ShellValue(element.value()));
    let Some(number) = Number::from_value(element.value()) else {
        return Err(Error::failed_to_parse(format!("Expected a number in: {shown}")));
    };
    match number.to_i64_exact() {
        Some(size) if size >= 0 => Ok(size),
        Some(_) => {
            Err(Error::failed_to_parse(format!("Expected a non-negative number in: {shown}")))
        }
        None => Err(Error::failed_to_parse(format!("Expected an integer: {shown}"))),
    }
}

fn multiple_of(schema: &mut Schema, element: RawElement<'_>, _: usize) -> Result<()> {
    let unit = number(element)?;
    if unit.is_nan() {
        return Err(Error::bad_value("divisor cannot be NaN"));
    }
    if unit.compare(Number::Int32(0)).is_le() {
        let text = "$jsonSchema keyword 'multipleOf' must have a positive value";
        return Err(Error::failed_to_parse(text));
    }
    if matches!(unit.to_decimal(), Decimal::Infinity { .. }) {
        return Err(Error::bad_value("divisor cannot be infinite"));
    }
    schema.numbers.multiple_of = Some(unit);
    Ok(())
}

fn types(
    schema: &mut Schema,
    element: RawElement<'_>,
    add: fn(&mut TypeSet, &str) -> Result<()>,
) -> Result<()> {
    let fault = || must(element, "either a string or an array of strings");
    let mut set = TypeSet::default();
    match element.value() {
        RawValue::String(name) => add(&mut set, name)?,
        RawValue::Array(items) => {
            let mut seen = HashSet::new();
            for item in items {
                let RawValue::String(name) = item.value() else { return Err(fault()) };
                if !seen.insert(name) {
                    return Err(Error::failed_to_parse(format!(
                        "$jsonSchema keyword '{}' has duplicate value: {name}",
                        element.name()
                    )));
                }
                add(&mut set, name)?;
            }
        }
        _ => return Err(fault()),
    }
    if set.is_empty() {
        let text = format!("$jsonSchema keyword '{}' must name at least one type", element.name());
        return Err(Error::failed_to_parse(text));
    }
    schema.types = Some(set);
    Ok(())
}

fn bson_type(set: &mut TypeSet, name: &str) -> Result<()> {
    if name == "integer" { Err(no_integer()) } else { type_of_alias(set, name) }
}

/// The error for a type of the standard that the reference has not.
fn no_integer() -> Error {
    Error::failed_to_parse("$jsonSchema type 'integer' is not currently supported.")
}

fn json_type(set: &mut TypeSet, name: &str) -> Result<()> {
    match name {
        "object" => set.insert(ty::DOCUMENT),
        "array" => set.insert(ty::ARRAY),
        "number" => set.insert_numbers(),
        "boolean" => set.insert(ty::BOOL),
        "string" => set.insert(ty::STRING),
        "null" => set.insert(ty::NULL),
        "integer" => return Err(no_integer()),
        other => return Err(Error::bad_value(format!("Unknown type name alias: {other}"))),
    }
    Ok(())
}

fn enumeration(schema: &mut Schema, element: RawElement<'_>, _: usize) -> Result<()> {
    let values = array(element)?;
    if values.is_empty() {
        let text = "$jsonSchema keyword 'enum' cannot be an empty array";
        return Err(Error::failed_to_parse(text));
    }
    let mut keys = HashSet::new();
    for value in values {
        if !keys.insert(unordered_key(value.value())) {
            let text = "$jsonSchema keyword 'enum' array cannot contain duplicate values";
            return Err(Error::failed_to_parse(text));
        }
    }
    schema.one_of_values = Some(keys);
    Ok(())
}

/// A list of at least one field name, without duplicates.
fn names(element: RawElement<'_>) -> Result<Vec<Box<str>>> {
    let items = array(element)?;
    let keyword = element.name();
    if items.is_empty() {
        let text = format!("$jsonSchema keyword '{keyword}' cannot be an empty array");
        return Err(Error::failed_to_parse(text));
    }
    let mut names: Vec<Box<str>> = Vec::new();
    let mut seen = HashSet::new();
    for item in items {
        let RawValue::String(name) = item.value() else {
            let found = item.value().type_name();
            let text = format!("an array of strings, but found an element of type {found}");
            return Err(must(element, &text));
        };
        if !seen.insert(name) {
            let text =
                format!("$jsonSchema keyword '{keyword}' array cannot contain duplicate values");
            return Err(Error::failed_to_parse(text));
        }
        names.push(name.into());
    }
    Ok(names)
}

fn schemas(element: RawElement<'_>, depth: usize) -> Result<Vec<Schema>> {
    let items = array(element)?;
    if items.is_empty() {
        let text = format!("$jsonSchema keyword '{}' must be a non-empty array", element.name());
        return Err(Error::bad_value(text));
    }
    let one = |item: RawElement<'_>| match item.value() {
        RawValue::Document(inner) => parse(inner, depth + 1),
        other => {
            let found = other.type_name();
            let text = format!("an array of objects, but found an element of type {found}");
            Err(must(element, &text))
        }
    };
    items.iter().map(one).collect()
}

fn additional(element: RawElement<'_>, depth: usize) -> Result<AdditionalRule> {
    match element.value() {
        RawValue::Bool(allowed) => Ok(AdditionalRule::Allowed(allowed)),
        RawValue::Document(inner) => Ok(AdditionalRule::Fit(Box::new(parse(inner, depth + 1)?))),
        _ => Err(must(element, "an object or a boolean")),
    }
}

fn items(schema: &mut Schema, element: RawElement<'_>, depth: usize) -> Result<()> {
    schema.arrays.items = Some(match element.value() {
        RawValue::Document(inner) => Items::Each(Box::new(parse(inner, depth + 1)?)),
        RawValue::Array(list) => {
            let one = |item: RawElement<'_>| match item.value() {
                RawValue::Document(inner) => parse(inner, depth + 1),
                _ => Err(mistyped(format!(
                    "$jsonSchema keyword 'items' requires that each element of the array is an object, but found a {}",
                    item.value().type_name()
                ))),
            };
            Items::InTurn(list.iter().map(one).collect::<Result<_>>()?)
        }
        other => {
            return Err(must(
                element,
                &format!("an array or an object, not {}", other.type_name()),
            ));
        }
    });
    Ok(())
}

fn nested(element: RawElement<'_>, depth: usize) -> Result<Schema> {
    match element.value() {
        RawValue::Document(inner) => parse(inner, depth + 1),
        _ => Err(mistyped(format!(
            "Nested schema for $jsonSchema property '{}' must be an object",
            element.name()
        ))),
    }
}

fn properties(schema: &mut Schema, element: RawElement<'_>, depth: usize) -> Result<()> {
    for property in object(element)? {
        let inner = nested(property, depth)?;
        let properties = &mut schema.objects.properties;
        let at = properties.position(property.name());
        let at = at.unwrap_or_else(|| properties.push(property.name(), Vec::new()));
        properties.value_mut(at).push(inner);
    }
    Ok(())
}

fn pattern_properties(schema: &mut Schema, element: RawElement<'_>, depth: usize) -> Result<()> {
    for property in object(element)? {
        let RawValue::Document(inner) = property.value() else {
            return Err(mistyped(format!(
                "$jsonSchema keyword 'patternProperties' has property '{}' which is not an object",
                property.name()
            )));
        };
        let pattern =
            Regex::new(property.name(), "").map_err(|error| Error::bad_value(error.message()))?;
        let inner = parse(inner, depth + 1)?;
        schema.objects.pattern_properties.push((pattern, inner));
    }
    Ok(())
}

fn dependencies(schema: &mut Schema, element: RawElement<'_>, depth: usize) -> Result<()> {
    for dependency in object(element)? {
        let name = dependency.name();
        let parsed = match dependency.value() {
            RawValue::Document(inner) => Dependency::Fit(Box::new(parse(inner, depth + 1)?)),
            RawValue::Array(_) => Dependency::Fields(names(dependency)?),
            _ => {
                return Err(mistyped(format!(
                    "Dependency for property '{name}' in $jsonSchema keyword 'dependencies' must be an object or an array"
                )));
            }
        };
        let also = if let Dependency::Fields(names) = &parsed { names.len() } else { 0 };
        schema.objects.named += 1 + also;
        schema.objects.dependencies.push((name.into(), parsed));
    }
    Ok(())
}

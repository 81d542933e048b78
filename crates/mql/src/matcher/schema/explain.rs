//! Explains why a document does not satisfy a schema, for `errInfo` of a failed validation.
//!
//! Uses the original schema: each keyword is evaluated individually, which is slow and done only
//! for a document that has failed. Manual: "Specify JSON Schema Validation", "Confirm That the
//! Validation Prevents Invalid Documents".

use mayfly_value::{DocBuilder, Finder, RawDoc, RawElement, RawValue};

use super::evaluate::unordered_key;
use super::{Regex, Schema};

/// The keywords with rules, in the order of the report.
const RULES: &[&str] = &[
    "pattern",
    "maxLength",
    "minLength",
    "multipleOf",
    "maximum",
    "minimum",
    "minItems",
    "maxItems",
    "uniqueItems",
    "items",
    "additionalItems",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "enum",
    "bsonType",
    "type",
];

/// The rules that hold for values of any type.
const OF_ANY_TYPE: &[&str] = &["allOf", "anyOf", "oneOf", "not", "enum", "bsonType", "type"];

/// Appends the fields that report which rules of the schema a document violates.
pub(in crate::matcher) fn explain(schema: RawDoc<'_>, doc: RawDoc<'_>, out: &mut DocBuilder) {
    out.append("operatorName", "$jsonSchema");
    if accepts_no_document(schema) {
        out.start_document("specifiedAs").append("$jsonSchema", schema).end();
        out.append("reason", "expression always evaluates to false");
        return;
    }
    annotate(schema, out);
    out.start_array("schemaRulesNotSatisfied");
    push_broken(schema, RawValue::Document(doc), out);
    out.end();
}

/// Whether the schema of a whole document demands another type.
fn accepts_no_document(schema: RawDoc<'_>) -> bool {
    let of_type = |name: &&str| schema.get_element(name);
    let types = ["bsonType", "type"];
    types
        .iter()
        .filter_map(of_type)
        .any(|rule| !fits(alone(schema, rule).finish().as_doc(), RawValue::Document(RawDoc::EMPTY)))
}

/// Appends that a document satisfies a schema that it should not.
pub(in crate::matcher) fn explain_match(schema: RawDoc<'_>, out: &mut DocBuilder) {
    out.append("operatorName", "$jsonSchema");
    annotate(schema, out);
    out.append("reason", "schema matched");
}

/// Appends the title and description in the schema.
fn annotate(schema: RawDoc<'_>, out: &mut DocBuilder) {
    for name in ["title", "description"] {
        if let Some(element) = schema.get_element(name) {
            out.append_element(element);
        }
    }
}

fn fits(schema: RawDoc<'_>, value: RawValue<'_>) -> bool {
    // The schema was parsed with the validator. If a regular expression fails, the result of the
    // rule is unknown, and the rule is not reported.
    Schema::parse(schema).and_then(|schema| schema.fits(value)).unwrap_or(true)
}

/// Whether a field name matches; a failed search counts as no match.
fn finds(pattern: &Regex, name: &str) -> bool {
    pattern.matches_text(name).unwrap_or(false)
}

/// Appends a document for each rule that the value violates.
fn push_broken(schema: RawDoc<'_>, value: RawValue<'_>, out: &mut DocBuilder) {
    for name in RULES {
        let Some(rule) = schema.get_element(name) else { continue };
        if has_no_effect(schema, name, value) {
            continue;
        }
        if !fits(alone(schema, rule).finish().as_doc(), value) {
            out.push_document();
            describe(schema, rule, value, out);
            out.end();
        }
    }
}

/// Whether a rule holds for values of a type that the schema excludes.
fn has_no_effect(schema: RawDoc<'_>, rule: &str, value: RawValue<'_>) -> bool {
    if OF_ANY_TYPE.contains(&rule) {
        return false;
    }
    let types = ["bsonType", "type"].iter().find_map(|name| schema.get_element(name));
    let Some(types) = types.map(|types| alone(schema, types).finish()) else { return false };
    let allows = |value: RawValue<'_>| fits(types.as_doc(), value);
    let allows_numbers =
        || [RawValue::Int32(0), RawValue::Int64(0), RawValue::Double(0.0)].into_iter().any(allows);
    if matches!(rule, "multipleOf" | "maximum" | "minimum") && allows_numbers() {
        return false;
    }
    !allows(value)
}

/// The rule alone, with the keywords that modify its meaning.
fn alone(schema: RawDoc<'_>, rule: RawElement<'_>) -> DocBuilder {
    let mut out = DocBuilder::new();
    match rule.name() {
        "maximum" | "minimum" => {
            specify(schema, rule, &mut out);
            return out;
        }
        "additionalItems" => {
            out.start_array("items");
            for _ in 0..items_in_turn(schema).unwrap_or(0) {
                out.push_document().end();
            }
            out.end();
        }
        "additionalProperties" => {
            for name in ["properties", "patternProperties"] {
                out.start_document(name);
                for property in inner(schema, name) {
                    out.start_document(property.name()).end();
                }
                out.end();
            }
        }
        _ => {}
    }
    out.append_element(rule);
    out
}

/// Appends the original rule.
fn specify(schema: RawDoc<'_>, rule: RawElement<'_>, out: &mut DocBuilder) {
    out.append_element(rule);
    let flag = match rule.name() {
        "maximum" => "exclusiveMaximum",
        "minimum" => "exclusiveMinimum",
        _ => return,
    };
    if schema.get(flag) == Some(RawValue::Bool(true)) {
        out.append(flag, true);
    }
}

fn inner<'a>(schema: RawDoc<'a>, name: &str) -> RawDoc<'a> {
    schema.get(name).and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY)
}

/// The number of items with individual schemas, if `items` is an array.
fn items_in_turn(schema: RawDoc<'_>) -> Option<usize> {
    schema.get("items").and_then(RawValue::as_array).map(|list| list.iter().count())
}

fn describe(schema: RawDoc<'_>, rule: RawElement<'_>, value: RawValue<'_>, out: &mut DocBuilder) {
    let name = rule.name();
    out.append("operatorName", name);
    match (name, value) {
        ("properties", RawValue::Document(document)) => properties(rule, document, out),
        ("patternProperties", RawValue::Document(document)) => pattern(rule, document, out),
        ("dependencies", RawValue::Document(document)) => dependencies(rule, document, out),
        ("allOf" | "anyOf" | "oneOf", _) => several(rule, value, out),
        ("not", _) => {
            out.append("reason", "child expression matched");
        }
        ("items" | "additionalItems", RawValue::Array(items)) => item(schema, rule, items, out),
        ("additionalProperties", RawValue::Document(document)) => {
            additional(schema, rule, document, out);
        }
        _ => {
            out.start_document("specifiedAs");
            specify(schema, rule, out);
            out.end();
            plain(rule, value, out);
        }
    }
}

/// Appends rules that are reported with the text and the considered value.
fn plain(rule: RawElement<'_>, value: RawValue<'_>, out: &mut DocBuilder) {
    let reason = match rule.name() {
        "required" => {
            out.start_array("missingProperties");
            missing(rule, value.as_document().unwrap_or(RawDoc::EMPTY), out);
            out.end();
            return;
        }
        "minProperties" | "maxProperties" => {
            let count = value.as_document().map_or(0, |document| document.iter().count());
            out.append("reason", "specified number of properties was not satisfied");
            out.append("numberOfProperties", count as i32);
            return;
        }
        "bsonType" | "type" => "type did not match",
        "enum" => "value was not found in enum",
        "minLength" | "maxLength" => "specified string length was not satisfied",
        "pattern" => "regular expression did not match",
        "multipleOf" => "considered value is not a multiple of the specified value",
        "minItems" | "maxItems" => "array did not match specified length",
        "uniqueItems" => "found a duplicate item",
        _ => "comparison failed",
    };
    out.append("reason", reason).append("consideredValue", value);
    match (rule.name(), value) {
        ("bsonType" | "type", _) => {
            out.append("consideredType", value.type_name());
        }
        ("minItems" | "maxItems", RawValue::Array(items)) => {
            out.append("numberOfItems", items.iter().count() as i32);
        }
        ("uniqueItems", RawValue::Array(items)) => {
            let mut seen = std::collections::HashSet::new();
            let twice = items.iter().find(|item| !seen.insert(unordered_key(item.value())));
            if let Some(twice) = twice {
                out.append("duplicatedValue", twice.value());
            }
        }
        _ => {}
    }
}

/// Appends the listed names that are not fields of the document, in alphabetical order.
fn missing(rule: RawElement<'_>, document: RawDoc<'_>, out: &mut DocBuilder) {
    let names = rule.value().as_array().unwrap_or(RawDoc::EMPTY);
    let fields = Finder::new(document);
    let lacks = |name: &&str| fields.get_element(document, name).is_none();
    let names = names.iter().filter_map(|name| name.value().as_str());
    let missing: std::collections::BTreeSet<&str> = names.filter(lacks).collect();
    missing.into_iter().for_each(|name| {
        out.push(name);
    });
}

fn details(schema: RawDoc<'_>, value: RawValue<'_>, out: &mut DocBuilder) {
    out.start_array("details");
    push_broken(schema, value, out);
    out.end();
}

fn properties(rule: RawElement<'_>, document: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_array("propertiesNotSatisfied");
    let fields = Finder::new(document);
    for property in rule.value().as_document().unwrap_or(RawDoc::EMPTY) {
        let schema = property.value().as_document().unwrap_or(RawDoc::EMPTY);
        match fields.get(document, property.name()) {
            Some(value) if !fits(schema, value) => {
                out.push_document().append("propertyName", property.name());
                annotate(schema, out);
                details(schema, value, out);
                out.end();
            }
            _ => {}
        }
    }
    out.end();
}

fn pattern(rule: RawElement<'_>, document: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_array("details");
    for property in rule.value().as_document().unwrap_or(RawDoc::EMPTY) {
        let schema = property.value().as_document().unwrap_or(RawDoc::EMPTY);
        let Ok(regex) = Regex::new(property.name(), "") else { continue };
        let mut found = document.iter().filter(|field| finds(&regex, field.name()));
        if let Some(field) = found.find(|field| !fits(schema, field.value())) {
            out.push_document().append("propertyName", field.name());
            annotate(schema, out);
            out.append("regexMatched", property.name());
            details(schema, field.value(), out);
            out.end();
        }
    }
    out.end();
}

fn additional(
    schema: RawDoc<'_>,
    rule: RawElement<'_>,
    document: RawDoc<'_>,
    out: &mut DocBuilder,
) {
    let (known, patterns) = (inner(schema, "properties"), inner(schema, "patternProperties"));
    let patterns: Vec<Regex> =
        patterns.iter().filter_map(|pattern| Regex::new(pattern.name(), "").ok()).collect();
    let names = Finder::new(known);
    let mut others = document.iter().filter(|field| {
        names.get_element(known, field.name()).is_none()
            && !patterns.iter().any(|pattern| finds(pattern, field.name()))
    });
    let RawValue::Document(schema) = rule.value() else {
        out.start_document("specifiedAs").append_element(rule).end();
        out.start_array("additionalProperties");
        others.for_each(|field| {
            out.push(field.name());
        });
        out.end();
        return;
    };
    if let Some(field) = others.find(|field| !fits(schema, field.value())) {
        annotate(schema, out);
        out.append("reason", "at least one additional property did not match the subschema");
        out.append("failingProperty", field.name());
        details(schema, field.value(), out);
    }
}

/// Appends the first invalid item, each one that has its own schema, or all disallowed items.
fn item(schema: RawDoc<'_>, rule: RawElement<'_>, items: RawDoc<'_>, out: &mut DocBuilder) {
    let additional = rule.name() == "additionalItems";
    let first = if additional { items_in_turn(schema).unwrap_or(0) } else { 0 };
    match rule.value() {
        RawValue::Array(list) => items_with_schemas(list, items, out),
        RawValue::Document(schema) => {
            let mut checked = items.iter().enumerate().skip(first);
            let Some((at, item)) = checked.find(|(_, item)| !fits(schema, item.value())) else {
                return;
            };
            annotate(schema, out);
            let reason = match additional {
                true => "At least one additional item did not match the sub-schema",
                false => "At least one item did not match the sub-schema",
            };
            out.append("reason", reason).append("itemIndex", at as i32);
            details(schema, item.value(), out);
        }
        _ => {
            out.start_document("specifiedAs").append_element(rule).end();
            out.append("reason", "found additional items").start_array("additionalItems");
            items.iter().skip(first).for_each(|item| {
                out.push(item.value());
            });
            out.end();
        }
    }
}

fn items_with_schemas(list: RawDoc<'_>, items: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_array("details");
    for (at, (schema, item)) in list.iter().zip(items.iter()).enumerate() {
        let Some(schema) = schema.value().as_document() else { continue };
        if !fits(schema, item.value()) {
            out.push_document().append("itemIndex", at as i32);
            details(schema, item.value(), out);
            out.end();
        }
    }
    out.end();
}

fn dependencies(rule: RawElement<'_>, document: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_array("failingDependencies");
    let fields = Finder::new(document);
    let lacks = |name: &str| fields.get_element(document, name).is_none();
    for dependency in rule.value().as_document().unwrap_or(RawDoc::EMPTY) {
        if lacks(dependency.name()) {
            continue;
        }
        match dependency.value() {
            RawValue::Document(schema) if !fits(schema, RawValue::Document(document)) => {
                out.push_document().append("conditionalProperty", dependency.name());
                details(schema, RawValue::Document(document), out);
                out.end();
            }
            RawValue::Array(names)
                if names.iter().any(|name| name.value().as_str().is_some_and(lacks)) =>
            {
                out.push_document().append("conditionalProperty", dependency.name());
                out.start_array("missingProperties");
                missing(dependency, document, out);
                out.end().end();
            }
            _ => {}
        }
    }
    out.end();
}

/// Appends the result of `allOf`, `anyOf`, `oneOf`.
fn several(rule: RawElement<'_>, value: RawValue<'_>, out: &mut DocBuilder) {
    let list = rule.value().as_array().unwrap_or(RawDoc::EMPTY);
    let schemas = || list.iter().filter_map(|item| item.value().as_document()).enumerate();
    let matching: Vec<usize> =
        schemas().filter(|(_, schema)| fits(*schema, value)).map(|(at, _)| at).collect();
    if rule.name() == "oneOf" && !matching.is_empty() {
        out.append("reason", "more than one subschema matched")
            .start_array("matchingSchemaIndexes");
        matching.iter().for_each(|at| {
            out.push(*at as i32);
        });
        out.end();
        return;
    }
    out.start_array("schemasNotSatisfied");
    for (at, schema) in schemas().filter(|(at, _)| !matching.contains(at)) {
        out.push_document().append("index", at as i32);
        annotate(schema, out);
        details(schema, value, out);
        out.end();
    }
    out.end();
}

//! The shape of a `find`, `distinct` or `aggregate` command: the command with each value replaced
//! by its type (`{a: {$gt: '?number'}}`). Query settings apply to shapes, and `queryShapeHash`
//! identifies one. Manual: "Query Shapes", "$queryStats", "Query Shape".
//!
//! The hash is computed over the bytes of this shape. The reference hashes other bytes, so the
//! hashes of the two differ. Hints, time limits and batch sizes are not part of a shape. A flag
//! that is false, a limit of 0 and an empty sort count as absent.

use std::fmt;

use mayfly_base::Namespace;
use mayfly_mql::matcher::{is_operator_document, joined};
use mayfly_value::arguments::convert::truth;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue};
use sha2::{Digest, Sha256};

use super::stage_shape::{ShapeOf, append_pipeline};

/// Fields of `find` whose values are part of the shape.
const FIND_FLAGS: &[&str] = &[
    "singleBatch",
    "returnKey",
    "showRecordId",
    "tailable",
    "oplogReplay",
    "awaitData",
    "allowDiskUse",
];

/// Identifies a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryShapeHash([u8; 32]);

impl QueryShapeHash {
    /// The SHA-256 hash of a document.
    pub fn of(document: RawDoc<'_>) -> QueryShapeHash {
        QueryShapeHash(Sha256::digest(document.as_bytes()).into())
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<QueryShapeHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        }
        Some(QueryShapeHash(bytes))
    }
}

/// Formats the hash as 64 hexadecimal digits.
impl fmt::Display for QueryShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// The shape of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryShape(DocBuf);

impl QueryShape {
    /// The shape of a command with this name and body; `None` for commands without shapes. The
    /// command has been checked. `shape_of` returns the shapes of stages.
    pub(crate) fn with_stages(
        command: &str,
        ns: &Namespace,
        body: RawDoc<'_>,
        shape_of: ShapeOf,
    ) -> Option<QueryShape> {
        let mut out = DocBuilder::new();
        out.start_document("cmdNs").append("db", ns.db()).append("coll", ns.collection()).end();
        out.append("command", command);
        let document = |name: &str| body.get(name).and_then(RawValue::as_document);
        let given = |name: &str| document(name).filter(|given| !given.is_empty());
        match command {
            "find" => {
                out.append("filter", &filter(document("filter").unwrap_or(RawDoc::EMPTY)));
                append_verbatim("sort", given("sort"), &mut out);
                if let Some(projection) = given("projection") {
                    append_projection("projection", projection, &mut out);
                }
                for name in ["skip", "limit"] {
                    let number = body.get(name).and_then(Number::from_value);
                    if number.is_some_and(|number| number.to_f64() != 0.0) {
                        out.append(name, "?number");
                    }
                }
                for name in ["max", "min"] {
                    if let Some(bounds) = given(name) {
                        append_types(name, bounds, &mut out);
                    }
                }
                FIND_FLAGS.iter().for_each(|flag| append_flag(flag, body, &mut out));
            }
            "distinct" => {
                out.append("key", body.get("key").unwrap_or(RawValue::Null));
                out.append("query", &filter(document("query").unwrap_or(RawDoc::EMPTY)));
            }
            "aggregate" => {
                let Some(RawValue::Array(pipeline)) = body.get("pipeline") else { return None };
                append_pipeline("pipeline", pipeline, shape_of, &mut out);
                append_flag("allowDiskUse", body, &mut out);
            }
            _ => return None,
        }
        append_verbatim("collation", given("collation"), &mut out);
        if let Some(variables) = given("let") {
            out.start_document("let");
            for variable in variables {
                append_expression(
                    ShapePosition::Field(variable.name()),
                    variable.value(),
                    &mut out,
                );
            }
            out.end();
        }
        Some(QueryShape(out.finish()))
    }

    /// The shape of a statement that `queryShapeHash` does not cover: `count`, `update`, `delete`
    /// or `findAndModify`, with its filter and sort.
    pub fn of_statement(
        command: &str,
        ns: &Namespace,
        filter: RawDoc<'_>,
        sort: Option<RawDoc<'_>>,
    ) -> QueryShape {
        let mut out = DocBuilder::new();
        out.start_document("cmdNs").append("db", ns.db()).append("coll", ns.collection()).end();
        out.append("command", command);
        out.append("filter", &self::filter(filter));
        append_verbatim("sort", sort.filter(|sort| !sort.is_empty()), &mut out);
        QueryShape(out.finish())
    }

    /// The document that `debugQueryShape` shows.
    pub fn as_doc(&self) -> RawDoc<'_> {
        self.0.as_doc()
    }

    /// The SHA-256 hash of the shape.
    pub fn hash(&self) -> QueryShapeHash {
        QueryShapeHash::of(self.0.as_doc())
    }
}

/// The position to which a part of a shape is written.
#[derive(Clone, Copy)]
pub(super) enum ShapePosition<'a> {
    /// A field with this name.
    Field(&'a str),
    /// The end of an array.
    Item,
}

impl ShapePosition<'_> {
    pub(super) fn append<'v>(self, value: impl Into<RawValue<'v>>, out: &mut DocBuilder) {
        match self {
            ShapePosition::Field(name) => out.append(name, value),
            ShapePosition::Item => out.push(value),
        };
    }

    pub(super) fn start_document(self, out: &mut DocBuilder) {
        match self {
            ShapePosition::Field(name) => out.start_document(name),
            ShapePosition::Item => out.push_document(),
        };
    }

    pub(super) fn start_array(self, out: &mut DocBuilder) {
        match self {
            ShapePosition::Field(name) => out.start_array(name),
            ShapePosition::Item => out.push_array(),
        };
    }
}

fn append_verbatim(name: &str, value: Option<RawDoc<'_>>, out: &mut DocBuilder) {
    if let Some(value) = value {
        out.append(name, RawValue::Document(value));
    }
}

fn append_flag(name: &str, body: RawDoc<'_>, out: &mut DocBuilder) {
    let set = match body.get(name) {
        Some(RawValue::Bool(flag)) => flag,
        Some(value) => Number::from_value(value).is_some_and(|number| number.to_f64() != 0.0),
        None => false,
    };
    if set {
        out.append(name, true);
    }
}

fn append_types(name: &str, document: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_document(name);
    for field in document {
        out.append(field.name(), type_of(field.value()).as_str());
    }
    out.end();
}

/// The placeholder for a value.
pub(super) fn type_of(value: RawValue<'_>) -> String {
    let RawValue::Array(items) = value else { return format!("?{}", name_of(value)) };
    let mut names = items.iter().map(|item| name_of(item.value()));
    match names.next() {
        None => "[]".to_owned(),
        Some(first) if names.all(|name| name == first) => format!("?array<?{first}>"),
        Some(_) => "?array<>".to_owned(),
    }
}

fn name_of(value: RawValue<'_>) -> &'static str {
    if value.is_number() { "number" } else { value.type_name() }
}

/// Normalizes a filter to one document with explicit operators.
pub(super) fn filter(filter: RawDoc<'_>) -> DocBuf {
    let mut conditions = Vec::new();
    collect(filter, &mut conditions);
    joined(&conditions)
}

fn collect(filter: RawDoc<'_>, conditions: &mut Vec<DocBuf>) {
    for element in filter {
        let name = element.name();
        let mut out = DocBuilder::new();
        match (name, element.value()) {
            ("$and", RawValue::Array(parts)) => {
                let parts = parts.iter().filter_map(|part| part.value().as_document());
                parts.for_each(|part| collect(part, conditions));
                continue;
            }
            ("$comment", _) => continue,
            ("$or" | "$nor", RawValue::Array(parts)) => {
                out.start_array(name);
                for part in parts.iter().filter_map(|part| part.value().as_document()) {
                    out.push(&self::filter(part));
                }
                out.end();
            }
            ("$expr", value) => append_expression(ShapePosition::Field(name), value, &mut out),
            ("$text", RawValue::Document(search)) => append_types(name, search, &mut out),
            ("$jsonSchema", value) => {
                out.append(name, value);
            }
            ("$where", _) => {
                out.append(name, "?javascript");
            }
            (_, value) if name.starts_with('$') => {
                out.append(name, type_of(value).as_str());
            }
            (_, RawValue::Document(operators)) if is_operator_document(operators) => {
                collect_operators(name, operators, conditions);
                continue;
            }
            (_, value) => {
                append_equality(value, out.start_document(name));
                out.end();
            }
        }
        conditions.push(out.finish());
    }
}

fn append_equality(value: RawValue<'_>, out: &mut DocBuilder) {
    match value {
        RawValue::Regex { .. } => out.append("$regex", "?string"),
        value => out.append("$eq", type_of(value).as_str()),
    };
}

/// Operators that modify the preceding one.
const CONTINUED: &[&str] = &["$options", "$maxDistance", "$minDistance"];

/// Collects each operator on a path as a separate condition.
fn collect_operators(path: &str, operators: RawDoc<'_>, conditions: &mut Vec<DocBuf>) {
    let mut rest = operators.iter().peekable();
    while let Some(operator) = rest.next() {
        let mut out = DocBuilder::new();
        out.start_document(path);
        append_operator(operator, &mut out);
        while let Some(next) = rest.next_if(|next| CONTINUED.contains(&next.name())) {
            append_operator(next, &mut out);
        }
        out.end();
        conditions.push(out.finish());
    }
}

fn append_operators(operators: RawDoc<'_>, out: &mut DocBuilder) {
    operators.iter().for_each(|operator| append_operator(operator, out));
}

fn append_operator(operator: RawElement<'_>, out: &mut DocBuilder) {
    let name = operator.name();
    match (name, operator.value()) {
        ("$not", RawValue::Document(inner)) => {
            append_operators(inner, out.start_document(name));
            out.end();
        }
        ("$not", value) => {
            append_equality(value, out.start_document(name));
            out.end();
        }
        ("$elemMatch", RawValue::Document(inner)) => {
            let logical = ["$and", "$or", "$nor"];
            let first = inner.iter().next().map_or("", |first| first.name());
            if is_operator_document(inner) && !logical.contains(&first) {
                append_operators(inner, out.start_document(name));
                out.end();
            } else {
                out.append(name, &filter(inner));
            }
        }
        ("$all", RawValue::Array(items))
            if items.iter().any(|item| is_item_condition(item.value())) =>
        {
            out.start_array(name);
            for item in items.iter().filter_map(|item| item.value().as_document()) {
                append_operators(item, out.push_document());
                out.end();
            }
            out.end();
        }
        // As in the reference, these are parts of the shape: the types, whether a value must exist,
        // and the number of items.
        ("$type", value) => {
            out.start_array(name);
            match value {
                RawValue::Array(types) => {
                    for one in types {
                        out.push(one.value());
                    }
                }
                one => {
                    out.push(one);
                }
            }
            out.end();
        }
        ("$exists", value) => {
            let exists = !matches!(value, RawValue::Null) && truth(value).unwrap_or(true);
            out.append(name, exists);
        }
        ("$all", RawValue::Array(items)) => {
            out.start_array(name);
            for item in items {
                out.push(type_of(item.value()).as_str());
            }
            out.end();
        }
        (_, RawValue::Document(inner)) if is_area(name) => append_types(name, inner, out),
        (_, value) => {
            out.append(name, type_of(value).as_str());
        }
    }
}

fn is_item_condition(value: RawValue<'_>) -> bool {
    value.as_document().is_some_and(|item| item.get("$elemMatch").is_some())
}

fn is_area(operator: &str) -> bool {
    matches!(operator, "$geoWithin" | "$geoIntersects" | "$within" | "$near" | "$nearSphere")
}

/// Appends an expression: operators, paths and variables are part of the shape.
pub(super) fn append_expression(
    place: ShapePosition<'_>,
    value: RawValue<'_>,
    out: &mut DocBuilder,
) {
    match value {
        RawValue::String(path) if path.starts_with('$') => place.append(path, out),
        RawValue::Array(items) if !is_constant(value) => {
            place.start_array(out);
            items.iter().for_each(|item| append_expression(ShapePosition::Item, item.value(), out));
            out.end();
        }
        RawValue::Document(fields) => {
            place.start_document(out);
            for field in fields {
                let name = ShapePosition::Field(field.name());
                match (field.name(), field.value()) {
                    ("$literal" | "$const", value) => name.append(type_of(value).as_str(), out),
                    // The number of operands is part of the shape.
                    (operator, RawValue::Array(operands)) if operator.starts_with('$') => {
                        name.start_array(out);
                        for operand in operands {
                            append_expression(ShapePosition::Item, operand.value(), out);
                        }
                        out.end();
                    }
                    (_, value) => append_expression(name, value, out),
                }
            }
            out.end();
        }
        value => place.append(type_of(value).as_str(), out),
    }
}

fn is_constant(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => !text.starts_with('$'),
        RawValue::Array(items) => items.iter().all(|item| is_constant(item.value())),
        RawValue::Document(fields) => {
            fields.iter().all(|field| !field.name().starts_with('$') && is_constant(field.value()))
        }
        _ => true,
    }
}

/// Appends a projection: included and excluded fields are part of the shape.
pub(super) fn append_projection(name: &str, fields: RawDoc<'_>, out: &mut DocBuilder) {
    out.start_document(name);
    for field in fields {
        let name = field.name();
        match field.value() {
            RawValue::Bool(kept) => {
                out.append(name, kept);
            }
            RawValue::Document(inner) => match inner.iter().next().map(|first| first.name()) {
                Some("$elemMatch" | "$slice") => {
                    append_operators(inner, out.start_document(name));
                    out.end();
                }
                Some("$meta") => {
                    out.append(name, RawValue::Document(inner));
                }
                Some(operator) if operator.starts_with('$') => {
                    append_expression(ShapePosition::Field(name), field.value(), out);
                }
                _ => append_projection(name, inner, out),
            },
            value => match Number::from_value(value) {
                Some(number) => {
                    out.append(name, number.to_f64() != 0.0);
                }
                None => append_expression(ShapePosition::Field(name), value, out),
            },
        }
    }
    out.end();
}

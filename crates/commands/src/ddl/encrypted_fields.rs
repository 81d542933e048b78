//! `encryptedFields` of `create`: the fields that clients encrypt, and how they query them. Manual:
//! "create", "encryptedFields"; "Queryable Encryption".
//!
//! The definition is checked and stored, for clients that encrypt automatically, and for the check
//! of documents. The collections with the state of the encryption (`enxcol_.NAME.esc`,
//! `enxcol_.NAME.ecoc`) are created by drivers, or by the first write that needs them.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_encryption::EncryptedFields;
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::arguments::{Argument, Fields, Form};
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue, compare_values};

use crate::context::CommandContext;

const PATH: &str = "create.encryptedFields";

pub(super) const CONFIG: &[Argument] = &[
    Argument::array("fields").required(),
    Argument::string("escCollection"),
    Argument::string("ecocCollection"),
    Argument::string("eccCollection"),
    Argument::whole("strEncodeVersion"),
];

const FIELD: &[Argument] = &[
    Argument::uuid("keyId").required(),
    Argument::string("path").required(),
    Argument::string("bsonType"),
    Argument::one_of("queries", &[Form::Document, Form::Array]).null_is_value(),
];

const QUERY: &[Argument] = &[
    Argument::choice(
        "queryType",
        &[
            "equality",
            "range",
            "rangePreview",
            "substringPreview",
            "suffixPreview",
            "prefixPreview",
        ],
    )
    .required(),
    Argument::whole("contention").at_least(0),
    Argument::whole("sparsity").at_least(1),
    Argument::any("min"),
    Argument::any("max"),
    Argument::whole("trimFactor").at_least(0),
    Argument::whole("precision").at_least(0),
    Argument::whole("strMaxLength").at_least(1),
    Argument::whole("strMinQueryLength").at_least(1),
    Argument::whole("strMaxQueryLength").at_least(1),
    Argument::bool("caseSensitive").null_is_value(),
    Argument::bool("diacriticSensitive").null_is_value(),
];

/// Numbers of a query that must be whole.
const WHOLE: &[&str] = &[
    "contention",
    "sparsity",
    "trimFactor",
    "precision",
    "strMaxLength",
    "strMinQueryLength",
    "strMaxQueryLength",
];
/// Arguments of ranges, with the codes where text and equality refuse them.
const OF_RANGES: &[(&str, i32, i32)] = &[
    ("sparsity", 10774911, 6775205),
    ("min", 10774912, 6775206),
    ("max", 10774913, 6775207),
    ("trimFactor", 10774914, 8574104),
    ("precision", 10774915, 10774900),
];
/// Arguments of text, with the codes where ranges and equality refuse them.
const OF_TEXT: &[(&str, i32, i32)] = &[
    ("strMaxLength", 10774906, 10774901),
    ("strMinQueryLength", 10774907, 10774902),
    ("strMaxQueryLength", 10774908, 10774903),
    ("caseSensitive", 10774909, 10774904),
    ("diacriticSensitive", 10774910, 10774905),
];
/// The types that can be queried for equality.
const EQUALITY_TYPES: &[&str] = &[
    "string",
    "binData",
    "objectId",
    "bool",
    "date",
    "regex",
    "dbPointer",
    "javascript",
    "symbol",
    "int",
    "timestamp",
    "long",
];
/// The types that can be queried by ranges.
const RANGE_TYPES: &[&str] = &["int", "long", "date", "double", "decimal"];
/// Types whose values cannot be encrypted.
const SINGLE_VALUES: &[&str] = &["minKey", "maxKey", "undefined", "null"];
/// Other types, whose values can be encrypted without queries.
const OTHER_TYPES: &[&str] = &["double", "decimal", "object", "array", "javascriptWithScope"];

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

/// Refuses views and time series with encrypted fields.
///
/// # Errors
/// 6346401.
pub(super) fn check_with_others(fields: &Fields<'_>) -> Result<()> {
    let is_given = |name| fields.get(name).is_some();
    if is_given("encryptedFields") && (is_given("viewOn") || is_given("timeseries")) {
        let text = "Encrypted fields cannot be used with views or time series";
        return Err(fault(6346401, text));
    }
    Ok(())
}

/// Checks the definition and appends it to the options of the collection. Null elements of arrays
/// are skipped.
///
/// # Errors
/// The codes of the reference for each rule.
pub(super) fn encrypted_fields(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    let Some(config) = fields.document("encryptedFields")? else { return Ok(()) };
    if fields.bool("capped")? == Some(true) {
        return Err(fault(6367301, "Encrypted collections cannot be capped"));
    }
    check_validation(fields)?;
    let read = Fields::read(config, PATH, CONFIG)?;
    for (name, code) in [("escCollection", 7406900), ("ecocCollection", 7406902)] {
        let name = read.string(name)?;
        if name.is_some_and(|name| !name.starts_with("enxcol_.")) {
            let text = "the name of a state collection begins with 'enxcol_.'";
            return Err(fault(code, text));
        }
    }
    let (mut keys, mut paths) = (Vec::new(), Vec::new());
    for element in read.array("fields")?.unwrap_or(RawDoc::EMPTY) {
        if element.value() == RawValue::Null {
            continue;
        }
        let Some(field) = element.value().as_document() else {
            let path = format!("{PATH}.fields.{}", element.name());
            return Err(wrong_type(path, element.value(), "object"));
        };
        let field = Fields::read(field, "create.encryptedFields.fields", FIELD)?;
        check_field(&field, &mut keys, &mut paths)?;
    }
    options.append("encryptedFields", config);
    Ok(())
}

/// Refuses TTL indexes on a collection with encrypted fields, and indexes on these fields.
///
/// # Errors
/// 6346501, 6346502.
pub(super) fn check_indexes(options: RawDoc<'_>, specs: &[RawDoc<'_>]) -> Result<()> {
    let Some(config) = options.get("encryptedFields").and_then(RawValue::as_document) else {
        return Ok(());
    };
    let fields = EncryptedFields::parse(config)?;
    for spec in specs {
        if spec.get("expireAfterSeconds").is_some() {
            return Err(expiring_index());
        }
        let keys = spec.get("key").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        let touches = |path: &str| keys.iter().any(|key| contains_other(path, key.name()));
        if let Some(field) = fields.iter().find(|field| touches(&field.path)) {
            let path = &field.path;
            let text = format!("Index not allowed on, or a prefix of, the encrypted field {path}");
            return Err(fault(6346502, text));
        }
    }
    Ok(())
}

/// The error for an index whose documents would expire.
pub(super) fn expiring_index() -> Error {
    fault(6346501, "TTL indexes are not allowed on encrypted collections")
}

/// Whether two paths are equal, or one of them is inside of the other.
fn contains_other(one: &str, other: &str) -> bool {
    let contains = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    contains(one, other) || contains(other, one)
}

/// Refuses rules for documents that would accept values that are not encrypted.
///
/// # Errors
/// 2 BadValue.
pub(super) fn check_validation(fields: &Fields<'_>) -> Result<()> {
    if !matches!(fields.string("validationLevel")?, None | Some("strict")) {
        let text = "Validation levels other than 'strict' are not allowed on encrypted collections";
        return Err(Error::bad_value(text));
    }
    if fields.string("validationAction")? == Some("warn") {
        let text = "Validation action of 'warn' is not allowed on encrypted collections";
        return Err(Error::bad_value(text));
    }
    Ok(())
}

/// Whether a collection of this name has encrypted fields.
pub(super) fn is_encrypted(ctx: &CommandContext<'_>, ns: &Namespace) -> bool {
    let collection = ctx.store.collection(ns);
    collection.is_some_and(|it| it.options().as_doc().get("encryptedFields").is_some())
}

/// Checks one field; `keys` and `paths` are those of the fields before it.
fn check_field<'a>(
    field: &Fields<'a>,
    keys: &mut Vec<[u8; 16]>,
    paths: &mut Vec<&'a str>,
) -> Result<()> {
    let (Some(key), Some(path)) = (field.uuid("keyId"), field.string("path")?) else {
        return Err(field.missing("keyId"));
    };
    if keys.contains(&key) {
        return Err(fault(6338401, "Duplicate key ids are not allowed"));
    }
    if path.is_empty() {
        return Err(fault(6316402, "Encrypted field must have a non-empty path"));
    }
    if path.split('.').next() == Some("_id") {
        return Err(fault(6316403, "Cannot encrypt _id or its subfields"));
    }
    for other in paths.iter() {
        if *other == path {
            return Err(fault(6338402, "Duplicate paths are not allowed"));
        }
        if contains_other(other, path) {
            let text = format!(
                "Conflicting index paths found as one is a prefix of another '{path}' and '{other}'"
            );
            return Err(fault(6338403, text));
        }
    }
    keys.push(key);
    paths.push(path);
    let kind = field.string("bsonType")?;
    let known = [EQUALITY_TYPES, RANGE_TYPES, SINGLE_VALUES, OTHER_TYPES];
    if let Some(kind) = kind.filter(|kind| !known.iter().any(|types| types.contains(kind))) {
        return Err(Error::bad_value(format!("Unknown type name: {kind}")));
    }
    match field.get("queries") {
        None if kind.is_some_and(|kind| SINGLE_VALUES.contains(&kind)) => {
            let text = format!("Type '{}' is not a supported unindexed type", kind.unwrap_or(""));
            Err(fault(6338406, text))
        }
        None => Ok(()),
        Some(queries) => check_queries(queries, kind, path),
    }
}

/// Checks the queries of a field: one, or text from the front and from the end.
fn check_queries(queries: RawValue<'_>, kind: Option<&str>, path: &str) -> Result<()> {
    const QUERIES: &str = "create.encryptedFields.fields.queries";
    let mut parsed = Vec::new();
    match queries {
        RawValue::Document(query) => parsed.push(Fields::read(query, QUERIES, QUERY)?),
        RawValue::Array(items) => {
            for item in items.iter().filter(|item| item.value() != RawValue::Null) {
                let Some(query) = item.value().as_document() else {
                    return Err(wrong_type(QUERIES, item.value(), "object"));
                };
                parsed.push(Fields::read(query, QUERIES, QUERY)?);
            }
        }
        other => return Err(wrong_type(QUERIES, other, "[object, array]")),
    }
    for query in &parsed {
        check_whole(query)?;
    }
    if parsed.is_empty() {
        return Err(fault(9783412, "At least one query type should be specified per field"));
    }
    let Some(kind) = kind else {
        return Err(fault(6412601, "BSON type needs to be specified for an indexed field"));
    };
    let types = parsed.iter().map(|query| query.string("queryType"));
    let types = types.collect::<Result<Vec<_>>>()?;
    match (&parsed[..], &types[..]) {
        ([only], [Some("equality")]) => check_equality(only, kind),
        ([only], [Some("range" | "rangePreview")]) => check_range(only, kind),
        ([only], _) => check_text(only, kind, path),
        (
            [first, second],
            [Some("suffixPreview"), Some("prefixPreview")]
            | [Some("prefixPreview"), Some("suffixPreview")],
        ) => {
            check_text(first, kind, path)?;
            check_text(second, kind, path)?;
            check_same(first, second, path)
        }
        ([_, _], _) => Err(fault(
            9783414,
            "Multiple query types may only include the suffixPreview and prefixPreview query types",
        )),
        _ => Err(fault(
            9783413,
            "The number of query types for an encrypted field cannot exceed two",
        )),
    }
}

/// Checks that numbers are whole.
///
/// # Errors
/// 9 FailedToParse.
fn check_whole(query: &Fields<'_>) -> Result<()> {
    for name in WHOLE {
        let number = query.get(name).and_then(Number::from_value);
        if number.is_some_and(|number| number.to_i64_exact().is_none()) {
            let text = format!("Expected an integer for '{name}'");
            return Err(Error::failed_to_parse(text));
        }
    }
    Ok(())
}

/// Refuses arguments of another kind of query.
fn refuse<'a>(
    query: &Fields<'_>,
    names: impl Iterator<Item = (&'a str, i32)>,
    kind: &str,
) -> Result<()> {
    for (name, code) in names {
        if !matches!(query.doc().get(name), None | Some(RawValue::Null)) {
            let text = format!("The field '{name}' is not allowed for {kind} index but is present");
            return Err(fault(code, text));
        }
    }
    Ok(())
}

fn check_equality(query: &Fields<'_>, kind: &str) -> Result<()> {
    if !EQUALITY_TYPES.contains(&kind) {
        let text = format!("Type '{kind}' is not a supported equality indexed type");
        return Err(fault(6338405, text));
    }
    let names = OF_RANGES.iter().chain(OF_TEXT).map(|(name, _, code)| (*name, *code));
    refuse(query, names, "equality")
}

fn check_range(query: &Fields<'_>, kind: &str) -> Result<()> {
    if !RANGE_TYPES.contains(&kind) {
        let text = format!("Type '{kind}' is not a supported range indexed type");
        return Err(fault(6775201, text));
    }
    refuse(query, OF_TEXT.iter().map(|(name, code, _)| (*name, *code)), "range")?;
    if query.long("sparsity")?.is_some_and(|sparsity| sparsity > 8) {
        return Err(fault(6775214, "The field 'sparsity' must be between 1 and 8"));
    }
    let bound = |name: &str| query.get(name).filter(|value| *value != RawValue::Null);
    let (min, max) = (bound("min"), bound("max"));
    for (name, value, code) in [("min", min, 7018200), ("max", max, 7018201)] {
        if let Some(value) = value.filter(|value| value.type_name() != kind) {
            let text = format!(
                "Range field type '{kind}' does not match the {name} value type '{}'",
                value.type_name()
            );
            return Err(fault(code, text));
        }
    }
    if let (Some(min), Some(max)) = (min, max)
        && !compare_values(min, max).is_lt()
    {
        return Err(fault(6720005, "Min must be less than max."));
    }
    let precision = query.long("precision")?;
    let floats = matches!(kind, "double" | "decimal");
    if floats && (min.is_some() != max.is_some() || min.is_some() != precision.is_some()) {
        let text =
            "Precision, min, and max must all be specified together for floating point fields";
        return Err(fault(6967100, text));
    }
    let Some(trim_factor) = query.long("trimFactor")? else { return Ok(()) };
    if !floats && precision.is_some() {
        return Err(fault(8574113, "Precision may only be set when type is double or decimal"));
    }
    let bits = bits_in_domain(kind, (min, max), precision);
    if trim_factor != 0 && trim_factor >= bits {
        let text = format!(
            "The field 'trimFactor' must be >= 0 and less than the total number of bits needed to represent elements in the domain ({bits})"
        );
        return Err(fault(8574000, text));
    }
    Ok(())
}

/// The bits of the largest difference of two values between these bounds.
fn bits_in_domain(
    kind: &str,
    (min, max): (Option<RawValue<'_>>, Option<RawValue<'_>>),
    precision: Option<i64>,
) -> i64 {
    let (least, most, bits) = match kind {
        "int" => (i128::from(i32::MIN), i128::from(i32::MAX), 32),
        "decimal" => (i128::MIN, i128::MAX, 128),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX), 64),
    };
    let scale =
        precision.map_or(1.0, |digits| 10f64.powi(i32::try_from(digits).unwrap_or(i32::MAX)));
    let whole = |value: RawValue<'_>| match value {
        RawValue::Int32(number) => i128::from(number),
        RawValue::Int64(number) | RawValue::Date(number) => i128::from(number),
        // The cast saturates.
        other => Number::from_value(other).map_or(0, |number| (number.to_f64() * scale) as i128),
    };
    if precision.is_none() && matches!(kind, "double" | "decimal") {
        return bits;
    }
    let (least, most) = (min.map_or(least, whole), max.map_or(most, whole));
    let width = u128::BITS - most.wrapping_sub(least).cast_unsigned().leading_zeros();
    i64::from(width).min(bits)
}

fn check_text(query: &Fields<'_>, kind: &str, path: &str) -> Result<()> {
    if kind != "string" {
        let text = format!(
            "Type '{kind}' is not a supported type for text search indexed encrypted field {path}"
        );
        return Err(fault(9783400, text));
    }
    refuse(query, OF_RANGES.iter().map(|(name, code, _)| (*name, *code)), "text-based")?;
    let query_type = query.string("queryType")?.unwrap_or_default();
    let absent = |name: &str, code: i32| {
        let text =
            format!("{name} parameter is required for {query_type} query type of field {path}");
        fault(code, text)
    };
    let length = |name: &str, code: i32| query.long(name)?.ok_or_else(|| absent(name, code));
    let least = length("strMinQueryLength", 9783402)?;
    let most = length("strMaxQueryLength", 9783403)?;
    for (name, code) in [("caseSensitive", 9783404), ("diacriticSensitive", 9783405)] {
        query.bool(name)?.ok_or_else(|| absent(name, code))?;
    }
    if least > most {
        let text = "strMinQueryLength cannot be greater than strMaxQueryLength";
        return Err(fault(9783406, text));
    }
    if query_type == "substringPreview" && most > length("strMaxLength", 9783407)? {
        return Err(fault(9783408, "strMaxQueryLength cannot be greater than strMaxLength"));
    }
    Ok(())
}

/// Checks that both queries of a field treat text alike.
fn check_same(first: &Fields<'_>, second: &Fields<'_>, path: &str) -> Result<()> {
    let differs = |name: &str, code: i32| {
        let text = format!("{name} parameter must be the same for all query types of field {path}");
        fault(code, text)
    };
    for (name, code) in [("caseSensitive", 9783409), ("diacriticSensitive", 9783410)] {
        if first.bool(name)? != second.bool(name)? {
            return Err(differs(name, code));
        }
    }
    match first.long("contention")?.unwrap_or(0) == second.long("contention")?.unwrap_or(0) {
        true => Ok(()),
        false => Err(differs("contention", 9783411)),
    }
}

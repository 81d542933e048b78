//! Checks of the parts of a definition: key, name, version, flags and options.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::paths::is_dollar_name;
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue};

use crate::index::kinds::{self, FieldKind};
use crate::policy::value::as_f64;

pub(crate) fn key_pattern(raw: RawDoc<'_>) -> Result<RawDoc<'_>> {
    match raw.get("key") {
        Some(RawValue::Document(key)) => Ok(key),
        Some(other) => Err(mistyped(format!(
            "The field 'key' must be an object, but got {}",
            other.type_name()
        ))),
        None => Err(Error::failed_to_parse(
            "The 'key' field is a required property of an index specification",
        )),
    }
}

pub(crate) fn name<'a>(raw: RawDoc<'a>, key: RawDoc<'_>) -> Result<&'a str> {
    match raw.get("name") {
        Some(RawValue::String("")) => {
            Err(Error::new(ErrorCode::CannotCreateIndex, "index name cannot be empty"))
        }
        Some(RawValue::String("*")) => Err(Error::bad_value("The index name '*' is not valid.")),
        Some(RawValue::String(name)) if name.contains('\0') => {
            Err(Error::new(ErrorCode::CannotCreateIndex, "index name cannot contain NUL bytes"))
        }
        Some(RawValue::String(name)) => Ok(name),
        Some(other) => Err(mistyped(format!(
            "The field 'name' must be a string, but got {}",
            other.type_name()
        ))),
        None => Err(Error::failed_to_parse(format!(
            "The 'name' field is a required property of an index specification, key: {}",
            Shell(key)
        ))),
    }
}

pub(super) fn is_id_pattern(key: RawDoc<'_>) -> bool {
    let mut elements = key.iter();
    match (elements.next(), elements.next()) {
        (Some(only), None) => {
            only.name_bytes() == b"_id"
                && as_f64(only.value()).is_some_and(|number| number.abs() == 1.0)
        }
        _ => false,
    }
}

/// `{ _ts: 1 }` or `{ _ts: -1 }`.
pub(super) fn is_last_modified(key: RawDoc<'_>) -> bool {
    let mut fields = key.iter();
    fields.next().is_some_and(|field| field.name_bytes() == b"_ts") && fields.next().is_none()
}

pub(super) fn check_key(key: RawDoc<'_>) -> Result<()> {
    let fail = |text: String| Err(Error::new(ErrorCode::CannotCreateIndex, text));
    if key.is_empty() {
        return fail("Index keys cannot be empty.".into());
    }
    if key.as_bytes().len() > limits::MAX_INDEX_PATTERN_BYTES {
        return fail("Index key pattern too large.".into());
    }
    let count = key.iter().count();
    if count > limits::MAX_INDEX_FIELDS {
        let text = format!("Index key pattern has {count} fields; the limit is 32");
        return Err(Error::new(ErrorCode(13103), text));
    }
    for (at, element) in key.iter().enumerate() {
        let path = element.name();
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return fail("Index keys cannot contain an empty field.".into());
        }
        let named = path.strip_suffix("$**").unwrap_or(path);
        // A path may lead into the fields of a DBRef ($ref, $id, $db), but not begin with one.
        let refused = |(at, part): (usize, &str)| match at {
            0 => part.starts_with('$'),
            _ => is_dollar_name(part),
        };
        if named.split('.').enumerate().any(refused) {
            return fail(format!(
                "Index key contains an illegal field name: field name starts with '$': {path}"
            ));
        }
        if key.iter().take(at).any(|before| before.name_bytes() == element.name_bytes()) {
            return Err(Error::bad_value(format!("Index key contains the field '{path}' twice")));
        }
        match element.value() {
            plugin @ RawValue::String(kind) => {
                if kind == "wildcard" {
                    let text = "'wildcard' is no value of an index key; the field is named $**";
                    return Err(Error::new(ErrorCode(7_246_202), text));
                }
                if FieldKind::of(path, plugin).is_none() {
                    return fail(format!("Unknown index plugin '{kind}'"));
                }
                if kinds::wildcard::is_wildcard(path) && (path != "$**" || kind != "text") {
                    return fail(format!("A wildcard index cannot be of type '{kind}'"));
                }
            }
            number if number.is_number() => match as_f64(number) {
                Some(number) if number.is_nan() => {
                    return fail("Values in the index key pattern cannot be NaN.".into());
                }
                Some(0.0) => return fail("Values in the index key pattern cannot be 0.".into()),
                _ => {}
            },
            other => {
                return fail(format!(
                    "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, and \
                     strings are allowed.",
                    other.type_name()
                ));
            }
        }
    }
    Ok(())
}

pub(crate) fn version(raw: RawDoc<'_>) -> Result<i32> {
    match raw.get("v") {
        None => Ok(2),
        Some(value) => match as_f64(value) {
            Some(2.0) => Ok(2),
            Some(1.0) => Ok(1),
            Some(other) if other.fract() != 0.0 || other.abs() > f64::from(i32::MAX) => {
                Err(Error::bad_value(format!(
                    "Index version must be representable as a 32-bit integer, but got {other}"
                )))
            }
            Some(other) => Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "Invalid index specification {}; cannot create an index with v={other}",
                    Shell(raw)
                ),
            )),
            None => Err(mistyped(format!(
                "The field 'v' must be a number, but got {}",
                value.type_name()
            ))),
        },
    }
}

/// Version 1 has no collations.
pub(super) fn check_collated(raw: RawDoc<'_>) -> Result<()> {
    if raw.get("collation").is_none() || version(raw)? > 1 {
        return Ok(());
    }
    let text = format!(
        "Invalid index specification {}; cannot create an index with the 'collation' option and v=1",
        Shell(raw)
    );
    Err(Error::new(ErrorCode::CannotCreateIndex, text))
}

pub(super) fn boolean(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Bool(value) => Ok(value),
        number if number.is_number() => Ok(as_f64(number).is_some_and(|value| value != 0.0)),
        other => Err(mistyped(format!(
            "The field '{}' has value {other:?}, which is not convertible to bool",
            element.name()
        ))),
    }
}

/// A flag that must not be a number.
pub(super) fn only_boolean(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Bool(value) => Ok(value),
        other => Err(mistyped(format!(
            "The field '{}' must be a bool, but got {}",
            element.name(),
            other.type_name()
        ))),
    }
}

pub(super) fn document_option(element: RawElement<'_>) -> Result<()> {
    match element.value() {
        RawValue::Document(_) => Ok(()),
        other => Err(mistyped(format!(
            "The field '{}' must be an object, but got {}",
            element.name(),
            other.type_name()
        ))),
    }
}

pub(crate) fn collation_option(element: RawElement<'_>) -> Result<Option<Arc<Collation>>> {
    document_option(element)?;
    match element.value() {
        RawValue::Document(collation) if collation.is_empty() => {
            Err(Error::bad_value("The field 'collation' cannot be an empty object."))
        }
        RawValue::Document(collation) => Collation::parse(collation, "collation"),
        _ => Ok(None),
    }
}

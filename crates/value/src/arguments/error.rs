//! The errors of arguments, with the reference's codes and texts.

use std::fmt::Display;

use mayfly_base::{Error, ErrorCode};

use crate::RawValue;

/// A value of the wrong type: 14 TypeMismatch. `expected` is one type, or several in the form
/// `[long, int]`.
///
/// The closing quote of several types comes before the bracket, as in the reference's text.
pub fn wrong_type(path: impl Display, value: RawValue<'_>, expected: &str) -> Error {
    let found = value.type_name();
    let expected = match expected.strip_suffix(']') {
        Some(several) => format!("types '{several}']"),
        None => format!("type '{expected}'"),
    };
    mistyped(format!("BSON field '{path}' is the wrong type '{found}', expected {expected}"))
}

/// A value of the wrong type, with the reference's text for this argument: 14 TypeMismatch.
pub fn mistyped(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::TypeMismatch, text)
}

/// A missing required field: 40414.
pub fn missing(path: impl Display) -> Error {
    let text = format!("BSON field '{path}' is missing but a required field");
    Error::new(ErrorCode(40414), text)
}

/// An unknown field: 40415.
pub fn unknown(path: impl Display) -> Error {
    Error::new(ErrorCode(40415), format!("BSON field '{path}' is an unknown field."))
}

/// A repeated field: 40413.
pub fn duplicate(path: impl Display) -> Error {
    Error::new(ErrorCode(40413), format!("BSON field '{path}' is a duplicate field"))
}

/// A field that is not in the stable API: 323 APIStrictError.
pub fn unstable(path: impl Display) -> Error {
    let text = format!("BSON field '{path}' is not allowed with apiStrict:true.");
    Error::new(ErrorCode::APIStrictError, text)
}

/// A number below or above a bound: 2 BadValue. `operator` is `>=` or `<=`.
pub fn out_of_bounds(name: &str, operator: &str, bound: i64, actual: i64) -> Error {
    Error::bad_value(format!(
        "BSON field '{name}' value must be {operator} {bound}, actual value '{actual}'"
    ))
}

/// A text that is not one of an enumeration: 2 BadValue.
pub fn not_a_choice(path: impl Display, value: &str) -> Error {
    Error::bad_value(format!(
        "Enumeration value '{value}' for field '{path}' is not a valid value."
    ))
}

/// Binary data that is no UUID.
pub fn not_a_uuid() -> Error {
    let text = "uuid must be a 16-byte binary field with UUID (4) subtype";
    Error::new(ErrorCode::InvalidUUID, text)
}

/// The reference's codes for unknown and missing fields of a document that has its own.
#[derive(Clone, Copy, Debug)]
pub struct OwnCodes {
    /// For an unknown field, with the text, in which `{}` stands for its name.
    pub unknown: (i32, &'static str),
    /// For a missing field, with the text; `None` for the usual error.
    pub missing: Option<(i32, &'static str)>,
}

impl OwnCodes {
    pub(super) fn unknown_field(&self, name: &str) -> Error {
        let (code, text) = self.unknown;
        Error::new(ErrorCode(code), text.replace("{}", name))
    }

    pub(super) fn missing_field(&self, usual: Error) -> Error {
        self.missing.map_or(usual, |(code, text)| Error::new(ErrorCode(code), text))
    }
}

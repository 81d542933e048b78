//! The errors of definitions and queries: code 8, and a text that begins with the path of the
//! field.

use mayfly_base::{Error, ErrorCode};
use mayfly_value::{RawValue, type_name};

/// The path of a field, as texts of errors print it: `filter.price.$in[2]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    /// The path of the whole document, which is not printed.
    pub(crate) fn root() -> FieldPath {
        FieldPath(String::new())
    }

    /// The path of a field of the document at this path.
    pub(crate) fn field(&self, name: &str) -> FieldPath {
        if self.0.is_empty() {
            return FieldPath(name.to_owned());
        }
        FieldPath(format!("{}.{name}", self.0))
    }

    /// The path of an item of the array at this path.
    pub(crate) fn item(&self, at: usize) -> FieldPath {
        FieldPath(format!("{}[{at}]", self.0))
    }

    /// The error that this text describes.
    pub(crate) fn refuse(&self, text: impl std::fmt::Display) -> Error {
        if self.0.is_empty() {
            return refused(text.to_string());
        }
        refused(format!("\"{}\" {text}", self.0))
    }

    /// The error for a value of the wrong type. Null counts as absent.
    pub(crate) fn wrong_type(&self, expected: &str, value: RawValue<'_>) -> Error {
        match value {
            RawValue::Null | RawValue::Undefined => self.refuse("is required"),
            _ => {
                let article = if expected.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
                self.refuse(format_args!("must be {article} {expected}"))
            }
        }
    }

    /// The error for a member that the reference has and this server does not have yet.
    pub(crate) fn not_supported(&self, what: &str) -> Error {
        self.refuse(format_args!("{what} is not supported by this server"))
    }
}

/// An error with code 8, which the reference returns for what its search process refuses.
pub(crate) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::UnknownError, text)
}

/// The name of a value's type in texts.
pub(crate) fn kind_of(value: RawValue<'_>) -> &'static str {
    type_name(value.type_byte())
}

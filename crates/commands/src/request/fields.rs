//! Typed access to the fields of a command or of a document in it, with the reference's errors.
//!
//! Null and undefined count as absent, as in the reference. Numbers of every numeric type are
//! accepted.

use std::borrow::Cow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawDoc, RawElement, RawValue};

use crate::request::generic::is_generic;

/// The accepted types of an integer.
const NUMBERS: &str = "[long, int, decimal, double]";
/// The accepted types of a boolean.
const FLAGS: &str = "[bool, long, int, decimal, double]";

/// A document with its path in errors.
pub struct Fields<'a> {
    doc: RawDoc<'a>,
    path: Cow<'static, str>,
    names: NameSet,
}

/// A Bloom filter of a document's field names: most fields that a handler reads are absent, which
/// this reports at once.
#[derive(Clone, Copy, Default)]
pub(crate) struct NameSet(u64);

impl NameSet {
    fn bit(name: &[u8]) -> u64 {
        let (first, last) = (name.first().copied(), name.last().copied());
        let mixed = name.len() * 7
            + usize::from(first.unwrap_or(0)) * 31
            + usize::from(last.unwrap_or(0)) * 13;
        1 << (mixed % 64)
    }

    /// Adds a name; returns whether it may have been added before.
    pub(crate) fn insert(&mut self, name: &[u8]) -> bool {
        let bit = NameSet::bit(name);
        let there = self.0 & bit != 0;
        self.0 |= bit;
        there
    }

    fn may_have(self, name: &str) -> bool {
        self.0 & NameSet::bit(name.as_bytes()) != 0
    }
}

impl<'a> Fields<'a> {
    /// The fields of this document; `path` is its path in errors.
    #[inline]
    pub fn new(doc: RawDoc<'a>, path: impl Into<Cow<'static, str>>) -> Fields<'a> {
        let mut names = NameSet::default();
        for element in doc {
            names.insert(element.name_bytes());
        }
        Fields { doc, path: path.into(), names }
    }

    /// The same as [`Fields::new`], with a check that only these fields are present.
    ///
    /// # Errors
    /// 40415 for an unknown field.
    pub fn strict(
        doc: RawDoc<'a>,
        path: impl Into<Cow<'static, str>>,
        known: &[&str],
    ) -> Result<Fields<'a>> {
        let mut fields = Fields { doc, path: path.into(), names: NameSet::default() };
        for element in doc {
            let name = element.name_bytes();
            if !known.iter().any(|known| known.as_bytes() == name) {
                return Err(fields.unknown(element.name()));
            }
            fields.names.insert(name);
        }
        Ok(fields)
    }

    /// The fields of a command. Each except the first must be in `known` or a generic argument, and
    /// none may be repeated.
    ///
    /// # Errors
    /// 40415 for an unknown field, 40413 for a repeated one.
    #[inline]
    pub(crate) fn of_command(
        body: RawDoc<'a>,
        command: &'static str,
        known: &[&str],
    ) -> Result<Fields<'a>> {
        let mut fields =
            Fields { doc: body, path: Cow::Borrowed(command), names: NameSet::default() };
        for (at, element) in body.iter().enumerate() {
            let name = element.name_bytes();
            let perhaps_repeated = fields.names.insert(name);
            if at == 0 {
                continue;
            }
            if !known.iter().any(|known| known.as_bytes() == name) && !is_generic(name) {
                return Err(fields.unknown(element.name()));
            }
            let repeated = |other: RawElement<'_>| other.name_bytes() == name;
            if perhaps_repeated && body.iter().take(at).any(repeated) {
                return Err(fields.duplicate(element.name()));
            }
        }
        Ok(fields)
    }

    /// The document that the fields belong to, including generic arguments.
    pub fn doc(&self) -> RawDoc<'a> {
        self.doc
    }

    /// The value, or `None` if it is absent, null or undefined.
    pub fn get(&self, name: &str) -> Option<RawValue<'a>> {
        if !self.names.may_have(name) {
            return None;
        }
        match self.doc.get(name) {
            None | Some(RawValue::Null | RawValue::Undefined) => None,
            present => present,
        }
    }

    /// The value of a required field.
    ///
    /// # Errors
    /// 40414.
    #[inline]
    pub fn required(&self, name: &str) -> Result<RawValue<'a>> {
        self.get(name).ok_or_else(|| self.missing(name))
    }

    /// A boolean; of a number, whether it is not zero.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        Ok(match self.get(name) {
            None => None,
            Some(RawValue::Bool(value)) => Some(value),
            Some(value) => match whole_number(value) {
                Some(number) => {
                    Some(number != 0 || matches!(value, RawValue::Double(v) if v != 0.0))
                }
                None => return Err(self.wrong(name, value, FLAGS)),
            },
        })
    }

    /// An integer; fractions are truncated, NaN is 0, and large numbers are clamped.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn long(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match whole_number(value) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, value, NUMBERS)),
            },
        }
    }

    /// A non-negative integer.
    ///
    /// # Errors
    /// 14 TypeMismatch, 51024 for a negative number.
    pub fn non_negative(&self, name: &str) -> Result<Option<i64>> {
        match self.long(name)? {
            Some(number) if number < 0 => Err(Error::new(
                ErrorCode(51024),
                format!("BSON field '{name}' value must be >= 0, actual value '{number}'"),
            )),
            number => Ok(number),
        }
    }

    /// A string field.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn string(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::String(value)) => Ok(Some(value)),
            Some(value) => Err(self.wrong(name, value, "string")),
        }
    }

    /// A document field.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn document(&self, name: &str) -> Result<Option<RawDoc<'a>>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::Document(value)) => Ok(Some(value)),
            Some(value) => Err(self.wrong(name, value, "object")),
        }
    }

    /// An array field.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn array(&self, name: &str) -> Result<Option<RawDoc<'a>>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::Array(value)) => Ok(Some(value)),
            Some(value) => Err(self.wrong(name, value, "array")),
        }
    }

    /// The path of a field in errors.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// The error for a value of the wrong type. `expected` is one type, or several in the form
    /// `[long, int]`.
    pub fn wrong(&self, name: &str, value: RawValue<'_>, expected: &str) -> Error {
        wrong_type(&format!("{}.{name}", self.path), value, expected)
    }

    /// The error for a missing required field.
    pub fn missing(&self, name: &str) -> Error {
        let text = format!("BSON field '{}.{name}' is missing but a required field", self.path);
        Error::new(ErrorCode(40414), text)
    }

    /// The error for an unknown field.
    pub fn unknown(&self, name: &str) -> Error {
        let text = format!("BSON field '{}.{name}' is an unknown field.", self.path);
        Error::new(ErrorCode(40415), text)
    }

    /// The error for a repeated field.
    pub fn duplicate(&self, name: &str) -> Error {
        let text = format!("BSON field '{}.{name}' is a duplicate field", self.path);
        Error::new(ErrorCode(40413), text)
    }
}

/// 14 TypeMismatch with the reference's text.
pub(crate) fn wrong_type(path: &str, value: RawValue<'_>, expected: &str) -> Error {
    let types = if expected.starts_with('[') { "types" } else { "type" };
    Error::type_mismatch(format!(
        "BSON field '{path}' is the wrong type '{}', expected {types} '{expected}'",
        value.type_name()
    ))
}

/// A number of any numeric type as an integer: fractions are truncated, NaN is 0, and large numbers
/// are clamped.
pub(crate) fn whole_number(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Int32(number) => Some(i64::from(number)),
        RawValue::Int64(number) => Some(number),
        RawValue::Double(number) => Some(number as i64),
        RawValue::Decimal128(_) => Number::from_value(value).map(|number| number.to_f64() as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuilder;

    #[test]
    fn errors_are_worded_like_the_reference() {
        let mut doc = DocBuilder::new();
        doc.append("limit", "x").append("n", 2.9).append("flag", 1).append("gone", RawValue::Null);
        let doc = doc.finish();
        let fields = Fields::new(doc.as_doc(), "find");
        let text = "BSON field 'find.limit' is the wrong type 'string', expected types \
                    '[long, int, decimal, double]'";
        assert_eq!(fields.long("limit").unwrap_err().message(), text);
        let text = "BSON field 'find.limit' is the wrong type 'string', expected type 'object'";
        assert_eq!(fields.document("limit").unwrap_err().message(), text);
        assert_eq!(fields.long("n").unwrap(), Some(2));
        assert_eq!(fields.bool("flag").unwrap(), Some(true));
        assert_eq!(fields.string("gone").unwrap(), None);
        let text = "BSON field 'find.gone' is missing but a required field";
        assert_eq!(fields.required("gone").unwrap_err().message(), text);
        assert_eq!(fields.unknown("x").code(), ErrorCode(40415));
    }
}

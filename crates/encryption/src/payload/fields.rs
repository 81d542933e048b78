//! Strict reading of the document in a payload: every field is known, present once, and has its
//! type.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_base::{Error, Result};
use mayfly_value::{RawDoc, RawElement, RawValue, validate};

use super::RangeOptions;
use crate::tokens::TOKEN_BYTES;

/// The subtype of general binary data.
pub(crate) const GENERAL: u8 = 0;
/// The subtype of UUIDs.
const UUID: u8 = 4;

/// The document of a payload, with its name for errors.
#[derive(Clone, Copy)]
pub(super) struct PayloadFields<'a> {
    what: &'static str,
    document: RawDoc<'a>,
}

impl<'a> PayloadFields<'a> {
    /// Checks the bytes that follow the kind.
    ///
    /// # Errors
    /// 22 InvalidBSON.
    pub(super) fn read(what: &'static str, bytes: &'a [u8]) -> Result<PayloadFields<'a>> {
        let document = validate(bytes, MAX_BSON_DEPTH).map_err(|error| error.in_context(what))?;
        Ok(PayloadFields { what, document })
    }

    /// A part of a checked payload.
    pub(super) fn part(what: &'static str, document: RawDoc<'a>) -> PayloadFields<'a> {
        PayloadFields { what, document }
    }

    /// The parameters of a range.
    pub(super) fn range_options(&self) -> RangeOptions {
        RangeOptions::read(self.document, ["sp", "pn", "tf", "mn", "mx"])
    }

    /// Refuses duplicate fields and those that are not in the list.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub(super) fn check_names(&self, known: &[&str]) -> Result<()> {
        for (at, element) in self.document.iter().enumerate() {
            let name = element.name();
            if !known.contains(&name) {
                return Err(self.fault(format_args!("unknown field '{name}'")));
            }
            if self.document.iter().take(at).any(|earlier| earlier.name() == name) {
                return Err(self.fault(format_args!("duplicate field '{name}'")));
            }
        }
        Ok(())
    }

    pub(super) fn fault(&self, text: impl std::fmt::Display) -> Error {
        Error::failed_to_parse(format!("invalid {}: {text}", self.what))
    }

    pub(super) fn optional(&self, name: &str) -> Option<RawValue<'a>> {
        self.document.get(name)
    }

    pub(super) fn value(&self, name: &str) -> Result<RawValue<'a>> {
        self.optional(name).ok_or_else(|| self.fault(format_args!("field '{name}' is missing")))
    }

    fn wrong_type(&self, name: &str, expected: &str, found: RawValue<'_>) -> Error {
        let found = found.type_name();
        self.fault(format_args!("field '{name}' must be {expected}, not {found}"))
    }

    /// General binary data.
    pub(super) fn binary(&self, name: &str) -> Result<&'a [u8]> {
        match self.value(name)? {
            RawValue::Binary { subtype: GENERAL, bytes } => Ok(bytes),
            other => Err(self.wrong_type(name, "binData of subtype 0", other)),
        }
    }

    /// A token: 32 bytes of general binary data.
    pub(super) fn token(&self, name: &str) -> Result<[u8; TOKEN_BYTES]> {
        self.binary(name)?
            .try_into()
            .map_err(|_| self.fault(format_args!("field '{name}' must have {TOKEN_BYTES} bytes")))
    }

    pub(super) fn key_id(&self, name: &str) -> Result<[u8; 16]> {
        let found = self.value(name)?;
        match found {
            RawValue::Binary { subtype: UUID, bytes } => bytes.try_into().ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong_type(name, "a UUID", found))
    }

    pub(super) fn int(&self, name: &str) -> Result<i32> {
        match self.value(name)? {
            RawValue::Int32(number) => Ok(number),
            other => Err(self.wrong_type(name, "an int", other)),
        }
    }

    /// A long that is not negative.
    pub(super) fn natural(&self, name: &str) -> Result<u64> {
        match self.value(name)? {
            RawValue::Int64(number) => u64::try_from(number)
                .map_err(|_| self.fault(format_args!("field '{name}' must not be negative"))),
            other => Err(self.wrong_type(name, "a long", other)),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<RawDoc<'a>> {
        let found = self.value(name)?;
        found.as_document().ok_or_else(|| self.wrong_type(name, "an object", found))
    }

    /// The documents of an array; at least one.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<RawDoc<'a>>> {
        let found = self.value(name)?;
        let items = found.as_array().ok_or_else(|| self.wrong_type(name, "an array", found))?;
        let document = |item: RawElement<'a>| {
            let item = item.value();
            item.as_document().ok_or_else(|| self.wrong_type(name, "an array of objects", item))
        };
        let documents = items.iter().map(document).collect::<Result<Vec<_>>>()?;
        match documents.is_empty() {
            true => Err(self.fault(format_args!("field '{name}' must not be empty"))),
            false => Ok(documents),
        }
    }
}

//! Reads the fields of a definition or of a query: required fields, types, bounds, and the fields
//! that no reader asked for.
//!
//! ```text
//!  let mut fields = Fields::new(document, path)?;      a repeated field is refused
//!  let limit = fields.whole("limit", 1..=100)?;        marks the field as read
//!  fields.finish()?;                                   refuses the fields that were not read
//! ```

use std::ops::RangeInclusive;

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use crate::fault::FieldPath;

/// The fields of one document, with marks on those that were read.
pub(crate) struct Fields<'a> {
    path: FieldPath,
    fields: Vec<(&'a str, RawValue<'a>, bool)>,
}

impl<'a> Fields<'a> {
    /// The fields of a document at this path.
    ///
    /// # Errors
    /// Code 8 for a repeated field.
    pub(crate) fn new(document: RawDoc<'a>, path: FieldPath) -> Result<Fields<'a>> {
        let mut fields: Vec<(&str, RawValue<'_>, bool)> = Vec::new();
        for element in document {
            fields.push((element.name(), element.value(), false));
        }
        let mut names: Vec<&str> = fields.iter().map(|field| field.0).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(path.field(pair[0]).refuse("is repeated"));
        }
        Ok(Fields { path, fields })
    }

    /// The path of the document.
    pub(crate) fn path(&self) -> &FieldPath {
        &self.path
    }

    /// The path of a field of the document.
    pub(crate) fn path_of(&self, name: &str) -> FieldPath {
        self.path.field(name)
    }

    /// A field of any type; null counts as absent.
    pub(crate) fn value(&mut self, name: &str) -> Option<RawValue<'a>> {
        self.any(name).filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
    }

    /// A field of any type, null included.
    pub(crate) fn any(&mut self, name: &str) -> Option<RawValue<'a>> {
        let field = self.fields.iter_mut().find(|field| field.0 == name)?;
        field.2 = true;
        Some(field.1)
    }

    /// A field of any type, which is not marked as read.
    pub(crate) fn peek(&self, name: &str) -> Option<RawValue<'a>> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1)
    }

    /// Whether the document has a field that is not null. The field is not marked as read.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_set = |value| !matches!(value, RawValue::Null | RawValue::Undefined);
        self.fields.iter().any(|field| field.0 == name && is_set(field.1))
    }

    /// The result of a reader, or the error for a missing field.
    pub(crate) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.path_of(name).refuse("is required"))
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<&'a str>> {
        match self.value(name) {
            None => Ok(None),
            Some(RawValue::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.path_of(name).wrong_type("string", value)),
        }
    }

    /// A string that is not empty.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<&'a str>> {
        match self.string(name)? {
            Some("") => Err(self.path_of(name).refuse("cannot be empty")),
            text => Ok(text),
        }
    }

    /// One of these strings; `names` is sorted, as the text of the error prints it.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        if let Some(choice) = choices.iter().find(|choice| choice.0 == text) {
            return Ok(Some(choice.1));
        }
        let mut names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
        names.sort_unstable();
        let text = format!("must be one of [{}]", names.join(", "));
        Err(self.path_of(name).refuse(text))
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>> {
        match self.value(name) {
            None => Ok(None),
            Some(RawValue::Bool(flag)) => Ok(Some(flag)),
            Some(value) => Err(self.path_of(name).wrong_type("boolean", value)),
        }
    }

    /// A 32-bit integer within these bounds.
    pub(crate) fn whole(&mut self, name: &str, bounds: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let path = self.path_of(name);
        let number = whole_number(&path, value)?;
        if bounds.contains(&number) {
            return Ok(Some(number));
        }
        Err(path.refuse(match (*bounds.start(), *bounds.end()) {
            (1, UNBOUNDED) => "must be positive".to_owned(),
            (0, UNBOUNDED) => "cannot be negative".to_owned(),
            (least, most) => format!("must be within bounds [{least}..{most}]"),
        }))
    }

    pub(crate) fn document(&mut self, name: &str) -> Result<Option<RawDoc<'a>>> {
        match self.value(name) {
            None => Ok(None),
            Some(RawValue::Document(document)) => Ok(Some(document)),
            Some(value) => Err(self.path_of(name).wrong_type("document", value)),
        }
    }

    pub(crate) fn array(&mut self, name: &str) -> Result<Option<RawDoc<'a>>> {
        match self.value(name) {
            None => Ok(None),
            Some(RawValue::Array(array)) => Ok(Some(array)),
            Some(value) => Err(self.path_of(name).wrong_type("array", value)),
        }
    }

    /// Marks fields that have no effect as read.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.any(name);
        }
    }

    /// Refuses fields that were not read.
    ///
    /// # Errors
    /// Code 8 with the names of these fields.
    pub(crate) fn finish(self) -> Result<()> {
        let unread = self.fields.iter().filter(|field| !field.2);
        let names: Vec<String> = unread.map(|field| format!("\"{}\"", field.0)).collect();
        match names.as_slice() {
            [] => Ok(()),
            [name] => Err(self.path.refuse(format_args!("unrecognized field {name}"))),
            names => {
                Err(self.path.refuse(format_args!("unrecognized fields [{}]", names.join(", "))))
            }
        }
    }
}

/// The upper bound of a number that only its type bounds.
pub(crate) const UNBOUNDED: i64 = i32::MAX as i64;

/// An int, or a long or double with the value of an int. A decimal is never an integer.
pub(crate) fn whole_number(path: &FieldPath, value: RawValue<'_>) -> Result<i64> {
    let number = match value {
        RawValue::Int32(number) => i64::from(number),
        RawValue::Int64(number) => number,
        RawValue::Double(number) if number.fract() == 0.0 && number.abs() < 9e18 => number as i64,
        RawValue::Double(number) if number.is_infinite() && number > 0.0 => i64::MAX,
        RawValue::Double(number) if number.is_infinite() => i64::MIN,
        RawValue::Double(_) => return Err(path.refuse("must be an integer")),
        value => return Err(path.wrong_type("integer", value)),
    };
    if number > i64::from(i32::MAX) {
        return Err(path.refuse("overflowed, must fit in a 32-bit integer"));
    }
    if number < i64::from(i32::MIN) {
        return Err(path.refuse("underflowed, must fit in a 32-bit integer"));
    }
    Ok(number)
}

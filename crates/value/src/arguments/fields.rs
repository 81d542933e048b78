//! Typed access to the fields of a command or of a document in it, with the reference's errors.
//!
//! Null and undefined count as absent, as in the reference. Numbers of every numeric type are
//! accepted.

use std::borrow::Cow;

use mayfly_base::{Error, Result};

use super::check::{Also, check_fields, check_present, check_stable};
use super::convert::{truth, whole_number};
use super::declaration::{Argument, Path};
use super::error;
use super::error::OwnCodes;
use crate::{RawDoc, RawValue};

/// The accepted types of an integer.
const NUMBERS: &str = "[long, int, decimal, double]";
/// The accepted types of a boolean.
const FLAGS: &str = "[bool, long, int, decimal, double]";

/// A document with its path in errors.
pub struct Fields<'a> {
    doc: RawDoc<'a>,
    path: Cow<'a, str>,
    names: NameSet,
    declared: Declared,
}

/// The declarations of the fields. Builds with assertions check that no other field is read.
#[derive(Clone, Copy)]
struct Declared {
    #[cfg(debug_assertions)]
    by: Option<(&'static [Argument], Also)>,
}

impl Declared {
    /// The fields of a document that declares none.
    const NONE: Declared = Declared {
        #[cfg(debug_assertions)]
        by: None,
    };

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "checked in debug builds"))]
    const fn new(declared: &'static [Argument], also: Also) -> Declared {
        Declared {
            #[cfg(debug_assertions)]
            by: Some((declared, also)),
        }
    }

    #[inline]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "checked in debug builds"))]
    fn assert_has(self, name: &str, path: &str) {
        #[cfg(debug_assertions)]
        if let Some((declared, also)) = self.by {
            let is_declared = declared.iter().any(|argument| argument.name == name);
            assert!(
                is_declared || also(name.as_bytes()) || name == path,
                "'{path}' does not declare its field '{name}'"
            );
        }
    }
}

/// A Bloom filter of a document's field names: most fields that a handler reads are absent, which
/// this reports at once.
#[derive(Clone, Copy, Default)]
pub struct NameSet(u64);

impl NameSet {
    fn bit(name: &[u8]) -> u64 {
        let (first, last) = (name.first().copied(), name.last().copied());
        let mixed = name.len() * 7
            + usize::from(first.unwrap_or(0)) * 31
            + usize::from(last.unwrap_or(0)) * 13;
        1 << (mixed % 64)
    }

    /// Adds a name; returns whether it may have been added before.
    pub fn insert(&mut self, name: &[u8]) -> bool {
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
    pub fn new(doc: RawDoc<'a>, path: impl Into<Cow<'a, str>>) -> Fields<'a> {
        let mut names = NameSet::default();
        for element in doc {
            names.insert(element.name_bytes());
        }
        Fields { doc, path: path.into(), names, declared: Declared::NONE }
    }

    /// The fields of a document that declares all of them.
    ///
    /// # Errors
    /// 40415 for an unknown field, 40413 for a repeated one, the errors of [`Argument::check`],
    /// 40414 for a missing one.
    pub fn read(
        doc: RawDoc<'a>,
        path: &'a str,
        declared: &'static [Argument],
    ) -> Result<Fields<'a>> {
        let also: Also = |_| false;
        let names = check_fields(doc, &Path::new(path), declared, (0, also))?;
        let by = Declared::new(declared, also);
        let fields = Fields { doc, path: Cow::Borrowed(path), names, declared: by };
        fields.check_present(declared, |_| false)?;
        Ok(fields)
    }

    /// The fields of a document whose unknown and missing fields have codes of their own.
    ///
    /// # Errors
    /// The errors of [`Fields::read`] with these codes; a repeated field is not refused.
    pub fn read_with(
        doc: RawDoc<'a>,
        path: &'a str,
        declared: &'static [Argument],
        codes: OwnCodes,
    ) -> Result<Fields<'a>> {
        let at = Path::new(path);
        let mut names = NameSet::default();
        for element in doc {
            names.insert(element.name_bytes());
            match declared.iter().find(|argument| argument.name == element.name()) {
                Some(argument) => argument.check(&at, element)?,
                None => return Err(codes.unknown_field(element.name())),
            }
        }
        let fields = Fields {
            doc,
            path: Cow::Borrowed(path),
            names,
            declared: Declared::new(declared, |_| false),
        };
        fields.check_present(declared, |_| false).map_err(|error| codes.missing_field(error))?;
        Ok(fields)
    }

    /// The fields of a document that declares some of them; others are ignored.
    ///
    /// # Errors
    /// The errors of [`Fields::read`] except 40415.
    pub fn read_lenient(
        doc: RawDoc<'a>,
        path: &'a str,
        declared: &'static [Argument],
    ) -> Result<Fields<'a>> {
        let also: Also = |_| true;
        let names = check_fields(doc, &Path::new(path), declared, (0, also))?;
        let by = Declared::new(declared, also);
        let fields = Fields { doc, path: Cow::Borrowed(path), names, declared: by };
        fields.check_present(declared, |_| false)?;
        Ok(fields)
    }

    /// The fields of a command, the first of which is its name. The others must be declared, or
    /// `also` accepts them.
    ///
    /// # Errors
    /// The errors of [`Fields::read`]. A required field may be missing: see
    /// [`Fields::check_present`].
    #[inline]
    pub fn read_command(
        body: RawDoc<'a>,
        command: &'static str,
        declared: &'static [Argument],
        also: Also,
    ) -> Result<Fields<'a>> {
        let names = check_fields(body, &Path::new(command), declared, (1, also))?;
        let declared = Declared::new(declared, also);
        Ok(Fields { doc: body, path: Cow::Borrowed(command), names, declared })
    }

    /// Checks that the arguments are in the stable API.
    ///
    /// # Errors
    /// 323 APIStrictError.
    pub fn check_stable(&self, declared: &[Argument]) -> Result<()> {
        check_stable(self.doc, &Path::new(&self.path), declared)
    }

    /// Checks that the required arguments are present, in the document or `elsewhere`.
    ///
    /// # Errors
    /// 40414.
    #[inline]
    pub fn check_present(
        &self,
        declared: &[Argument],
        elsewhere: impl Fn(&str) -> bool,
    ) -> Result<()> {
        check_present(self.doc, &Path::new(&self.path), declared, elsewhere)
    }

    /// The document that the fields belong to, including generic arguments.
    pub fn doc(&self) -> RawDoc<'a> {
        self.doc
    }

    /// The value, or `None` if it is absent, null or undefined.
    pub fn get(&self, name: &str) -> Option<RawValue<'a>> {
        self.declared.assert_has(name, &self.path);
        if !self.names.may_have(name) {
            return None;
        }
        match self.doc.get(name) {
            None | Some(RawValue::Null | RawValue::Undefined) => None,
            present => present,
        }
    }

    /// Whether the document has a field of this name, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.names.may_have(name) && self.doc.get_element(name).is_some()
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
        match self.get(name) {
            None => Ok(None),
            Some(value) => match truth(value) {
                Some(flag) => Ok(Some(flag)),
                None => Err(self.wrong(name, value, FLAGS)),
            },
        }
    }

    /// An integer, converted by [`whole_number`].
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

    /// A UUID field, or `None` for another value.
    pub fn uuid(&self, name: &str) -> Option<[u8; 16]> {
        match self.get(name)? {
            RawValue::Binary { subtype: 4, bytes } => bytes.try_into().ok(),
            _ => None,
        }
    }

    /// The path of a field in errors.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// The error for a value of the wrong type. `expected` is one type, or several in the form
    /// `[long, int]`.
    pub fn wrong(&self, name: &str, value: RawValue<'_>, expected: &str) -> Error {
        error::wrong_type(Path::new(&self.path).field(name), value, expected)
    }

    /// The error for a required value of the wrong type; null counts as absent.
    pub fn wrong_or_missing(&self, name: &str, value: RawValue<'_>, expected: &str) -> Error {
        match value {
            RawValue::Null | RawValue::Undefined => self.missing(name),
            other => self.wrong(name, other, expected),
        }
    }

    /// The error for a missing required field.
    pub fn missing(&self, name: &str) -> Error {
        error::missing(Path::new(&self.path).field(name))
    }

    /// The error for an unknown field.
    pub fn unknown(&self, name: &str) -> Error {
        error::unknown(Path::new(&self.path).field(name))
    }

    /// The error for a repeated field.
    pub fn duplicate(&self, name: &str) -> Error {
        error::duplicate(Path::new(&self.path).field(name))
    }
}

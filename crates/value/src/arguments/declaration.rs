//! The declaration of an argument.

use mayfly_base::{Error, ErrorCode};

use super::check::check_document;
use super::convert::whole_number;
use super::error;
use crate::{RawElement, RawValue, ty};

/// The form of an argument's value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A value of any type.
    Any,
    /// A boolean; numbers are refused.
    Bool,
    /// A boolean, or a number of any type that is true unless it is zero.
    Flag,
    /// A 32-bit integer; other numbers are refused.
    Int32,
    /// A 64-bit integer; other numbers are refused.
    Int64,
    /// A number of any type, converted to an integer ([`whole_number`]).
    Whole,
    /// A number of any type.
    Number,
    /// A string of any length.
    String,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A document with any fields.
    Document,
    /// A document with these fields.
    Fields(&'static [Argument]),
    /// An array of anything.
    Array,
    /// Binary data of any subtype.
    Binary,
    /// Binary data of 16 bytes and subtype 4.
    Uuid,
    /// A BSON timestamp.
    Timestamp,
    /// A value of one of these forms.
    OneOf(&'static [Form]),
}

/// The bit of a BSON type in a set of types. The extreme keys share the last bit.
const fn bit(type_byte: u8) -> u32 {
    1 << (type_byte & 31)
}

const NUMBERS: u32 = bit(ty::INT32) | bit(ty::INT64) | bit(ty::DOUBLE) | bit(ty::DECIMAL);

impl Form {
    /// The set of accepted types.
    const fn types(self) -> u32 {
        match self {
            Form::Any => u32::MAX,
            Form::Bool => bit(ty::BOOL),
            Form::Flag => bit(ty::BOOL) | NUMBERS,
            Form::Int32 => bit(ty::INT32),
            Form::Int64 => bit(ty::INT64),
            Form::Whole | Form::Number => NUMBERS,
            Form::String | Form::Choice(_) => bit(ty::STRING),
            Form::Document | Form::Fields(_) => bit(ty::DOCUMENT),
            Form::Array => bit(ty::ARRAY),
            Form::Binary | Form::Uuid => bit(ty::BINARY),
            Form::Timestamp => bit(ty::TIMESTAMP),
            Form::OneOf(forms) => {
                let (mut types, mut at) = (0, 0);
                while at < forms.len() {
                    types |= forms[at].types();
                    at += 1;
                }
                types
            }
        }
    }

    /// Whether the type of a value decides alone.
    const fn is_checked_by_type(self) -> bool {
        match self {
            Form::Choice(_) | Form::Fields(_) | Form::Uuid => false,
            Form::OneOf(forms) => {
                let mut at = 0;
                while at < forms.len() {
                    if !forms[at].is_checked_by_type() {
                        return false;
                    }
                    at += 1;
                }
                true
            }
            _ => true,
        }
    }

    /// Checks what the type of a value leaves open: that a string is one of the choices, the fields
    /// of a document.
    fn check_content(self, path: &Path<'_>, name: &str, value: RawValue<'_>) -> Result<(), Error> {
        match (self, value) {
            (Form::Choice(choices), RawValue::String(text)) if !choices.contains(&text) => {
                Err(error::not_a_choice(path.field(name), text))
            }
            (Form::Fields(fields), RawValue::Document(document)) => {
                check_document(document, &path.field(name), fields)
            }
            (Form::Uuid, RawValue::Binary { subtype, bytes })
                if subtype != 4 || bytes.len() != 16 =>
            {
                Err(error::not_a_uuid())
            }
            (Form::OneOf(forms), value) => {
                let mut fitting =
                    forms.iter().filter(|form| form.types() & bit(value.type_byte()) != 0);
                fitting.try_for_each(|form| form.check_content(path, name, value))
            }
            _ => Ok(()),
        }
    }

    /// The accepted types in an error.
    fn expected(self) -> String {
        let name = match self {
            Form::Any => "any type",
            Form::Bool => "bool",
            Form::Flag => "[bool, long, int, decimal, double]",
            Form::Int32 => "int",
            Form::Int64 => "long",
            Form::Whole | Form::Number => "[long, int, decimal, double]",
            Form::String | Form::Choice(_) => "string",
            Form::Document | Form::Fields(_) => "object",
            Form::Array => "array",
            Form::Binary => "binData",
            Form::Uuid => "UUID",
            Form::Timestamp => "timestamp",
            Form::OneOf(forms) => {
                let names = forms.iter().map(|form| form.expected());
                let names = names.map(|name| name.trim_matches(['[', ']']).to_owned());
                return format!("[{}]", names.collect::<Vec<_>>().join(", "));
            }
        };
        name.to_owned()
    }
}

/// The treatment of null and undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    /// The argument counts as absent.
    Absent,
    /// It is a value like any other.
    Value,
}

/// The declaration of one argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The name of the field.
    pub name: &'static str,
    /// The form of its value.
    pub form: Form,
    /// The treatment of null.
    pub null: Null,
    /// Whether it must be present.
    pub is_required: bool,
    /// The least and the greatest integer of a number.
    pub bounds: Option<(i64, i64)>,
    /// The code of the error for a wrong type, if it is not 14, with its text, in which `{}`
    /// stands for the type that was found.
    pub refusal: Option<(i32, &'static str)>,
    /// The same for null.
    pub null_refusal: Option<(i32, &'static str)>,
    /// The reference's version that introduced it; empty for the oldest ones.
    pub since: &'static str,
    /// Whether it belongs to version 1 of the stable API, as far as its command does.
    pub is_stable: bool,
    /// The declared fields of the document, or of each document of the array, if the handler checks
    /// them later than the command's own fields. Empty otherwise.
    pub parts: &'static [Argument],
    types: u32,
    is_checked_by_type: bool,
}

impl Argument {
    /// An optional argument of this form; null counts as absent.
    pub const fn new(name: &'static str, form: Form) -> Argument {
        Argument {
            name,
            form,
            null: Null::Absent,
            is_required: false,
            bounds: None,
            refusal: None,
            null_refusal: None,
            since: "",
            is_stable: true,
            parts: &[],
            types: form.types(),
            is_checked_by_type: form.is_checked_by_type(),
        }
    }

    /// An argument that may be any value; the handler checks it.
    pub const fn any(name: &'static str) -> Argument {
        Argument { null: Null::Value, ..Argument::new(name, Form::Any) }
    }

    /// A boolean; numbers are refused.
    pub const fn bool(name: &'static str) -> Argument {
        Argument::new(name, Form::Bool)
    }

    /// A boolean or a number.
    pub const fn flag(name: &'static str) -> Argument {
        Argument::new(name, Form::Flag)
    }

    /// A number that is converted to an integer.
    pub const fn whole(name: &'static str) -> Argument {
        Argument::new(name, Form::Whole)
    }

    /// A number of any type, as it is.
    pub const fn number(name: &'static str) -> Argument {
        Argument::new(name, Form::Number)
    }

    /// A string argument.
    pub const fn string(name: &'static str) -> Argument {
        Argument::new(name, Form::String)
    }

    /// One of these strings.
    pub const fn choice(name: &'static str, choices: &'static [&'static str]) -> Argument {
        Argument::new(name, Form::Choice(choices))
    }

    /// A document with any fields.
    pub const fn document(name: &'static str) -> Argument {
        Argument::new(name, Form::Document)
    }

    /// A document with these fields.
    pub const fn fields(name: &'static str, fields: &'static [Argument]) -> Argument {
        Argument::new(name, Form::Fields(fields))
    }

    /// An array of anything.
    pub const fn array(name: &'static str) -> Argument {
        Argument::new(name, Form::Array)
    }

    /// Binary data of subtype 4 and 16 bytes.
    pub const fn uuid(name: &'static str) -> Argument {
        Argument::new(name, Form::Uuid)
    }

    /// A value of one of these forms.
    pub const fn one_of(name: &'static str, forms: &'static [Form]) -> Argument {
        Argument::new(name, Form::OneOf(forms))
    }

    /// It must be present. Required arguments come first in their table.
    #[must_use]
    pub const fn required(self) -> Argument {
        Argument { is_required: true, ..self }
    }

    /// Null and undefined are values: of the wrong type, unless the form is [`Form::Any`].
    #[must_use]
    pub const fn null_is_value(self) -> Argument {
        Argument { null: Null::Value, ..self }
    }

    /// The number must not be less than this.
    #[must_use]
    pub const fn at_least(self, least: i64) -> Argument {
        let most = match self.bounds {
            Some((_, most)) => most,
            None => i64::MAX,
        };
        Argument { bounds: Some((least, most)), is_checked_by_type: false, ..self }
    }

    /// The number must not be greater than this.
    #[must_use]
    pub const fn at_most(self, most: i64) -> Argument {
        let least = match self.bounds {
            Some((least, _)) => least,
            None => i64::MIN,
        };
        Argument { bounds: Some((least, most)), is_checked_by_type: false, ..self }
    }

    /// A wrong type is refused with this code and text.
    #[must_use]
    pub const fn refused_with(self, code: i32, text: &'static str) -> Argument {
        Argument { refusal: Some((code, text)), ..self }
    }

    /// Null is a value that is refused with this code and text.
    #[must_use]
    pub const fn refused_with_null(self, code: i32, text: &'static str) -> Argument {
        Argument { null_refusal: Some((code, text)), null: Null::Value, ..self }
    }

    /// A wrong type is refused with 14 TypeMismatch and this text.
    #[must_use]
    pub const fn mistyped(self, text: &'static str) -> Argument {
        self.refused_with(ErrorCode::TypeMismatch.0, text)
    }

    /// The reference had the argument in an earlier version. Every value is refused with this code
    /// and text.
    #[must_use]
    pub const fn removed(self, code: i32, text: &'static str) -> Argument {
        let refused = self.refused_with(code, text).null_is_value();
        Argument { types: 0, is_checked_by_type: false, ..refused }
    }

    /// The reference's version that introduced it.
    #[must_use]
    pub const fn since(self, since: &'static str) -> Argument {
        Argument { since, ..self }
    }

    /// It does not belong to the stable API.
    #[must_use]
    pub const fn unstable(self) -> Argument {
        Argument { is_stable: false, ..self }
    }

    /// The handler checks these fields of its documents.
    #[must_use]
    pub const fn parts(self, parts: &'static [Argument]) -> Argument {
        Argument { parts, ..self }
    }

    /// Whether this is its name. Most comparisons end at the length or at the first byte.
    #[inline]
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let own = self.name.as_bytes();
        own.len() == name.len() && own.first() == name.first() && own == name
    }

    /// Whether a value of this type is accepted, apart from null that counts as absent.
    pub fn accepts(&self, type_byte: u8) -> bool {
        bit(type_byte) & self.types != 0
    }

    /// Checks the value of an element. `path` is that of the document which contains it.
    ///
    /// # Errors
    /// 14 or the code of [`Argument::refused_with`] for a wrong type, 2 BadValue for a number out
    /// of bounds and for a string that is not a choice, the errors of the fields of a document.
    #[inline]
    pub fn check(&self, path: &Path<'_>, element: RawElement<'_>) -> Result<(), Error> {
        let type_byte = element.type_byte();
        if bit(type_byte) & self.types != 0 {
            if self.is_checked_by_type {
                return Ok(());
            }
            // What drivers send most: an int within its bounds.
            if let (ty::INT32, Some((least, most))) = (type_byte, self.bounds)
                && let RawValue::Int32(number) = element.value()
                && (least..=most).contains(&i64::from(number))
            {
                return Ok(());
            }
        }
        self.check_closely(path, element.value())
    }

    #[cold]
    fn check_closely(&self, path: &Path<'_>, value: RawValue<'_>) -> Result<(), Error> {
        let is_null = matches!(value, RawValue::Null | RawValue::Undefined);
        if is_null && self.null == Null::Absent {
            return Ok(());
        }
        if bit(value.type_byte()) & self.types == 0 {
            return Err(self.wrong_type(path, value));
        }
        if let (Some((least, most)), Some(number)) = (self.bounds, whole_number(value)) {
            if number < least {
                return Err(error::out_of_bounds(self.name, ">=", least, number));
            }
            if number > most {
                return Err(error::out_of_bounds(self.name, "<=", most, number));
            }
        }
        self.form.check_content(path, self.name, value)
    }

    fn wrong_type(&self, path: &Path<'_>, value: RawValue<'_>) -> Error {
        let is_null = matches!(value, RawValue::Null | RawValue::Undefined);
        match self.null_refusal.filter(|_| is_null).or(self.refusal) {
            Some((code, text)) => {
                Error::new(ErrorCode(code), text.replace("{}", value.type_name()))
            }
            None => error::wrong_type(path.field(self.name), value, &self.form.expected()),
        }
    }
}

/// The path of a document in errors, without an allocation.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    name: &'a str,
}

impl<'a> Path<'a> {
    /// A path that begins with this name.
    pub fn new(name: &'a str) -> Path<'a> {
        Path { parent: None, name }
    }

    /// The path of a field.
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), name }
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)
    }
}

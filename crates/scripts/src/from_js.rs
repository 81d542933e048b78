//! Converts results of scripts to BSON values.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::{DocBuf, DocBuilder, RawValue, ValueBuf, check_size, ty};
use rquickjs::object::Filter;
use rquickjs::{Array, Coerced, Object, String as Text, Value};

use crate::sandbox::{Prelude, thrown};

/// Converts the result of a call. Numbers become doubles; `undefined` becomes null.
pub(crate) fn value_of<'js>(prelude: &Prelude<'js>, value: Value<'js>) -> Result<ValueBuf> {
    if value.is_undefined() {
        return Ok(RawValue::Null.to_owned());
    }
    let mut out = DocBuilder::new();
    let mut writer = Writer { prelude, out: &mut out, numbers: Numbers::Doubles };
    writer.append("", &value, ValueContext::default())?;
    let document = out.finish();
    let first = document.as_doc().get("").unwrap_or(RawValue::Null);
    Ok(first.to_owned())
}

/// Converts a command of the shell's program, for this database. `undefined` becomes null within
/// the command; an option that is `undefined` is omitted.
pub(crate) fn command<'js>(
    prelude: &Prelude<'js>,
    command: &Object<'js>,
    database: &str,
) -> Result<DocBuf> {
    let mut out = DocBuilder::new();
    let mut writer = Writer { prelude, out: &mut out, numbers: Numbers::Shortest };
    writer.append_fields(command, 0)?;
    out.append("$db", database);
    Ok(out.finish())
}

/// The type of numbers without a fraction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Doubles, except in fields that were integers.
    Doubles,
    /// 32-bit integers, as far as they fit.
    Shortest,
}

/// The place of a value that is being converted.
#[derive(Clone, Copy, Default)]
struct ValueContext {
    depth: usize,
    /// The field was a 32-bit integer in the input document.
    was_integer: bool,
}

struct Writer<'p, 'js, 'o> {
    prelude: &'p Prelude<'js>,
    out: &'o mut DocBuilder,
    numbers: Numbers,
}

impl<'js> Writer<'_, 'js, '_> {
    fn append(&mut self, name: &str, value: &Value<'js>, context: ValueContext) -> Result<()> {
        check_size(self.out.len())?;
        if let Some(number) = value.as_number() {
            self.append_number(name, number, context.was_integer);
        } else if let Some(text) = value.as_string() {
            let text = self.text(text)?;
            check_size(self.out.len() + text.len())?;
            self.out.append(name, text.as_str());
        } else if let Some(flag) = value.as_bool() {
            self.out.append(name, flag);
        } else if value.is_null() {
            self.out.append(name, RawValue::Null);
        } else if value.is_undefined() {
            let value = match self.numbers {
                Numbers::Doubles => RawValue::Undefined,
                Numbers::Shortest if context.depth <= 1 => return Ok(()),
                Numbers::Shortest => RawValue::Null,
            };
            self.out.append(name, value);
        } else if let Some(array) = value.as_array() {
            self.append_array(name, array, context.depth)?;
        } else if let Some(object) = value.as_object() {
            self.append_object(name, object, context.depth)?;
        } else {
            // Symbols and big integers.
            let text = format!("unable to convert JavaScript property to mongo element {name}");
            return Err(Error::new(ErrorCode(16662), text));
        }
        Ok(())
    }

    fn append_number(&mut self, name: &str, number: f64, was_integer: bool) {
        let integer = number as i32;
        let may_be_integer = match self.numbers {
            Numbers::Doubles => was_integer,
            Numbers::Shortest => number != 0.0 || number.is_sign_positive(),
        };
        if may_be_integer && f64::from(integer) == number {
            self.out.append(name, integer);
        } else {
            self.out.append(name, number);
        }
    }

    fn append_array(&mut self, name: &str, array: &Array<'js>, depth: usize) -> Result<()> {
        check_depth(depth)?;
        self.out.start_array(name);
        for at in 0..array.len() {
            let item: Value<'js> = self.done(array.get(at))?;
            self.append(
                &at.to_string(),
                &item,
                ValueContext { depth: depth + 1, was_integer: false },
            )?;
        }
        self.out.end();
        Ok(())
    }

    fn append_object(&mut self, name: &str, object: &Object<'js>, depth: usize) -> Result<()> {
        check_depth(depth)?;
        let is_plain = object.get_prototype().is_some_and(|proto| proto == self.prelude.plain);
        if !is_plain || object.is_function() {
            let kind: Option<Array<'js>> =
                self.done(self.prelude.classify.call((object.clone(),)))?;
            if let Some(kind) = kind {
                return self.append_kind(name, &kind, depth);
            }
        }
        self.out.start_document(name);
        self.append_fields(object, depth)?;
        self.out.end();
        Ok(())
    }

    /// Appends the fields of an object.
    fn append_fields(&mut self, object: &Object<'js>, depth: usize) -> Result<()> {
        let integers: Option<String> = self.done(object.get(self.prelude.integers.clone()))?;
        let integers: Vec<&str> = integers.iter().flat_map(|names| names.split('\0')).collect();
        for key in object.own_keys::<Text<'js>>(Filter::new().string().enum_only()) {
            let key = self.done(key)?;
            let value: Value<'js> = self.done(object.get(key.clone()))?;
            let field = self.text(&key)?;
            if field.contains('\0') {
                let text = "a field's name may not contain the character 0";
                return Err(Error::new(ErrorCode::JSInterpreterFailure, text));
            }
            let was_integer = integers.contains(&field.as_str());
            self.append(&field, &value, ValueContext { depth: depth + 1, was_integer })?;
        }
        Ok(())
    }

    /// Appends an object of a BSON type: `kind` is its type byte and its parts, as classified by
    /// the prelude.
    fn append_kind(&mut self, name: &str, kind: &Array<'js>, depth: usize) -> Result<()> {
        let first: Value<'js> = self.done(kind.get(1))?;
        let Some(type_byte) = self.done(kind.get::<Value<'js>>(0))?.as_number() else {
            return self.append(name, &first, ValueContext { depth, was_integer: false });
        };
        let number = |value: &Value<'js>| value.as_number().unwrap_or_default();
        let text = self.done(first.get::<Coerced<String>>())?.0;
        let second: Value<'js> = self.done(kind.get(2))?;
        let value = match type_byte as u8 {
            ty::BINARY => {
                let subtype = number(&second) as u8;
                let bytes = bytes_of(&text);
                check_size(self.out.len() + bytes.len())?;
                self.out.append(name, RawValue::Binary { subtype, bytes: &bytes });
                return Ok(());
            }
            ty::OBJECT_ID => RawValue::ObjectId(id_of(&text)),
            // The cast converts an invalid date to the earliest date, as the reference does.
            ty::DATE if number(&first).is_nan() => RawValue::Date(i64::MIN),
            ty::DATE => RawValue::Date(number(&first) as i64),
            ty::REGEX => {
                let options = self.done(second.get::<Coerced<String>>())?.0;
                if text.contains('\0') {
                    let text = "a regular expression may not contain the character 0";
                    return Err(Error::new(ErrorCode::JSInterpreterFailure, text));
                }
                self.out.append(name, RawValue::Regex { pattern: &text, options: &options });
                return Ok(());
            }
            ty::DB_POINTER => {
                let id = id_of(&self.done(second.get::<Coerced<String>>())?.0);
                self.out.append(name, RawValue::DbPointer { ns: &text, id });
                return Ok(());
            }
            ty::CODE => RawValue::Code(&text),
            ty::DOUBLE => RawValue::Double(number(&first)),
            ty::INT32 => RawValue::Int32(number(&first) as i32),
            ty::TIMESTAMP => RawValue::Timestamp(
                (number(&first) as u64) << 32 | u64::from(number(&second) as u32),
            ),
            ty::INT64 => RawValue::Int64(text.parse().unwrap_or_default()),
            ty::DECIMAL => {
                let parsed = Decimal::parse(&text).ok_or_else(|| {
                    Error::new(ErrorCode::BadValue, "Input is not a valid Decimal128 value.")
                })?;
                RawValue::Decimal128(parsed.to_bytes())
            }
            ty::MAX_KEY => RawValue::MaxKey,
            ty::MIN_KEY => RawValue::MinKey,
            _ => RawValue::Undefined,
        };
        check_size(self.out.len() + text.len())?;
        self.out.append(name, value);
        Ok(())
    }

    /// Converts a string; unpaired surrogates become replacement characters.
    fn text(&self, text: &Text<'js>) -> Result<String> {
        match text.to_string() {
            Ok(text) => Ok(text),
            Err(_) => self.done(self.prelude.well_formed.call((text.clone(),))),
        }
    }

    fn done<T>(&self, result: rquickjs::Result<T>) -> Result<T> {
        result.map_err(|error| thrown(self.prelude.make.ctx(), &error))
    }
}

fn check_depth(depth: usize) -> Result<()> {
    if depth < MAX_BSON_DEPTH {
        return Ok(());
    }
    let text = format!(
        "Exceeded depth limit of {MAX_BSON_DEPTH} when converting js object to BSON. Do you have a cycle?"
    );
    Err(Error::new(ErrorCode(17279), text))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn id_of(hex: &str) -> [u8; 12] {
    bytes_of(hex).try_into().unwrap_or_default()
}

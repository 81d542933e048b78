//! Converts BSON values to values of scripts.

use mayfly_value::decimal::Decimal;
use mayfly_value::{RawDoc, RawValue, ty};
use rquickjs::object::Property;
use rquickjs::{Array, Ctx, IntoJs, Object, Result, String as Text, Value};

use crate::sandbox::Prelude;

/// Converts a document to a plain object with a list of its integer fields. The nesting of
/// documents is limited, which bounds the recursion.
pub(crate) fn document<'js>(
    ctx: &Ctx<'js>,
    prelude: &Prelude<'js>,
    document: RawDoc<'_>,
) -> Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    let mut integers = String::new();
    for element in document {
        let name = element.name();
        if element.type_byte() == ty::INT32 {
            integers.push_str(name);
            integers.push('\0');
        }
        let value = value(ctx, prelude, element.value())?;
        // Defined, not assigned, so that `__proto__` is an ordinary name, and no setter of the
        // script runs.
        object.prop(name, Property::from(value).writable().enumerable().configurable())?;
    }
    if !integers.is_empty() {
        object.prop(prelude.integers.clone(), Property::from(integers).writable())?;
    }
    Ok(object)
}

/// Converts a value.
pub(crate) fn value<'js>(
    ctx: &Ctx<'js>,
    prelude: &Prelude<'js>,
    value: RawValue<'_>,
) -> Result<Value<'js>> {
    let make = |type_byte: u8, first: &str| prelude.make.call((type_byte, first));
    match value {
        RawValue::MinKey => make(ty::MIN_KEY, ""),
        RawValue::Undefined => Ok(Value::new_undefined(ctx.clone())),
        RawValue::Null => Ok(Value::new_null(ctx.clone())),
        RawValue::Double(number) => Ok(Value::new_float(ctx.clone(), number)),
        RawValue::Int32(number) => Ok(Value::new_int(ctx.clone(), number)),
        RawValue::Int64(number) => make(ty::INT64, &number.to_string()),
        RawValue::Decimal128(bytes) => {
            make(ty::DECIMAL, &Decimal::from_bytes(bytes).to_dec().to_string())
        }
        RawValue::String(text) | RawValue::Symbol(text) => {
            Text::from_str(ctx.clone(), text).map(Text::into_value)
        }
        RawValue::Document(inner) => document(ctx, prelude, inner).map(Object::into_value),
        RawValue::Array(items) => {
            let array = Array::new(ctx.clone())?;
            for (at, item) in items.iter().enumerate() {
                let item = self::value(ctx, prelude, item.value())?;
                let property = Property::from(item).writable().enumerable().configurable();
                array.as_object().prop(u32::try_from(at).unwrap_or(u32::MAX), property)?;
            }
            Ok(array.into_value())
        }
        RawValue::Binary { subtype, bytes } => prelude.make.call((ty::BINARY, hex(bytes), subtype)),
        RawValue::ObjectId(bytes) => prelude.make.call((ty::OBJECT_ID, hex(&bytes))),
        RawValue::Bool(flag) => flag.into_js(ctx),
        RawValue::Date(millis) => prelude.make.call((ty::DATE, millis as f64)),
        RawValue::Timestamp(stamp) => {
            let (seconds, increment) = ((stamp >> 32) as f64, f64::from(stamp as u32));
            prelude.make.call((ty::TIMESTAMP, seconds, increment))
        }
        RawValue::Regex { pattern, options } => prelude.make.call((ty::REGEX, pattern, options)),
        RawValue::DbPointer { ns, id } => prelude.make.call((ty::DB_POINTER, ns, hex(&id))),
        RawValue::Code(code) | RawValue::CodeWithScope { code, .. } => make(ty::CODE, code),
        RawValue::MaxKey => make(ty::MAX_KEY, ""),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

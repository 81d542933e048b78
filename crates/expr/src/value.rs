//! The value of an expression: borrowed from the document or the expression, owned, or missing.

use mayfly_value::{RawValue, ValueBuf, compare_values};

/// The result of an expression.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No value: the field is omitted in a result document.
    Missing,
    /// Borrowed from the document or the expression, or a value without heap data.
    Borrowed(RawValue<'a>),
    /// Constructed by the expression.
    Owned(ValueBuf),
}

impl<'a> Value<'a> {
    /// The null value.
    pub const NULL: Value<'static> = Value::Borrowed(RawValue::Null);

    /// The value; `None` when it is missing.
    pub fn as_raw(&self) -> Option<RawValue<'_>> {
        match self {
            Value::Missing => None,
            Value::Borrowed(value) => Some(*value),
            Value::Owned(value) => Some(value.as_raw()),
        }
    }

    /// The value, or undefined when it is missing, which compares the same.
    pub fn or_undefined(&self) -> RawValue<'_> {
        self.as_raw().unwrap_or(RawValue::Undefined)
    }

    /// Whether it is missing, null or undefined.
    pub fn is_nullish(&self) -> bool {
        matches!(self.or_undefined(), RawValue::Null | RawValue::Undefined)
    }

    /// Its truth value: everything is true except false, zero, null, undefined and missing.
    pub fn is_true(&self) -> bool {
        match self.or_undefined() {
            RawValue::Bool(value) => value,
            RawValue::Null | RawValue::Undefined => false,
            value if value.is_number() => compare_values(value, RawValue::Int32(0)).is_ne(),
            _ => true,
        }
    }

    /// Its type as in error messages and in `$type`.
    pub fn type_name(&self) -> &'static str {
        self.as_raw().map_or("missing", RawValue::type_name)
    }

    /// A copy that outlives the document; `None` when it is missing.
    pub fn into_owned(self) -> Option<ValueBuf> {
        match self {
            Value::Missing => None,
            Value::Borrowed(value) => Some(value.to_owned()),
            Value::Owned(value) => Some(value),
        }
    }

    /// The same value without borrowed data.
    pub fn detached(self) -> Value<'static> {
        self.into_owned().map_or(Value::Missing, Value::Owned)
    }
}

impl<'a> From<Option<RawValue<'a>>> for Value<'a> {
    fn from(value: Option<RawValue<'a>>) -> Value<'a> {
        value.map_or(Value::Missing, Value::Borrowed)
    }
}

impl From<bool> for Value<'static> {
    fn from(value: bool) -> Value<'static> {
        Value::Borrowed(RawValue::Bool(value))
    }
}

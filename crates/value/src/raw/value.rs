//! Borrowed values.

use std::fmt;

use super::length::int32;
use super::name::find_zero;
use super::{DocBuf, RawDoc, ValueBuf, ty, type_name};

/// A borrowed BSON value of any type.
#[derive(Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names of the BSON specification")]
pub enum RawValue<'a> {
    MinKey,
    Undefined,
    Null,
    Double(f64),
    Int32(i32),
    Int64(i64),
    /// IEEE 754-2008 decimal128, binary integer decimal encoding, little-endian.
    Decimal128([u8; 16]),
    String(&'a str),
    Symbol(&'a str),
    Document(RawDoc<'a>),
    Array(RawDoc<'a>),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    ObjectId([u8; 12]),
    Bool(bool),
    /// Milliseconds since 1970-01-01 UTC.
    Date(i64),
    /// Seconds in the high half, increment in the low half.
    Timestamp(u64),
    Regex {
        pattern: &'a str,
        options: &'a str,
    },
    DbPointer {
        ns: &'a str,
        id: [u8; 12],
    },
    Code(&'a str),
    CodeWithScope {
        code: &'a str,
        scope: RawDoc<'a>,
    },
    MaxKey,
}

impl<'a> RawValue<'a> {
    /// A UUID: a binary value of subtype 4.
    #[inline]
    pub fn uuid(bytes: &'a [u8; 16]) -> RawValue<'a> {
        RawValue::Binary { subtype: 4, bytes }
    }

    /// Decodes the bytes of a value. Bytes that do not fit the type decode as null, malformed
    /// strings as empty.
    #[inline]
    pub fn decode(type_byte: u8, data: &'a [u8]) -> RawValue<'a> {
        decode(type_byte, data).unwrap_or(RawValue::Null)
    }

    /// The BSON type byte, see [`ty`].
    #[inline]
    pub fn type_byte(self) -> u8 {
        match self {
            RawValue::MinKey => ty::MIN_KEY,
            RawValue::Undefined => ty::UNDEFINED,
            RawValue::Null => ty::NULL,
            RawValue::Double(_) => ty::DOUBLE,
            RawValue::Int32(_) => ty::INT32,
            RawValue::Int64(_) => ty::INT64,
            RawValue::Decimal128(_) => ty::DECIMAL,
            RawValue::String(_) => ty::STRING,
            RawValue::Symbol(_) => ty::SYMBOL,
            RawValue::Document(_) => ty::DOCUMENT,
            RawValue::Array(_) => ty::ARRAY,
            RawValue::Binary { .. } => ty::BINARY,
            RawValue::ObjectId(_) => ty::OBJECT_ID,
            RawValue::Bool(_) => ty::BOOL,
            RawValue::Date(_) => ty::DATE,
            RawValue::Timestamp(_) => ty::TIMESTAMP,
            RawValue::Regex { .. } => ty::REGEX,
            RawValue::DbPointer { .. } => ty::DB_POINTER,
            RawValue::Code(_) => ty::CODE,
            RawValue::CodeWithScope { .. } => ty::CODE_W_SCOPE,
            RawValue::MaxKey => ty::MAX_KEY,
        }
    }

    /// The type's name as the reference prints it in errors and `$type` accepts it: `string`,
    /// `objectId`, `long`.
    pub fn type_name(self) -> &'static str {
        type_name(self.type_byte())
    }

    /// Whether it is int, long, double or decimal.
    #[inline]
    pub fn is_number(self) -> bool {
        matches!(
            self,
            RawValue::Double(_) | RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Decimal128(_)
        )
    }

    /// Appends the value's bytes (without type and name) to a buffer.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            RawValue::MinKey | RawValue::Undefined | RawValue::Null | RawValue::MaxKey => {}
            RawValue::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
            RawValue::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
            RawValue::Int64(v) | RawValue::Date(v) => out.extend_from_slice(&v.to_le_bytes()),
            RawValue::Decimal128(v) => out.extend_from_slice(&v),
            RawValue::String(v) | RawValue::Symbol(v) | RawValue::Code(v) => encode_string(v, out),
            RawValue::Document(v) | RawValue::Array(v) => out.extend_from_slice(v.0),
            RawValue::Binary { subtype, bytes } => {
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            RawValue::ObjectId(v) => out.extend_from_slice(&v),
            RawValue::Bool(v) => out.push(u8::from(v)),
            RawValue::Timestamp(v) => out.extend_from_slice(&v.to_le_bytes()),
            RawValue::Regex { pattern, options } => {
                // Each text is cut at its first NUL byte, so that the bytes are a valid value.
                for text in [pattern, options] {
                    encode_cstring(text.split('\0').next().unwrap_or_default(), out);
                }
            }
            RawValue::DbPointer { ns, id } => {
                encode_string(ns, out);
                out.extend_from_slice(&id);
            }
            RawValue::CodeWithScope { code, scope } => {
                let len = 4 + 4 + code.len() + 1 + scope.0.len();
                out.extend_from_slice(&(len as u32).to_le_bytes());
                encode_string(code, out);
                out.extend_from_slice(scope.0);
            }
        }
    }

    /// The length of the encoded value, or more.
    fn room(self) -> usize {
        match self {
            RawValue::String(v) | RawValue::Symbol(v) | RawValue::Code(v) => 4 + v.len() + 1,
            RawValue::Document(v) | RawValue::Array(v) => v.0.len(),
            RawValue::Binary { bytes, .. } => 5 + bytes.len(),
            RawValue::Regex { pattern, options } => pattern.len() + options.len() + 2,
            RawValue::DbPointer { ns, .. } => 4 + ns.len() + 1 + 12,
            RawValue::CodeWithScope { code, scope } => 9 + code.len() + scope.0.len(),
            RawValue::MinKey
            | RawValue::Undefined
            | RawValue::Null
            | RawValue::MaxKey
            | RawValue::Double(_)
            | RawValue::Int32(_)
            | RawValue::Int64(_)
            | RawValue::Date(_)
            | RawValue::Decimal128(_)
            | RawValue::ObjectId(_)
            | RawValue::Bool(_)
            | RawValue::Timestamp(_) => 16,
        }
    }

    /// An owned copy.
    pub fn to_owned(self) -> ValueBuf {
        let mut data = Vec::with_capacity(self.room());
        self.encode(&mut data);
        ValueBuf::from_parts(self.type_byte(), data)
    }

    /// The text of a string; `None` for other types.
    #[inline]
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            RawValue::String(v) => Some(v),
            _ => None,
        }
    }

    /// The embedded document; `None` for other types, including arrays.
    #[inline]
    pub fn as_document(self) -> Option<RawDoc<'a>> {
        match self {
            RawValue::Document(v) => Some(v),
            _ => None,
        }
    }

    /// The array; `None` for other types.
    #[inline]
    pub fn as_array(self) -> Option<RawDoc<'a>> {
        match self {
            RawValue::Array(v) => Some(v),
            _ => None,
        }
    }
}

impl fmt::Debug for RawValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::shell::write_value(f, *self)
    }
}

#[inline]
fn decode(type_byte: u8, data: &[u8]) -> Option<RawValue<'_>> {
    Some(match type_byte {
        ty::DOUBLE => RawValue::Double(f64::from_le_bytes(*data.first_chunk()?)),
        ty::STRING => RawValue::String(decode_string(data)?),
        ty::DOCUMENT => RawValue::Document(RawDoc::new(data)?),
        ty::ARRAY => RawValue::Array(RawDoc::new(data)?),
        ty::BINARY => RawValue::Binary { subtype: *data.get(4)?, bytes: data.get(5..)? },
        ty::UNDEFINED => RawValue::Undefined,
        ty::OBJECT_ID => RawValue::ObjectId(*data.first_chunk()?),
        ty::BOOL => RawValue::Bool(*data.first()? != 0),
        ty::DATE => RawValue::Date(i64::from_le_bytes(*data.first_chunk()?)),
        ty::NULL => RawValue::Null,
        ty::REGEX => {
            let split = find_zero(data)?;
            let options = data.get(split + 1..data.len() - 1)?;
            RawValue::Regex {
                pattern: std::str::from_utf8(&data[..split]).ok()?,
                options: std::str::from_utf8(options).ok()?,
            }
        }
        ty::DB_POINTER => {
            let split = data.len().checked_sub(12)?;
            RawValue::DbPointer {
                ns: decode_string(&data[..split])?,
                id: *data[split..].first_chunk()?,
            }
        }
        ty::CODE => RawValue::Code(decode_string(data)?),
        ty::SYMBOL => RawValue::Symbol(decode_string(data)?),
        ty::CODE_W_SCOPE => {
            let body = data.get(4..)?;
            let scope_at = usize::try_from(int32(body)).ok()?.checked_add(4)?;
            let scope = RawDoc::new(body.get(scope_at..)?)?;
            RawValue::CodeWithScope { code: decode_string(&body[..scope_at])?, scope }
        }
        ty::INT32 => RawValue::Int32(i32::from_le_bytes(*data.first_chunk()?)),
        ty::TIMESTAMP => RawValue::Timestamp(u64::from_le_bytes(*data.first_chunk()?)),
        ty::INT64 => RawValue::Int64(i64::from_le_bytes(*data.first_chunk()?)),
        ty::DECIMAL => RawValue::Decimal128(*data.first_chunk()?),
        ty::MIN_KEY => RawValue::MinKey,
        ty::MAX_KEY => RawValue::MaxKey,
        _ => return None,
    })
}

fn decode_string(data: &[u8]) -> Option<&str> {
    let text = data.get(4..data.len().checked_sub(1)?)?;
    Some(std::str::from_utf8(text).unwrap_or(""))
}

fn encode_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    encode_cstring(text, out);
}

fn encode_cstring(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

macro_rules! from_plain {
    ($($from:ty => $variant:ident,)*) => {
        $(impl<'a> From<$from> for RawValue<'a> {
            fn from(value: $from) -> RawValue<'a> {
                RawValue::$variant(value)
            }
        })*
    };
}
from_plain! { f64 => Double, i32 => Int32, i64 => Int64, &'a str => String, bool => Bool, }

impl<'a> From<RawDoc<'a>> for RawValue<'a> {
    fn from(value: RawDoc<'a>) -> RawValue<'a> {
        RawValue::Document(value)
    }
}

impl<'a> From<&'a DocBuf> for RawValue<'a> {
    fn from(value: &'a DocBuf) -> RawValue<'a> {
        RawValue::Document(value.as_doc())
    }
}

impl<'a> From<&'a ValueBuf> for RawValue<'a> {
    fn from(value: &'a ValueBuf) -> RawValue<'a> {
        value.as_raw()
    }
}

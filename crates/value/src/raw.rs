//! BSON as borrowed bytes: documents, elements and values that point into the buffer they came
//! from.
//!
//! A document is checked once, where it enters ([`crate::validate()`]); from then on access is by
//! plain slicing. Access never panics on bytes that were not checked: a malformed element ends the
//! iteration, and a malformed string reads as empty.

use std::fmt;

/// BSON type bytes.
#[allow(missing_docs, reason = "the names of the BSON specification")]
pub mod ty {
    pub const DOUBLE: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const DOCUMENT: u8 = 0x03;
    pub const ARRAY: u8 = 0x04;
    pub const BINARY: u8 = 0x05;
    pub const UNDEFINED: u8 = 0x06;
    pub const OBJECT_ID: u8 = 0x07;
    pub const BOOL: u8 = 0x08;
    pub const DATE: u8 = 0x09;
    pub const NULL: u8 = 0x0A;
    pub const REGEX: u8 = 0x0B;
    pub const DB_POINTER: u8 = 0x0C;
    pub const CODE: u8 = 0x0D;
    pub const SYMBOL: u8 = 0x0E;
    pub const CODE_W_SCOPE: u8 = 0x0F;
    pub const INT32: u8 = 0x10;
    pub const TIMESTAMP: u8 = 0x11;
    pub const INT64: u8 = 0x12;
    pub const DECIMAL: u8 = 0x13;
    pub const MAX_KEY: u8 = 0x7F;
    pub const MIN_KEY: u8 = 0xFF;
}

/// A document or array as it stands in a buffer: length, elements, final zero byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawDoc<'a>(&'a [u8]);

/// The five bytes of `{}`.
pub const EMPTY_DOC: &[u8] = &[5, 0, 0, 0, 0];

impl<'a> RawDoc<'a> {
    /// `{}`.
    pub const EMPTY: RawDoc<'static> = RawDoc(EMPTY_DOC);

    /// Takes bytes that hold exactly one document; checks only its frame.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<RawDoc<'a>> {
        let framed =
            bytes.len() >= 5 && int32(bytes) as usize == bytes.len() && bytes.ends_with(&[0]);
        framed.then_some(RawDoc(bytes))
    }

    /// Takes the document at the front of the bytes; checks only its frame.
    #[inline]
    pub fn at_front(bytes: &'a [u8]) -> Option<RawDoc<'a>> {
        if bytes.len() < 5 {
            return None;
        }
        let len = usize::try_from(int32(bytes)).ok()?;
        RawDoc::new(bytes.get(..len)?)
    }

    /// The whole document, length included.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether it has no elements.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0.len() <= 5
    }

    /// Its elements in their order.
    #[inline]
    pub fn iter(self) -> RawIter<'a> {
        RawIter { rest: self.0.get(4..self.0.len().saturating_sub(1)).unwrap_or(&[]) }
    }

    /// The elements from this one on: so many bytes of elements come before it.
    #[inline]
    pub fn iter_behind(self, bytes: usize) -> RawIter<'a> {
        RawIter { rest: self.iter().rest.get(bytes..).unwrap_or(&[]) }
    }

    /// The first element with this name.
    pub fn get_element(self, name: &str) -> Option<RawElement<'a>> {
        let wanted = Wanted::new(name.as_bytes())?;
        let mut rest = self.iter().rest;
        loop {
            let (&ty, after_type) = rest.split_first()?;
            let (name_len, found) = wanted.compare(after_type)?;
            let after_name = after_type.get(name_len + 1..)?;
            let len = value_len(ty, after_name)?;
            if found {
                let data = after_name.get(..len)?;
                return Some(RawElement { ty, name: &after_type[..name_len], data });
            }
            rest = after_name.get(len..)?;
        }
    }

    /// The value of the first element with this name.
    #[inline]
    pub fn get(self, name: &str) -> Option<RawValue<'a>> {
        self.get_element(name).map(RawElement::value)
    }

    /// An owned copy.
    pub fn to_owned(self) -> DocBuf {
        DocBuf(self.0.to_vec())
    }
}

impl<'a> IntoIterator for RawDoc<'a> {
    type Item = RawElement<'a>;
    type IntoIter = RawIter<'a>;

    fn into_iter(self) -> RawIter<'a> {
        self.iter()
    }
}

/// The elements of a document.
#[derive(Clone)]
pub struct RawIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RawIter<'a> {
    type Item = RawElement<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawElement<'a>> {
        let rest = std::mem::take(&mut self.rest);
        let (&ty, after_type) = rest.split_first()?;
        let (name, after_name) = after_type.split_at_checked(find_zero(after_type)?)?;
        let after_name = after_name.get(1..)?;
        let (data, rest) = after_name.split_at_checked(value_len(ty, after_name)?)?;
        self.rest = rest;
        Some(RawElement { ty, name, data })
    }
}

/// Where the first zero byte stands. Names are short, so eight bytes at once find most of them in
/// one step.
#[inline]
pub(crate) fn find_zero(bytes: &[u8]) -> Option<usize> {
    if let Some(at) = bytes.first_chunk::<8>().and_then(|chunk| zero_in(*chunk)) {
        return Some(at);
    }
    find_zero_behind(bytes)
}

/// Where the first zero byte of a word stands.
#[inline]
pub(crate) fn zero_in(chunk: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(chunk);
    // Only the lowest mark is exact, and that is the one that counts.
    let zeros = word.wrapping_sub(ONES) & !word & HIGHS;
    (zeros != 0).then_some((zeros.trailing_zeros() / 8) as usize)
}

/// The same for names that the first step does not end.
fn find_zero_behind(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        if let Some(zero) = zero_in(*chunk) {
            return Some(at + zero);
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == 0).map(|rest| at + rest)
}

/// A name that is looked for among the elements of a document. Eight bytes at once tell most names apart and find their ends.
struct Wanted<'n> {
    name: &'n [u8],
    /// Its beginning, with the zero byte that ends it where there is room, and which bits of that count.
    word: u64,
    mask: u64,
}

impl<'n> Wanted<'n> {
    /// Nothing for what is no name: one with a zero byte.
    #[inline]
    fn new(name: &'n [u8]) -> Option<Wanted<'n>> {
        let mut word = [0; 8];
        let start = name.len().min(8);
        word[..start].copy_from_slice(&name[..start]);
        let mask = if name.len() < 8 { u64::MAX >> (56 - 8 * name.len()) } else { u64::MAX };
        let end = zero_in(word).unwrap_or(8);
        if end < start || name.get(8..).is_some_and(|rest| rest.contains(&0)) {
            return None;
        }
        Some(Wanted { name, word: u64::from_le_bytes(word), mask })
    }

    /// How long the name at the beginning of these bytes is, and whether it is this one.
    #[inline]
    fn compare(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        if let Some(chunk) = bytes.first_chunk::<8>() {
            let same = (u64::from_le_bytes(*chunk) ^ self.word) & self.mask == 0;
            if same && self.name.len() < 8 {
                return Some((self.name.len(), true));
            }
            if let Some(len) = zero_in(*chunk) {
                return Some((len, false));
            }
        }
        let len = find_zero_behind(bytes)?;
        Some((len, &bytes[..len] == self.name))
    }
}

/// One element, its value not decoded yet.
#[derive(Clone, Copy)]
pub struct RawElement<'a> {
    ty: u8,
    name: &'a [u8],
    data: &'a [u8],
}

impl<'a> RawElement<'a> {
    /// An element that stands in no document.
    #[inline]
    pub fn from_parts(ty: u8, name: &'a str, data: &'a [u8]) -> RawElement<'a> {
        RawElement { ty, name: name.as_bytes(), data }
    }

    /// The element that these bytes begin with, and the bytes behind it.
    pub fn at_front(bytes: &'a [u8]) -> Option<(RawElement<'a>, &'a [u8])> {
        let mut elements = RawIter { rest: bytes };
        let element = elements.next()?;
        Some((element, elements.rest))
    }

    /// The BSON type byte, see [`ty`].
    #[inline]
    pub fn type_byte(self) -> u8 {
        self.ty
    }

    /// The name, for comparing.
    #[inline]
    pub fn name_bytes(self) -> &'a [u8] {
        self.name
    }

    /// The name.
    #[inline]
    pub fn name(self) -> &'a str {
        std::str::from_utf8(self.name).unwrap_or("")
    }

    /// How many bytes it takes in its document.
    #[inline]
    pub fn encoded_len(self) -> usize {
        1 + self.name.len() + 1 + self.data.len()
    }

    /// The value's bytes, without type and name.
    #[inline]
    pub fn data(self) -> &'a [u8] {
        self.data
    }

    /// The value, decoded.
    #[inline]
    pub fn value(self) -> RawValue<'a> {
        // The commonest types that are short to decode.
        match self.ty {
            ty::INT32 => match self.data.first_chunk() {
                Some(bytes) => RawValue::Int32(i32::from_le_bytes(*bytes)),
                None => RawValue::Null,
            },
            ty::DOUBLE => match self.data.first_chunk() {
                Some(bytes) => RawValue::Double(f64::from_le_bytes(*bytes)),
                None => RawValue::Null,
            },
            ty => RawValue::decode(ty, self.data),
        }
    }
}

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
    /// Decodes the bytes of a value. Bytes that do not fit the type read as null, bad strings as
    /// empty.
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

    /// The type's name as the reference prints it in errors and `$type` takes it: `string`,
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
                // Whatever the texts hold, the bytes remain a value: texts end at their first NUL byte.
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

    /// An owned copy.
    pub fn to_owned(self) -> ValueBuf {
        let mut data = Vec::new();
        self.encode(&mut data);
        ValueBuf { ty: self.type_byte(), data }
    }

    /// The text of a string, else nothing.
    #[inline]
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            RawValue::String(v) => Some(v),
            _ => None,
        }
    }

    /// The embedded document, else nothing. Arrays are not documents here.
    #[inline]
    pub fn as_document(self) -> Option<RawDoc<'a>> {
        match self {
            RawValue::Document(v) => Some(v),
            _ => None,
        }
    }

    /// The array, else nothing.
    #[inline]
    pub fn as_array(self) -> Option<RawDoc<'a>> {
        match self {
            RawValue::Array(v) => Some(v),
            _ => None,
        }
    }
}

/// The type's name as the reference prints it in errors and `$type` takes it.
pub fn type_name(type_byte: u8) -> &'static str {
    match type_byte {
        ty::MIN_KEY => "minKey",
        ty::UNDEFINED => "undefined",
        ty::NULL => "null",
        ty::DOUBLE => "double",
        ty::INT32 => "int",
        ty::INT64 => "long",
        ty::DECIMAL => "decimal",
        ty::STRING => "string",
        ty::SYMBOL => "symbol",
        ty::DOCUMENT => "object",
        ty::ARRAY => "array",
        ty::BINARY => "binData",
        ty::OBJECT_ID => "objectId",
        ty::BOOL => "bool",
        ty::DATE => "date",
        ty::TIMESTAMP => "timestamp",
        ty::REGEX => "regex",
        ty::DB_POINTER => "dbPointer",
        ty::CODE => "javascript",
        ty::CODE_W_SCOPE => "javascriptWithScope",
        ty::MAX_KEY => "maxKey",
        _ => "unknown",
    }
}

impl fmt::Debug for RawDoc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|e| (e.name(), e.value()))).finish()
    }
}

impl fmt::Debug for RawValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::shell::write_value(f, *self)
    }
}

fn int32(bytes: &[u8]) -> i32 {
    match bytes.first_chunk::<4>() {
        Some(chunk) => i32::from_le_bytes(*chunk),
        None => -1,
    }
}

/// In [`FIXED_LENGTHS`]: the length stands in the value, or there is no such type.
const VARIES: u8 = u8::MAX;

/// Lengths of the types whose values are all equally long.
const FIXED_LENGTHS: [u8; 256] = {
    let mut lengths = [VARIES; 256];
    lengths[ty::DOUBLE as usize] = 8;
    lengths[ty::DATE as usize] = 8;
    lengths[ty::TIMESTAMP as usize] = 8;
    lengths[ty::INT64 as usize] = 8;
    lengths[ty::UNDEFINED as usize] = 0;
    lengths[ty::NULL as usize] = 0;
    lengths[ty::MIN_KEY as usize] = 0;
    lengths[ty::MAX_KEY as usize] = 0;
    lengths[ty::OBJECT_ID as usize] = 12;
    lengths[ty::BOOL as usize] = 1;
    lengths[ty::INT32 as usize] = 4;
    lengths[ty::DECIMAL as usize] = 16;
    lengths
};

/// The length of a value's bytes; nothing for an unknown type or a length that cannot be.
#[inline]
fn value_len(type_byte: u8, data: &[u8]) -> Option<usize> {
    match FIXED_LENGTHS[usize::from(type_byte)] {
        VARIES => varying_len(type_byte, data),
        len => Some(usize::from(len)),
    }
}

fn varying_len(type_byte: u8, data: &[u8]) -> Option<usize> {
    let prefixed =
        |extra: usize| -> Option<usize> { usize::try_from(int32(data)).ok()?.checked_add(extra) };
    match type_byte {
        ty::STRING | ty::CODE | ty::SYMBOL => prefixed(4),
        ty::DOCUMENT | ty::ARRAY => prefixed(0).filter(|len| *len >= 5),
        ty::BINARY => prefixed(5),
        ty::REGEX => {
            let pattern = find_zero(data)? + 1;
            Some(pattern + find_zero(&data[pattern..])? + 1)
        }
        ty::DB_POINTER => prefixed(16),
        ty::CODE_W_SCOPE => prefixed(0),
        _ => None,
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

/// An owned document: exactly the bytes of one BSON document.
#[derive(Clone, PartialEq, Eq)]
pub struct DocBuf(Vec<u8>);

impl DocBuf {
    /// `{}`.
    pub fn empty() -> DocBuf {
        DocBuf(EMPTY_DOC.to_vec())
    }

    /// Takes bytes that hold exactly one document; checks only its frame.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<DocBuf> {
        RawDoc::new(&bytes)?;
        Some(DocBuf(bytes))
    }

    /// The bytes of a document of the `bson` crate, for replies that are not on a hot path.
    pub fn from_bson(document: &bson::Document) -> DocBuf {
        match document.to_vec() {
            Ok(bytes) => DocBuf(bytes),
            // Only a key with a NUL byte can fail, and no reply has one.
            Err(error) => unreachable!("a document built by the server encodes: {error}"),
        }
    }

    /// Borrowed.
    #[inline]
    pub fn as_doc(&self) -> RawDoc<'_> {
        RawDoc(&self.0)
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes.
    #[inline]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_doc().fmt(f)
    }
}

/// An owned value: type byte and the value's bytes.
#[derive(Clone)]
pub struct ValueBuf {
    ty: u8,
    data: Vec<u8>,
}

impl ValueBuf {
    /// A value from its type byte and the value's bytes.
    #[inline]
    pub fn from_parts(ty: u8, data: Vec<u8>) -> ValueBuf {
        ValueBuf { ty, data }
    }

    /// The BSON type byte.
    #[inline]
    pub fn type_byte(&self) -> u8 {
        self.ty
    }

    /// The value's bytes, without type and name.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Borrowed.
    #[inline]
    pub fn as_raw(&self) -> RawValue<'_> {
        RawValue::decode(self.ty, &self.data)
    }

    /// Memory it holds, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.data.capacity()
    }
}

impl From<RawValue<'_>> for ValueBuf {
    fn from(value: RawValue<'_>) -> ValueBuf {
        value.to_owned()
    }
}

impl PartialEq for ValueBuf {
    /// Same type and same bytes.
    fn eq(&self, other: &ValueBuf) -> bool {
        self.ty == other.ty && self.data == other.data
    }
}

impl fmt::Debug for ValueBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_raw().fmt(f)
    }
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

#[cfg(test)]
mod tests {
    use crate::{DocBuilder, RawValue};

    /// Names of all lengths, that begin alike, with and without bytes behind them.
    #[test]
    fn elements_are_found_by_their_names() {
        let long = "abcdefghijklmnopqrstuvwxyz";
        for last in [RawValue::Null, RawValue::Bool(true), RawValue::Int64(7), RawValue::Int32(0)] {
            let mut doc = DocBuilder::new();
            for len in (0..long.len()).rev() {
                doc.append(&long[..len], len as i32);
            }
            doc.append("abcdefgX", -1).append("é", -2).append("z", last);
            let doc = doc.finish();
            let doc = doc.as_doc();
            for len in 0..long.len() {
                assert_eq!(doc.get(&long[..len]), Some(RawValue::Int32(len as i32)), "{len}");
                let element = doc.get_element(&long[..len]).unwrap();
                assert_eq!(element.name_bytes(), &long.as_bytes()[..len]);
            }
            assert_eq!(doc.get("abcdefgX"), Some(RawValue::Int32(-1)));
            assert_eq!(doc.get("é"), Some(RawValue::Int32(-2)));
            assert_eq!(doc.get("z"), Some(last));
            for absent in
                ["b", "abcdefgh\u{e9}", "zz", long, "abcdefgXY", "z\0", "\0", "abcdefghi\0j"]
            {
                assert_eq!(doc.get(absent), None, "{absent}");
            }
            // What was never a name must not run into the value behind one.
            assert_eq!(doc.get("z\0\0\0"), None);
        }
    }

    #[test]
    fn broken_documents_end() {
        let mut doc = DocBuilder::new();
        doc.append("a", 1).append("text", "x").append("b", 2);
        let good = doc.finish().into_bytes();
        for at in 4..good.len() - 1 {
            for byte in [0, 1, 2, 5, 0x7F, 0xFF] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                let doc = super::RawDoc::new(&bytes).unwrap();
                for name in ["a", "text", "b", "c", "abcdefghijk"] {
                    let found = doc.iter().find(|element| element.name_bytes() == name.as_bytes());
                    let found = found.map(|element| (element.type_byte(), element.data()));
                    let direct = doc.get_element(name);
                    let direct = direct.map(|element| (element.type_byte(), element.data()));
                    assert_eq!(direct, found, "{name} with {byte} at {at}");
                }
            }
        }
    }
}

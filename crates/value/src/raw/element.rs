//! Elements of documents.

use super::{RawIter, RawValue, ty};

/// One element; its value is decoded on access.
#[derive(Clone, Copy)]
pub struct RawElement<'a> {
    ty: u8,
    name: &'a [u8],
    data: &'a [u8],
}

impl<'a> RawElement<'a> {
    #[inline]
    pub(super) fn new(ty: u8, name: &'a [u8], data: &'a [u8]) -> RawElement<'a> {
        RawElement { ty, name, data }
    }

    /// An element that is not part of a document.
    #[inline]
    pub fn from_parts(ty: u8, name: &'a [u8], data: &'a [u8]) -> RawElement<'a> {
        RawElement { ty, name, data }
    }

    /// The first element of these bytes, and the bytes after it.
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

    /// The name as bytes, for comparison without UTF-8 validation.
    #[inline]
    pub fn name_bytes(self) -> &'a [u8] {
        self.name
    }

    /// The name; empty if it is not UTF-8.
    #[inline]
    pub fn name(self) -> &'a str {
        std::str::from_utf8(self.name).unwrap_or("")
    }

    /// Its size within a document: type, name and value.
    #[inline]
    pub fn encoded_len(self) -> usize {
        1 + self.name.len() + 1 + self.data.len()
    }

    /// The value's bytes, without type and name.
    #[inline]
    pub fn data(self) -> &'a [u8] {
        self.data
    }

    /// Decodes the value.
    #[inline]
    pub fn value(self) -> RawValue<'a> {
        // Fast paths for the most frequent types with a short decoding.
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

//! The elements of documents.

use super::{RawIter, RawValue, ty};

/// One element, its value not decoded yet.
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

    /// An element that stands in no document.
    #[inline]
    pub fn from_parts(ty: u8, name: &'a [u8], data: &'a [u8]) -> RawElement<'a> {
        RawElement { ty, name, data }
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

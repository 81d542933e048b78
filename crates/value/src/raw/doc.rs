//! Borrowed documents and arrays.

use std::fmt;

use super::length::{int32, value_len};
use super::name::{NamePattern, find_zero};
use super::{DocBuf, RawElement, RawValue};

/// A document or array in a buffer: length, elements, final zero byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawDoc<'a>(pub(super) &'a [u8]);

/// The five bytes of `{}`.
pub const EMPTY_DOC: &[u8] = &[5, 0, 0, 0, 0];

impl<'a> RawDoc<'a> {
    /// The document `{}`, which takes five bytes.
    pub const EMPTY: RawDoc<'static> = RawDoc(EMPTY_DOC);

    /// The bytes as a document, if their length and final byte are consistent. The content is not
    /// checked.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<RawDoc<'a>> {
        let framed =
            bytes.len() >= 5 && int32(bytes) as usize == bytes.len() && bytes.ends_with(&[0]);
        framed.then_some(RawDoc(bytes))
    }

    /// The document at the front of the bytes, if its length and final byte are consistent. The
    /// content is not checked.
    #[inline]
    pub fn at_front(bytes: &'a [u8]) -> Option<RawDoc<'a>> {
        if bytes.len() < 5 {
            return None;
        }
        let len = usize::try_from(int32(bytes)).ok()?;
        RawDoc::new(bytes.get(..len)?)
    }

    /// The whole document, including its length.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether it has no elements.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0.len() <= 5
    }

    /// The elements in their order.
    #[inline]
    pub fn iter(self) -> RawIter<'a> {
        RawIter { rest: self.0.get(4..self.0.len().saturating_sub(1)).unwrap_or(&[]) }
    }

    /// The elements after the first `bytes` bytes of elements.
    #[inline]
    pub fn iter_from(self, bytes: usize) -> RawIter<'a> {
        RawIter { rest: self.iter().rest.get(bytes..).unwrap_or(&[]) }
    }

    /// The first element with this name.
    pub fn get_element(self, name: &str) -> Option<RawElement<'a>> {
        let pattern = NamePattern::new(name.as_bytes())?;
        let mut rest = self.iter().rest;
        loop {
            let (&ty, after_type) = rest.split_first()?;
            let (name_len, found) = pattern.compare(after_type)?;
            let after_name = after_type.get(name_len + 1..)?;
            let len = value_len(ty, after_name)?;
            if found {
                let data = after_name.get(..len)?;
                return Some(RawElement::new(ty, &after_type[..name_len], data));
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
    pub(super) rest: &'a [u8],
}

impl<'a> RawIter<'a> {
    /// The bytes of the elements that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
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
        Some(RawElement::new(ty, name, data))
    }
}

impl fmt::Debug for RawDoc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|e| (e.name(), e.value()))).finish()
    }
}

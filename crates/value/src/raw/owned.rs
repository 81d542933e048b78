//! Owned documents and values.

use std::fmt;

use super::{EMPTY_DOC, RawDoc, RawValue};

/// An owned document: exactly the bytes of one BSON document.
#[derive(Clone, PartialEq, Eq)]
pub struct DocBuf(pub(super) Vec<u8>);

impl DocBuf {
    /// An owned copy of the document `{}`.
    pub fn empty() -> DocBuf {
        DocBuf(EMPTY_DOC.to_vec())
    }

    /// The bytes as a document, if their length and final byte are consistent. The content is not
    /// checked.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<DocBuf> {
        RawDoc::new(&bytes)?;
        Some(DocBuf(bytes))
    }

    /// The bytes of a document of the `bson` crate, for replies that are not on a hot path.
    pub fn from_bson(document: &bson::Document) -> DocBuf {
        match document.to_vec() {
            Ok(bytes) => DocBuf(bytes),
            // Encoding fails only for a key with a NUL byte, which no reply has.
            Err(error) => unreachable!("a document built by the server encodes: {error}"),
        }
    }

    /// The borrowed document.
    #[inline]
    pub fn as_doc(&self) -> RawDoc<'_> {
        RawDoc(&self.0)
    }

    /// The encoded document, with its length and its final zero.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The encoded document, without a copy.
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

    /// The borrowed value.
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

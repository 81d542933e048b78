//! A decoded message: one body document and any number of document sequences, all slices of one
//! frame.

use bytes::Bytes;
use mayfly_value::{RawDoc, raw};

use crate::{Compressor, Flags, Header};

/// A received message with validated documents.
#[derive(Clone, Debug)]
pub struct Message {
    /// The header; of a compressed message the one inside.
    pub header: Header,
    /// The flags of OP_MSG, 0 for legacy messages.
    pub flags: Flags,
    /// The command, or the reply.
    pub body: Bytes,
    /// Document sequences in their order (section kind 1).
    pub sequences: Vec<Sequence>,
    /// The compression of the message, which the reply uses too.
    pub compressor: Option<Compressor>,
    /// The database of an OP_QUERY, which OP_MSG carries as `$db`.
    pub legacy_db: Option<String>,
    /// Size of the message on the wire.
    pub wire_bytes: usize,
}

impl Message {
    /// The body as a document.
    pub fn document(&self) -> RawDoc<'_> {
        RawDoc::new(&self.body).unwrap_or(RawDoc::EMPTY)
    }

    /// How to reply to this message.
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo {
            request_id: self.header.request_id,
            legacy: self.legacy_db.is_some(),
            compressor: self.compressor,
            checksum: self.flags.contains(Flags::CHECKSUM_PRESENT),
            is_expected: !self.flags.contains(Flags::MORE_TO_COME),
        }
    }
}

/// Documents of one field of the command, sent outside the body.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The field, for example `documents`.
    pub name: String,
    /// The concatenated documents.
    pub documents: Bytes,
    /// Number of documents.
    pub count: usize,
}

impl Sequence {
    /// The documents in their order.
    pub fn iter(&self) -> impl Iterator<Item = RawDoc<'_>> {
        let mut rest: &[u8] = &self.documents;
        std::iter::from_fn(move || {
            let document = RawDoc::at_front(rest)?;
            rest = &rest[document.as_bytes().len()..];
            Some(document)
        })
    }
}

/// How to reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The request's id.
    pub request_id: i32,
    /// Whether to use OP_REPLY.
    pub legacy: bool,
    /// The compression of the reply.
    pub compressor: Option<Compressor>,
    /// Whether to add a checksum.
    pub checksum: bool,
    /// Whether the client expects a reply.
    pub is_expected: bool,
}

/// The bytes of `{}` as a body.
pub(crate) fn empty_body() -> Bytes {
    Bytes::from_static(raw::EMPTY_DOC)
}

//! A decoded message: one body document and any number of document sequences, all slices of one frame.

use bytes::Bytes;
use mayfly_value::{RawDoc, raw};

use crate::{Compressor, Flags, Header};

/// A message as it came in, its documents checked.
#[derive(Clone, Debug)]
pub struct Message {
    /// The header; for a compressed message that of the message inside it.
    pub header: Header,
    /// OP_MSG's flags, 0 for the legacy kinds.
    pub flags: Flags,
    /// The command, or the reply.
    pub body: Bytes,
    /// Document sequences in their order (section kind 1).
    pub sequences: Vec<Sequence>,
    /// How it was compressed; the reply is compressed likewise.
    pub compressor: Option<Compressor>,
    /// The database of an OP_QUERY, which OP_MSG carries as `$db`.
    pub legacy_db: Option<String>,
    /// Bytes it took on the wire.
    pub wire_bytes: usize,
}

impl Message {
    /// The body as a document.
    pub fn document(&self) -> RawDoc<'_> {
        RawDoc::new(&self.body).unwrap_or(RawDoc::EMPTY)
    }

    /// Whom to answer, and how.
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo {
            request_id: self.header.request_id,
            legacy: self.legacy_db.is_some(),
            compressor: self.compressor,
            checksum: self.flags.contains(Flags::CHECKSUM_PRESENT),
            wanted: !self.flags.contains(Flags::MORE_TO_COME),
        }
    }
}

/// Documents that belong to one field of the command, sent behind it.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The field, for example `documents`.
    pub name: String,
    /// The documents one after the other.
    pub documents: Bytes,
    /// How many they are.
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

/// Whom to answer, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The request's id.
    pub request_id: i32,
    /// Answer with OP_REPLY.
    pub legacy: bool,
    /// Compress the answer like this.
    pub compressor: Option<Compressor>,
    /// Sign the answer with a checksum.
    pub checksum: bool,
    /// Whether the client wants an answer at all.
    pub wanted: bool,
}

/// The bytes of `{}` as a body.
pub(crate) fn empty_body() -> Bytes {
    Bytes::from_static(raw::EMPTY_DOC)
}

//! The codec: cuts frames off a buffer and decodes messages from them.
//!
//! Partial input stays in the caller's buffer; the codec has no state between calls. The read
//! buffer grows with the bytes received, not with the length announced in a header.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use crate::header::{Flags, HEADER_BYTES, Header, opcode};
use crate::message::ReplyTo;
use crate::{Compressor, Message, WireError, WireResult, compress, legacy, msg};

/// Buffer space reserved at a time while a long message arrives.
const GROW_BYTES: usize = 64 * 1024;

/// Decodes messages of clients and servers; encodes [`Outgoing`].
#[derive(Debug, Default)]
pub struct Codec;

/// A message sent by a client: tests, the load generator.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// `requestID`, chosen by the sender.
    pub request_id: i32,
    /// `responseTo`: the id of the request that this answers, 0 for requests.
    pub response_to: i32,
    /// Flags; with the checksum bit the codec appends the checksum.
    pub flags: Flags,
    /// The body document.
    pub body: &'a [u8],
    /// Document sequences: name, concatenated documents.
    pub sequences: &'a [(&'a str, &'a [u8])],
    /// Compresses the message.
    pub compressor: Option<Compressor>,
}

impl Codec {
    /// The length of the message with this beginning, including the header; `None` while it is
    /// unknown or invalid.
    pub fn announced(bytes: &[u8]) -> Option<usize> {
        Header::peek(bytes).ok().flatten().map(|header| header.length)
    }
}

impl Decoder for Codec {
    type Item = Message;
    type Error = WireError;

    fn decode(&mut self, src: &mut BytesMut) -> WireResult<Option<Message>> {
        let Some(header) = Header::peek(src)? else {
            src.reserve(HEADER_BYTES.saturating_sub(src.len()));
            return Ok(None);
        };
        if src.len() < header.length {
            let missing = header.length - src.len();
            src.reserve(missing.min(src.len().max(GROW_BYTES)));
            return Ok(None);
        }
        let frame = src.split_to(header.length).freeze();
        decode_frame(header, &frame).map(Some)
    }
}

fn decode_frame(header: Header, frame: &Bytes) -> WireResult<Message> {
    let wire_bytes = frame.len();
    if header.opcode != opcode::COMPRESSED {
        return decode_plain(header, frame, None, wire_bytes);
    }
    let (plain, compressor) = compress::inflate(header, frame)?;
    match Header::peek(&plain)? {
        Some(inner) => decode_plain(inner, &plain, Some(compressor), wire_bytes),
        None => Err(WireError::fatal("compressed message is too short")),
    }
}

fn decode_plain(
    header: Header,
    frame: &Bytes,
    compressor: Option<Compressor>,
    wire_bytes: usize,
) -> WireResult<Message> {
    let mut message = Message {
        header,
        flags: Flags::empty(),
        body: crate::message::empty_body(),
        sequences: Vec::new(),
        compressor,
        legacy_db: None,
        wire_bytes,
    };
    let parsed = match header.opcode {
        opcode::MSG => {
            message.flags = msg::flags(frame)?;
            msg::sections(frame, message.flags).map(|sections| {
                message.body = sections.body;
                message.sequences = sections.sequences;
            })
        }
        opcode::QUERY => {
            message.legacy_db = Some(String::new());
            legacy::query(frame).map(|(db, body)| {
                message.legacy_db = Some(db);
                message.body = body;
            })
        }
        opcode::REPLY => legacy::reply(frame).map(|body| message.body = body),
        other => return Err(WireError::fatal(format!("opcode {other} is not supported"))),
    };
    match parsed {
        Ok(()) => Ok(message),
        Err(error) => {
            // An error has no checksum, which is optional: it would sign bytes that may have been
            // damaged before.
            let reply_to = ReplyTo { checksum: false, ..message.reply_to() };
            Err(WireError::Recoverable { reply_to, error })
        }
    }
}

impl Encoder<Outgoing<'_>> for Codec {
    type Error = WireError;

    fn encode(&mut self, item: Outgoing<'_>, dst: &mut BytesMut) -> WireResult<()> {
        let header = Header {
            length: 0,
            request_id: item.request_id,
            response_to: item.response_to,
            opcode: opcode::MSG,
        };
        let mut out = Vec::with_capacity(item.body.len() + 64);
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&item.flags.bits().to_le_bytes());
        out.push(0);
        out.extend_from_slice(item.body);
        for (name, documents) in item.sequences {
            out.push(1);
            let size = 4 + name.len() + 1 + documents.len();
            out.extend_from_slice(&(size as u32).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            out.extend_from_slice(documents);
        }
        seal(&mut out, 0, item.flags.contains(Flags::CHECKSUM_PRESENT));
        if let Some(compressor) = item.compressor {
            let failed = |error: mayfly_base::Error| WireError::fatal(error.message());
            compress::deflate(compressor, &mut out, 0).map_err(failed)?;
        }
        dst.extend_from_slice(&out);
        Ok(())
    }
}

/// Sets the length of the frame that begins at `start`, and appends the checksum.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, checksum: bool) {
    let tail = if checksum { 4 } else { 0 };
    let length = (out.len() - start + tail) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    if checksum {
        let crc = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }
}

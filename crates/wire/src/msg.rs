//! OP_MSG: flags, sections, checksum.
//!
//! ```text
//! | header | flags u32 | section... | CRC-32C u32, when flag 0 is set |
//! section kind 0: | 0 | document |                                  exactly one
//! section kind 1: | 1 | size i32 | name cstring | document... |     size includes itself
//! ```

use bytes::Bytes;
use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::validate;

use crate::header::{Flags, HEADER_BYTES, int32_at};
use crate::message::{Sequence, empty_body};
use crate::{WireError, WireResult};

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;
/// Most document sequences in one message; `bulkWrite` needs two.
const MAX_SEQUENCES: usize = 8;

/// The content of an OP_MSG.
pub(crate) struct Sections {
    pub(crate) body: Bytes,
    pub(crate) sequences: Vec<Sequence>,
}

/// The flags of an OP_MSG frame.
pub(crate) fn flags(frame: &[u8]) -> WireResult<Flags> {
    let bits =
        int32_at(frame, HEADER_BYTES).ok_or_else(|| WireError::fatal("OP_MSG is too short"))?;
    let flags = Flags::from_bits_retain(bits as u32);
    if flags.unknown_required() {
        return Err(WireError::fatal(format!("OP_MSG has illegal flags {:#x}", flags.bits())));
    }
    Ok(flags)
}

/// Decodes the sections of an OP_MSG frame and validates every document.
pub(crate) fn sections(frame: &Bytes, flags: Flags) -> Result<Sections> {
    let mut end = frame.len();
    if flags.contains(Flags::CHECKSUM_PRESENT) {
        end = check_checksum(frame)?;
    }
    let mut at = HEADER_BYTES + 4;
    let mut body = None;
    let mut sequences: Vec<Sequence> = Vec::new();
    while at < end {
        let kind = frame[at];
        at += 1;
        match kind {
            0 => {
                let document = document_at(frame, at, end)?;
                at += document.len();
                if body.replace(document).is_some() {
                    return Err(located(40430, "Multiple body sections in message"));
                }
            }
            1 => {
                let (sequence, next) = sequence_at(frame, at, end)?;
                at = next;
                if sequences.iter().any(|other| other.name == sequence.name) {
                    let text = format!("Duplicate document sequence: {}", sequence.name);
                    return Err(located(40431, text));
                }
                if sequences.len() == MAX_SEQUENCES {
                    let code = ErrorCode::TooManyDocumentSequences;
                    return Err(Error::new(code, "Too many document sequences in OP_MSG"));
                }
                sequences.push(sequence);
            }
            other => return Err(located(40432, format!("Unknown section kind {other}"))),
        }
    }
    let body = body.ok_or_else(|| located(40587, "OP_MSG messages must have a body"))?;
    Ok(Sections { body, sequences })
}

/// Verifies the checksum; returns the end of the sections.
fn check_checksum(frame: &[u8]) -> Result<usize> {
    let end = frame.len() - CHECKSUM_BYTES;
    let stated = int32_at(frame, end).map(|bits| bits as u32);
    if end < HEADER_BYTES + 4 || stated != Some(crc32c::crc32c(&frame[..end])) {
        let text = "OP_MSG checksum does not match contents";
        return Err(Error::new(ErrorCode::ChecksumMismatch, text));
    }
    Ok(end)
}

fn sequence_at(frame: &Bytes, at: usize, end: usize) -> Result<(Sequence, usize)> {
    let malformed = || Error::new(ErrorCode::InvalidBSON, "malformed document sequence in OP_MSG");
    let size = int32_at(frame, at).and_then(|size| usize::try_from(size).ok());
    let next = size.and_then(|size| at.checked_add(size)).filter(|next| *next <= end);
    let next = next.ok_or_else(malformed)?;
    let content = frame.get(at + 4..next).ok_or_else(malformed)?;
    let name_len = content.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let name = std::str::from_utf8(&content[..name_len]).map_err(|_| malformed())?.to_owned();
    let first = at + 4 + name_len + 1;
    let mut count = 0;
    let mut place = first;
    while place < next {
        place += document_at(frame, place, next)?.len();
        count += 1;
    }
    Ok((Sequence { name, documents: frame.slice(first..next), count }, next))
}

/// The document at this offset, validated.
pub(crate) fn document_at(frame: &Bytes, at: usize, end: usize) -> Result<Bytes> {
    let size = int32_at(&frame[..end], at).unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(0);
    if size < empty_body().len() || size > end - at {
        let text = format!("invalid BSON: document size {size} does not fit into the message");
        return Err(Error::new(ErrorCode::InvalidBSON, text));
    }
    if size > limits::MAX_WIRE_DOCUMENT_BYTES {
        let most = limits::MAX_WIRE_DOCUMENT_BYTES;
        let text = format!("BSONObj size: {size} is invalid. Size must be between 0 and {most}");
        return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
    }
    validate(&frame[at..at + size], limits::MAX_COMMAND_DEPTH)?;
    Ok(frame.slice(at..at + size))
}

fn located(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

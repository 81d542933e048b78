//! A segment of the log as bytes.
//!
//! ```text
//! 50 2a 4d 18      a skippable frame of zstd begins, so that `zstd -d` gives the entries alone
//! u32 LE           length of the rest of the frame
//! 32 bytes         SHA-256 of all bytes after it
//! JSON             the header: format, store, timeline, from, to, previous, bytes
//! ...              a frame of zstd with the entries
//! ```
//!
//! The entries are the caller's; nothing here reads them.

use serde::{Deserialize, Serialize};

use super::{SegmentLink, SegmentName};
use crate::error::{Error, Result};
use crate::names::{Checksum, ClusterTime, StoreId, Timeline};
use crate::sealed::FORMAT;

/// Largest segment before compression, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 64 << 20;
/// Largest segment as an object, in bytes: what cannot be compressed grows a little.
pub(super) const MAX_OBJECT_BYTES: u64 = MAX_SEGMENT_BYTES + (1 << 20);
/// Bytes at the start of an object that contain the whole header.
pub(super) const MAX_HEADER_BYTES: u64 = 4096;

const SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
const CHECKSUM_AT: usize = 8;
const HEADER_AT: usize = 40;
const LEVEL: i32 = 3;

/// The description of a segment inside of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    format: u64,
    store: StoreId,
    timeline: Timeline,
    from: ClusterTime,
    to: ClusterTime,
    pub(super) previous: Option<SegmentLink>,
    /// Bytes of the entries.
    bytes: u64,
}

/// A header that was read, and the checksum that stands before it.
pub(super) struct Opened {
    pub(super) header: Header,
    pub(super) sha256: Checksum,
    /// Where the entries begin.
    end: usize,
}

/// Encodes a segment. Returns its bytes and its checksum.
pub(super) fn encode(
    store: StoreId,
    name: &SegmentName,
    previous: Option<SegmentLink>,
    entries: &[u8],
) -> Result<(Vec<u8>, Checksum)> {
    let (object, size) = (name.object(), entries.len() as u64);
    if size > MAX_SEGMENT_BYTES {
        return Err(Error::TooLarge { what: object, size, limit: MAX_SEGMENT_BYTES });
    }
    let SegmentName { timeline, from, to } = name.clone();
    let header = Header { format: FORMAT, store, timeline, from, to, previous, bytes: size };
    let failed = |error: &dyn std::fmt::Display| Error::damaged(&object, error);
    let header = serde_json::to_vec(&header).map_err(|error| failed(&error))?;
    let entries = zstd::bulk::compress(entries, LEVEL).map_err(|error| failed(&error))?;
    let mut bytes = Vec::with_capacity(HEADER_AT + header.len() + entries.len());
    bytes.extend_from_slice(&SKIPPABLE);
    let length = (HEADER_AT - CHECKSUM_AT + header.len()) as u32;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0; HEADER_AT - CHECKSUM_AT]);
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&entries);
    let checksum = Checksum::of(&bytes[HEADER_AT..]);
    bytes[CHECKSUM_AT..HEADER_AT].copy_from_slice(checksum.as_bytes());
    Ok((bytes, checksum))
}

/// Reads the header from the first bytes of an object, and checks that it is that of this segment.
pub(super) fn open(store: StoreId, name: &SegmentName, bytes: &[u8]) -> Result<Opened> {
    let object = name.object();
    let (json, sha256, end) = parse(bytes)
        .ok_or_else(|| Error::damaged(&object, "it does not begin with the header of a segment"))?;
    let header: Header =
        serde_json::from_slice(json).map_err(|error| Error::damaged(&object, error))?;
    if header.format > FORMAT {
        return Err(Error::NewerFormat { object, format: header.format });
    }
    if header.store != store {
        return Err(Error::OtherStore { found: header.store, expected: store });
    }
    let is_named =
        (&header.timeline, header.from, header.to) == (&name.timeline, name.from, name.to);
    match is_named {
        true => Ok(Opened { header, sha256, end }),
        false => Err(Error::damaged(&object, "its header is that of another segment")),
    }
}

/// The header's JSON, the checksum, and where the entries begin.
fn parse(bytes: &[u8]) -> Option<(&[u8], Checksum, usize)> {
    let rest = bytes.strip_prefix(&SKIPPABLE)?;
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    let end = usize::try_from(length).ok()?.checked_add(CHECKSUM_AT)?;
    let checksum = bytes.get(CHECKSUM_AT..HEADER_AT)?.try_into().ok()?;
    Some((bytes.get(HEADER_AT..end)?, Checksum::from_bytes(checksum), end))
}

/// Reads a whole segment: its header, its checksum, and the entries.
pub(super) fn decode(
    store: StoreId,
    name: &SegmentName,
    bytes: &[u8],
) -> Result<(Opened, Vec<u8>)> {
    let object = name.object();
    // The checksum comes first: the text of an error for a damaged header would mislead.
    let (_, sha256, _) = parse(bytes)
        .ok_or_else(|| Error::damaged(&object, "it does not begin with the header of a segment"))?;
    if sha256 != Checksum::of(&bytes[HEADER_AT..]) {
        return Err(Error::damaged(&object, "its checksum does not match its content"));
    }
    let opened = open(store, name, bytes)?;
    let size = opened.header.bytes;
    if size > MAX_SEGMENT_BYTES {
        return Err(Error::TooLarge { what: object, size, limit: MAX_SEGMENT_BYTES });
    }
    let entries = zstd::bulk::decompress(&bytes[opened.end..], size as usize)
        .map_err(|error| Error::damaged(&object, error))?;
    match entries.len() as u64 == size {
        true => Ok((opened, entries)),
        false => Err(Error::damaged(&object, "it has fewer entries than its header says")),
    }
}

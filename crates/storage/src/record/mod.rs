//! The bottom floor: what a record is, how keys and values lie in the byte store, and how an engine's errors become a server's.
//!
//! It knows no collection, no index and no policy.

pub(crate) mod error;
pub(crate) mod layout;
pub(crate) mod signal;
pub(crate) mod storable;

use mayfly_value::RawDoc;

pub use layout::{IdKey, RecordKey, id_key, record_id};

/// A document as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Its bytes.
    pub document: RawDoc<'a>,
    /// When it was written last, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The moment a question is asked at, and by which rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Wall time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The parameter `lastModifiedTTL`.
    pub last_modified: bool,
}

/// A random UUID, version 4.
pub(crate) fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

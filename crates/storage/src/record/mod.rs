//! The bottom floor: what a record is, how keys and values lie in the byte store, and how an engine's errors become a server's.
//!
//! It knows no collection, no index and no policy.

pub(crate) mod error;
pub(crate) mod kept;
pub(crate) mod layout;
pub(crate) mod signal;
pub(crate) mod storable;

use mayfly_value::{DocBuf, RawDoc};

pub use layout::{IdKey, RecordKey, id_key, record_id};

/// A document as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Its bytes.
    pub document: RawDoc<'a>,
    /// When it was written last, in milliseconds since 1970.
    pub modified_ms: i64,
    /// The timestamp of the log's entry that refers to this version, 0 when the transaction at hand wrote it; nothing when none
    /// does.
    pub logged_at: Option<u64>,
}

/// A document as it was read, with what its record says of it: what a unit is given that changes it.
#[derive(Clone, Debug)]
pub struct StoredDocument {
    document: DocBuf,
    modified_ms: i64,
    logged_at: Option<u64>,
}

impl StoredDocument {
    /// Its bytes.
    pub fn as_doc(&self) -> RawDoc<'_> {
        self.document.as_doc()
    }

    /// The document alone.
    pub fn into_document(self) -> DocBuf {
        self.document
    }

    pub(crate) fn record(&self) -> Record<'_> {
        let StoredDocument { document, modified_ms, logged_at } = self;
        Record { document: document.as_doc(), modified_ms: *modified_ms, logged_at: *logged_at }
    }
}

impl Record<'_> {
    /// A copy.
    pub(crate) fn to_stored(self) -> StoredDocument {
        let Record { document, modified_ms, logged_at } = self;
        StoredDocument { document: document.to_owned(), modified_ms, logged_at }
    }
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

//! The lowest module: records, the layout of keys and values in the byte store, and the conversion
//! of an engine's errors.
//!
//! It knows no collection, no index and no policy.

pub(crate) mod error;
pub(crate) mod kept;
pub(crate) mod layout;
pub(crate) mod signal;
pub(crate) mod storable;

use mayfly_value::{DocBuf, RawDoc};

pub use kept::RetiredTally;
pub use layout::{IdKey, RecordKey, id_key, record_id};

#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub document: RawDoc<'a>,
    /// When it was last written, in milliseconds since 1970.
    pub modified_ms: i64,
    /// The timestamp of the log's entry that refers to this version; 0 when the current transaction
    /// wrote it, `None` when no entry refers to it.
    pub logged_at: Option<u64>,
}

/// A document with its record's header, as a write unit needs it to change the document.
#[derive(Clone, Debug)]
pub struct StoredDocument {
    document: DocBuf,
    modified_ms: i64,
    logged_at: Option<u64>,
}

impl StoredDocument {
    /// The document's bytes.
    pub fn as_doc(&self) -> RawDoc<'_> {
        self.document.as_doc()
    }

    /// The document without its header.
    pub fn into_document(self) -> DocBuf {
        self.document
    }

    pub(crate) fn record(&self) -> Record<'_> {
        let StoredDocument { document, modified_ms, logged_at } = self;
        Record { document: document.as_doc(), modified_ms: *modified_ms, logged_at: *logged_at }
    }
}

impl Record<'_> {
    /// Copies the record.
    pub(crate) fn to_stored(self) -> StoredDocument {
        let Record { document, modified_ms, logged_at } = self;
        StoredDocument { document: document.to_owned(), modified_ms, logged_at }
    }
}

/// The time, and the rules, by which a document is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Wall time in milliseconds since 1970.
    pub now_ms: i64,
    /// The parameter `lastModifiedTTL`.
    pub last_modified: bool,
}

/// A random UUID, version 4.
pub fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

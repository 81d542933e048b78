//! The operation log: what each write unit did, in its own transaction.
//!
//! A unit with one operation writes it as it is; a unit with several writes one `applyOps` entry. Entries have the
//! reference's field names. Timestamps are handed out shortly before the commit, strictly ascending. Of collections whose
//! change streams show documents before and after a change, an entry has them: `preImage`, `postImage`.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::policy::value::seconds_value;
use transactions::Parts;

mod apply;
mod clock;
mod diff;
mod follow;
mod log;
mod read;
mod transactions;

pub use apply::apply_delta;
pub(crate) use clock::OplogClock;
pub(crate) use diff::delta;
pub use log::Oplog;
pub use read::{LogEnd, LogRange, LogSizes, OPLOG};

/// The operations of one unit, in the entry that the log will hold.
///
/// A first operation stands in the entry itself; when a second one comes, both become items of `applyOps`.
pub(crate) struct OplogBatch {
    entry: Option<DocBuilder>,
    count: usize,
    /// About how long the entry will be.
    expected: usize,
    /// Of a transaction of several statements: `applyOps` for a single operation, too, and another part where one is full.
    transaction: Option<Parts>,
}

/// How an update came to its new document: the log says it, because those who follow it are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStyle {
    /// By a whole document; the log holds it.
    Replacement,
    /// By operators; the log holds what they changed.
    Operators,
    /// Binary values grew at their end; the log holds what came. Nobody follows such a collection by its documents.
    Growth,
}

/// What expired a document, for the entry of its deletion.
#[derive(Clone, Copy)]
pub(crate) struct ExpiredBy<'a> {
    pub(crate) index: &'a str,
    pub(crate) expire_after_secs: i64,
}

/// Timestamp, term, version, wall time.
const ENTRY_TAIL_BYTES: usize = 64;
/// What is reserved on a guess, at most.
const RESERVED_MAX: usize = 4 << 20;
/// An entry of a transaction takes no further operation beyond this; one operation may be longer.
const PART_BYTES: usize = 16 << 20;

impl OplogBatch {
    pub(crate) fn new() -> OplogBatch {
        OplogBatch { entry: None, count: 0, expected: 0, transaction: None }
    }

    /// That of a transaction of several statements.
    pub(crate) fn of_transaction(lsid: RawDoc<'_>, txn_number: i64) -> OplogBatch {
        OplogBatch { transaction: Some(Parts::new(lsid, txn_number)), ..OplogBatch::new() }
    }

    /// How many operations there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// About so many bytes will come.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.expected = bytes.min(RESERVED_MAX);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an operation; its own fields are written by `fields`. `room` is about how long they are.
    fn add(
        &mut self,
        op: &str,
        ns: &str,
        uuid: &[u8; 16],
        room: usize,
        fields: impl FnOnce(&mut DocBuilder),
    ) {
        if let (Some(parts), Some(entry)) = (&mut self.transaction, &self.entry)
            && entry.len() + room + ns.len() + 2 * ENTRY_TAIL_BYTES > PART_BYTES
        {
            parts.full.extend(self.entry.take());
        }
        let (entry, nested) = match (self.entry.take(), &self.transaction) {
            (Some(entry), Some(_)) => (entry, true),
            (None, Some(parts)) => (parts.begin(room), true),
            (None, None) => {
                let room = room + ns.len() + 2 * ENTRY_TAIL_BYTES;
                (DocBuilder::in_buffer(Vec::with_capacity(room)), false)
            }
            (Some(only), None) if self.count == 1 => {
                let only = only.finish();
                let room = 2 * (only.as_bytes().len() + room) + 256;
                let room = room.max(self.expected + ENTRY_TAIL_BYTES);
                let mut entry = DocBuilder::in_buffer(Vec::with_capacity(room));
                entry.append("op", "c").append("ns", "admin.$cmd").start_document("o");
                entry.start_array("applyOps").push(only.as_doc());
                (entry, true)
            }
            (Some(entry), None) => (entry, true),
        };
        let entry = self.entry.insert(entry);
        if nested {
            entry.push_document();
        }
        entry.append("op", op).append("ns", ns);
        // A command on a database is about no collection.
        if *uuid != [0; 16] {
            entry.append("ui", RawValue::Binary { subtype: 4, bytes: uuid });
        }
        fields(entry);
        if nested {
            entry.end();
        }
        self.count += 1;
    }

    pub(crate) fn insert(&mut self, ns: &str, uuid: &[u8; 16], document: RawDoc<'_>) {
        self.add("i", ns, uuid, document.as_bytes().len(), |entry| {
            entry.append("o", document);
        });
    }

    pub(crate) fn update(
        &mut self,
        ns: &str,
        uuid: &[u8; 16],
        old: RawDoc<'_>,
        new: RawDoc<'_>,
        delta: Option<&DocBuf>,
        images: bool,
    ) {
        let id = new.get("_id").unwrap_or(RawValue::Null);
        let room = delta.map_or(new.as_bytes().len(), |delta| delta.as_bytes().len());
        self.add("u", ns, uuid, room, |entry| {
            match delta {
                Some(delta) => {
                    entry.start_document("o").append("$v", 2).append("diff", delta).end();
                }
                None => {
                    entry.append("o", new);
                }
            }
            entry.start_document("o2").append("_id", id).end();
            if images {
                entry.append("preImage", old);
                if delta.is_some() {
                    entry.append("postImage", new);
                }
            }
        });
    }

    pub(crate) fn delete(
        &mut self,
        ns: &str,
        uuid: &[u8; 16],
        id: RawValue<'_>,
        expired: Option<ExpiredBy<'_>>,
        image: Option<RawDoc<'_>>,
    ) {
        self.add("d", ns, uuid, 0, |entry| {
            entry.start_document("o").append("_id", id).end();
            if let Some(expired) = expired {
                entry.start_document("ttl").append("index", expired.index);
                let seconds = seconds_value(expired.expire_after_secs);
                entry.append("expireAfterSeconds", seconds).end();
            }
            if let Some(image) = image {
                entry.append("preImage", image);
            }
        });
    }

    pub(crate) fn command(&mut self, ns: &str, uuid: &[u8; 16], command: RawDoc<'_>) {
        self.add("c", ns, uuid, command.as_bytes().len(), |entry| {
            entry.append("o", command);
        });
    }

    /// Nothing was done, but the log has an entry.
    pub(crate) fn note(&mut self, message: &str) {
        self.add("n", "", &[0; 16], message.len(), |entry| {
            entry.start_document("o").append("msg", message).end();
        });
    }

    /// The same with what a client has to say.
    pub(crate) fn note_document(&mut self, note: RawDoc<'_>) {
        self.add("n", "", &[0; 16], note.as_bytes().len(), |entry| {
            entry.append("o", note);
        });
    }

    /// The entry under this timestamp.
    pub(crate) fn finish(&mut self, timestamp: u64, now_ms: i64) -> DocBuf {
        let mut entry = self.entry.take().unwrap_or_default();
        if self.count > 1 {
            // The array and `o`.
            entry.end().end();
        }
        entry.append("ts", RawValue::Timestamp(timestamp)).append("t", 1i64).append("v", 2i64);
        entry.append("wall", RawValue::Date(now_ms));
        self.count = 0;
        entry.finish()
    }
}

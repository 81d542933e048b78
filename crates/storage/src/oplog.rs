//! The operation log: what each write unit did, in its own transaction.
//!
//! A unit with one operation writes it as it is; a unit with several writes one `applyOps` entry. Entries have the
//! reference's field names. Timestamps are handed out shortly before the commit, strictly ascending.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// Source of timestamps: seconds in the high half, increment in the low half.
pub(crate) struct OplogClock(AtomicU64);

impl OplogClock {
    /// Goes on after this timestamp.
    pub(crate) fn after(last: u64) -> OplogClock {
        OplogClock(AtomicU64::new(last))
    }

    /// A timestamp greater than all before it, at or after this wall time.
    pub(crate) fn next(&self, now_ms: i64) -> u64 {
        let floor = (u64::try_from(now_ms / 1000).unwrap_or(0)) << 32;
        let update = |last: u64| Some(last.max(floor) + 1);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, update) {
            Ok(last) | Err(last) => last.max(floor) + 1,
        }
    }
}

/// The operations of one unit, collected as array items.
pub(crate) struct OplogBatch {
    builder: Option<DocBuilder>,
    count: usize,
}

/// What expired a document, for the entry of its deletion.
#[derive(Clone, Copy)]
pub(crate) struct ExpiredBy<'a> {
    pub(crate) index: &'a str,
    pub(crate) expire_after_secs: i32,
}

impl OplogBatch {
    pub(crate) fn new() -> OplogBatch {
        OplogBatch { builder: None, count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn open(&mut self, op: &str, ns: &str, uuid: &[u8; 16]) -> &mut DocBuilder {
        self.count += 1;
        let builder = self.builder.get_or_insert_with(DocBuilder::new_array);
        builder.push_document();
        builder.append("op", op).append("ns", ns);
        builder.append("ui", RawValue::Binary { subtype: 4, bytes: uuid })
    }

    pub(crate) fn insert(&mut self, ns: &str, uuid: &[u8; 16], document: RawDoc<'_>) {
        self.open("i", ns, uuid).append("o", document).end();
    }

    pub(crate) fn update(&mut self, ns: &str, uuid: &[u8; 16], id: RawValue<'_>, new: RawDoc<'_>) {
        let builder = self.open("u", ns, uuid);
        builder.append("o", new).start_document("o2").append("_id", id).end().end();
    }

    pub(crate) fn delete(
        &mut self,
        ns: &str,
        uuid: &[u8; 16],
        id: RawValue<'_>,
        expired: Option<ExpiredBy<'_>>,
    ) {
        let builder = self.open("d", ns, uuid);
        builder.start_document("o").append("_id", id).end();
        if let Some(expired) = expired {
            builder.start_document("ttl");
            builder.append("index", expired.index);
            builder.append("expireAfterSeconds", expired.expire_after_secs).end();
        }
        builder.end();
    }

    pub(crate) fn command(&mut self, ns: &str, uuid: &[u8; 16], command: RawDoc<'_>) {
        self.open("c", ns, uuid).append("o", command).end();
    }

    /// The entry under this timestamp.
    pub(crate) fn finish(&mut self, timestamp: u64, now_ms: i64) -> DocBuf {
        let items = self.builder.take().unwrap_or_else(DocBuilder::new_array).finish();
        let mut entry = DocBuilder::new();
        let first = items.as_doc().iter().next().and_then(|item| item.value().as_document());
        match first {
            Some(only) if self.count == 1 => {
                entry.append_all(only);
            }
            _ => {
                entry.append("op", "c").append("ns", "admin.$cmd").start_document("o");
                entry.append("applyOps", RawValue::Array(items.as_doc())).end();
            }
        }
        entry.append("ts", RawValue::Timestamp(timestamp)).append("t", 1i64).append("v", 2i64);
        entry.append("wall", RawValue::Date(now_ms));
        self.count = 0;
        entry.finish()
    }
}

//! Builds the log entry of a write unit, operation by operation.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::gaps::{Gaps, Version};
use super::operation::{ExpiredBy, LoggedCommand, LoggedObject, LoggedUpdate, RecordInLog};
use super::runs::{DeletionRun, ITEM_BYTES, InsertRun};
use super::stored::{self, Packed, ReferenceBuilder, StoredEntry};
use super::transactions::Parts;

/// Builds the entry for the operations of one unit.
///
/// A first operation is the entry itself; when a second one comes, both become items of `applyOps`.
/// Consecutive inserts into one collection whose documents are in records become one item, and so
/// do consecutive deletions.
pub(crate) struct OplogBatch {
    entry: Option<DocBuilder>,
    /// The entry has an array `applyOps`.
    nested: bool,
    /// The items of the entry, and the number of operations in them.
    items: usize,
    operations: usize,
    /// The difference between the entry's size for readers and its stored size, in bytes.
    excess: i64,
    packed: Packed,
    /// Inserts that are not in an item yet.
    inserts: InsertRun,
    /// Deletions that are not in an item yet. At most one of the two runs has operations.
    deletions: DeletionRun,
    /// The operations of all parts and of the runs.
    pub(super) count: usize,
    repeated: RepeatedFields,
    /// The collections that commands of the entry have created or changed, by the position of the
    /// item.
    definitions: Vec<(usize, DocBuf)>,
    /// Set in a transaction of several statements, whose entries have `applyOps` even for a single
    /// operation, and are split when they are full.
    pub(super) transaction: Option<Parts>,
}

/// Encoded fields that consecutive operations share.
#[derive(Default)]
struct RepeatedFields {
    /// The type of the last operation, and its collection.
    last: (&'static str, [u8; 16]),
    /// The namespace, and the encoded first fields.
    head: Option<(String, DocBuf)>,
}

/// Room for timestamp, term, version and wall time.
const ENTRY_TAIL_BYTES: usize = 64;
/// Room for an entry of one operation, without namespace and documents: frames, names, a short
/// `_id`, and the last fields.
const ENTRY_BYTES: usize = 256;
/// The size at which a transaction's entry takes no further operation. A single operation may be
/// longer.
const PART_BYTES: usize = 16 << 20;

impl OplogBatch {
    pub(crate) fn new() -> OplogBatch {
        OplogBatch {
            entry: None,
            nested: false,
            items: 0,
            operations: 0,
            excess: 0,
            packed: Packed::default(),
            inserts: InsertRun::default(),
            deletions: DeletionRun::default(),
            count: 0,
            repeated: RepeatedFields::default(),
            definitions: Vec::new(),
            transaction: None,
        }
    }

    /// A builder for a transaction of several statements.
    pub(crate) fn of_transaction(lsid: RawDoc<'_>, txn_number: i64) -> OplogBatch {
        OplogBatch { transaction: Some(Parts::new(lsid, txn_number)), ..OplogBatch::new() }
    }

    /// The number of operations.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the current part when it has no room for another operation of this size.
    fn make_room(&mut self, bytes: usize, ns: &str) {
        let in_runs = self.inserts.logical + self.deletions.logical;
        let begun = self.entry.is_some() || in_runs > 0;
        if self.transaction.is_none() || !begun {
            return;
        }
        let stored = self.entry.as_ref().map_or(0, DocBuilder::len);
        let logical = (stored as i64 + self.excess).max(0) as usize + in_runs;
        if logical + bytes + ns.len() + 2 * ENTRY_TAIL_BYTES > PART_BYTES {
            self.end_run();
            let part = self.take_part();
            if let Some(parts) = &mut self.transaction {
                parts.full.extend(part);
            }
        }
    }

    pub(super) fn take_part(&mut self) -> Option<Part> {
        let entry = self.entry.take()?;
        (self.nested, self.items, self.operations) = (false, 0, 0);
        let (excess, packed) = (std::mem::take(&mut self.excess), std::mem::take(&mut self.packed));
        Some(Part { entry, excess, packed, definitions: std::mem::take(&mut self.definitions) })
    }

    /// The entry, ready for another item. For a first item, `several` means that it contains more
    /// than one operation or that further items follow.
    fn ready(&mut self, room: usize, ns: &str, several: bool) -> DocBuilder {
        match (self.entry.take(), &self.transaction) {
            (None, Some(parts)) => {
                self.nested = true;
                parts.begin(room)
            }
            (None, None) => {
                let mut entry = stored::begin(room + ns.len() + ENTRY_BYTES, false);
                self.nested = several;
                if several {
                    begin_several(&mut entry);
                }
                entry
            }
            (Some(only), None) if !self.nested => {
                let (own, none) = (Version::Own, Gaps::of_entry(0));
                let only = StoredEntry::seal(only, 0, Packed::default(), own, none);
                let only = only.fields();
                let room = 2 * (only.as_bytes().len() + room) + 256;
                let mut entry = stored::begin(room, false);
                begin_several(&mut entry);
                entry.push(only);
                self.nested = true;
                entry
            }
            (Some(entry), _) => entry,
        }
    }

    /// Adds an operation; `fields` writes its own fields, which take about `room` bytes. `longer`
    /// is set if it refers to a record: how many bytes longer it is for readers.
    fn add(
        &mut self,
        op: &'static str,
        object: LoggedObject<'_>,
        room: usize,
        longer: Option<i64>,
        fields: impl FnOnce(&mut DocBuilder),
    ) {
        self.make_room(room + longer.map_or(0, |longer| longer.max(0) as usize), object.ns);
        self.end_run();
        self.add_item((op, object), room, false, longer, fields);
        self.count += 1;
    }

    /// Adds an item with one operation. `several` means that further items follow.
    fn add_item(
        &mut self,
        (op, object): (&'static str, LoggedObject<'_>),
        room: usize,
        several: bool,
        longer: Option<i64>,
        fields: impl FnOnce(&mut DocBuilder),
    ) {
        let mut entry = self.ready(room, object.ns, several);
        if self.nested {
            entry.push_document();
        }
        self.repeated.begin(&mut entry, op, object);
        fields(&mut entry);
        if self.nested {
            entry.end();
        }
        self.entry = Some(entry);
        self.excess += digits(self.operations) - digits(self.items) + longer.unwrap_or(0);
        self.packed.refers |= longer.is_some();
        self.items += 1;
        self.operations += 1;
    }

    /// Adds an insert whose document the entry contains.
    pub(crate) fn insert(&mut self, object: LoggedObject<'_>, document: RawDoc<'_>) {
        self.add("i", object, document.as_bytes().len(), None, |entry| {
            entry.append("o", document);
        });
    }

    /// Adds an insert whose document, of this size, is in this record.
    pub(crate) fn insert_record(
        &mut self,
        object: LoggedObject<'_>,
        record: RecordInLog<'_>,
        document_bytes: usize,
    ) {
        self.make_room(document_bytes, object.ns);
        if !self.inserts.takes(object, record) {
            self.end_run();
            self.inserts.begin(object, record);
        }
        let position = digits(self.operations + self.inserts.count) as usize;
        self.inserts.push(record.key, position, document_bytes);
        self.count += 1;
    }

    /// Makes the operations of the runs an item.
    pub(super) fn end_run(&mut self) {
        self.end_run_as(true);
    }

    fn end_run_as(&mut self, further: bool) {
        if self.inserts.count > 0 {
            self.end_inserts(further);
        }
        if self.deletions.count > 0 {
            self.end_deletions(further);
        }
    }

    fn end_inserts(&mut self, further: bool) {
        let mut run = std::mem::take(&mut self.inserts);
        let several = further || run.count > 1;
        let (value, length) = run.records.value();
        let mut entry = self.ready(length + ITEM_BYTES, &run.ns, several);
        if self.nested {
            entry.push_document();
        }
        begin_operation(&mut entry, "i", LoggedObject { ns: &run.ns, uuid: run.uuid });
        entry.append("o", value);
        let longer = if self.nested {
            entry.end();
            // The type, the position with its final zero, and the item.
            let item = digits(self.items) + (2 + ITEM_BYTES + run.ns.len() + length) as i64;
            run.logical as i64 - item
        } else {
            run.documents as i64 - length as i64
        };
        self.entry = Some(entry);
        self.excess += longer;
        self.packed.refers = true;
        self.items += 1;
        self.operations += run.count;
        (run.count, run.documents, run.logical) = (0, 0, 0);
        // The buffers are used again.
        self.inserts = run;
    }

    fn end_deletions(&mut self, further: bool) {
        let mut run = std::mem::take(&mut self.deletions);
        let object = LoggedObject { ns: &run.ns, uuid: run.uuid };
        let expired = run.expired.as_ref().map_or(RawDoc::EMPTY, |(.., field)| field.as_doc());
        if run.count == 1 {
            self.add_item(("d", object), 0, further, None, |entry| {
                entry.start_document("o").append("_id", run.ids.last()).end();
                entry.append_all(expired);
            });
        } else {
            let length = run.item_bytes();
            let mut entry = self.ready(length, object.ns, true);
            let before = entry.len();
            entry.push_document();
            begin_operation(&mut entry, "d", object);
            entry.append("o", run.ids.value()).append_all(expired).end();
            self.excess += run.logical as i64 - (entry.len() - before) as i64;
            self.entry = Some(entry);
            self.packed.lists_ids = true;
            self.items += 1;
            self.operations += run.count;
        }
        (run.count, run.logical) = (0, 0);
        self.deletions = run;
    }

    pub(crate) fn update(&mut self, object: LoggedObject<'_>, update: &LoggedUpdate<'_>) {
        let LoggedUpdate { old, new, delta, record, images } = *update;
        let id = new.get("_id").unwrap_or(RawValue::Null);
        let mut records = ReferenceBuilder::default();
        let reference = record.map(|record| {
            records.begin(record.collection);
            records.push(record.key);
            records.value()
        });
        let whole = new.as_bytes().len();
        let room = match (delta, reference) {
            (Some(delta), _) => delta.as_bytes().len(),
            (None, Some((_, length))) => length,
            (None, None) => whole,
        };
        let longer = reference.map(|(_, length)| whole as i64 - length as i64);
        self.add("u", object, room, longer, |entry| {
            match (delta, reference) {
                (Some(delta), _) => {
                    entry.start_document("o").append("$v", 2).append("diff", delta).end();
                }
                (None, Some((reference, _))) => {
                    entry.append("o", reference);
                }
                (None, None) => {
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
        object: LoggedObject<'_>,
        id: RawValue<'_>,
        expired: Option<ExpiredBy<'_>>,
        image: Option<RawDoc<'_>>,
    ) {
        if let Some(image) = image {
            return self.add("d", object, image.as_bytes().len(), None, |entry| {
                entry.start_document("o").append("_id", id).end();
                if let Some(expired) = expired {
                    entry.append_all(expired.shown().2.as_doc());
                }
                entry.append("preImage", image);
            });
        }
        self.make_room(0, object.ns);
        if !self.deletions.takes(object, expired) {
            self.end_run();
            self.deletions.begin(object, expired);
        }
        let position = digits(self.operations + self.deletions.count) as usize;
        self.deletions.push(id, position);
        self.count += 1;
    }

    /// Adds a command that changes definitions.
    pub(crate) fn command(&mut self, logged: LoggedCommand<'_>) {
        let LoggedCommand { ns, uuid, command, before, definition } = logged;
        let room = command.as_bytes().len() + before.map_or(0, |before| before.as_bytes().len());
        self.add("c", LoggedObject { ns, uuid }, room, None, |entry| {
            entry.append("o", command);
            if let Some(before) = before {
                entry.append("o2", before);
            }
        });
        // The item was just added.
        let item = self.items - 1;
        self.definitions.extend(definition.map(|definition| (item, definition)));
    }

    /// Adds an entry without an operation.
    pub(crate) fn note(&mut self, message: &str) {
        self.add("n", LoggedObject { ns: "", uuid: [0; 16] }, message.len(), None, |entry| {
            entry.start_document("o").append("msg", message).end();
        });
    }

    /// Adds an entry without an operation, with a client's document.
    pub(crate) fn note_document(&mut self, note: RawDoc<'_>) {
        self.note_about(LoggedObject { ns: "", uuid: [0; 16] }, note);
    }

    /// Adds an entry without an operation that concerns a collection. Clients of the log pass over
    /// it.
    pub(crate) fn note_about(&mut self, object: LoggedObject<'_>, note: RawDoc<'_>) {
        self.add("n", object, note.as_bytes().len(), None, |entry| {
            entry.append("o", note);
        });
    }

    /// Adds an entry without an operation that clients see as an event of a collection.
    pub(crate) fn note_event(&mut self, object: LoggedObject<'_>, event: RawDoc<'_>) {
        self.add("n", object, 2 * event.as_bytes().len(), None, |entry| {
            entry.start_document("o").start_document("msg");
            event.iter().take(1).for_each(|kind| {
                entry.append_element(kind);
            });
            entry.end().end().append("o2", event);
        });
    }

    /// Completes the entry, the only one of its commit.
    pub(crate) fn finish(&mut self, now_ms: i64) -> StoredEntry {
        self.end_run_as(self.items > 0);
        let nested = self.nested;
        let part = self.take_part();
        let Part { mut entry, excess, packed, definitions } = part.unwrap_or_else(|| Part {
            entry: stored::begin(0, false),
            excess: 0,
            packed: Packed::default(),
            definitions: Vec::new(),
        });
        if nested {
            // Ends the array and `o`.
            entry.end().end();
        }
        let gaps = end_entry(&mut entry, 0, now_ms);
        self.count = 0;
        StoredEntry::seal(entry, excess, packed, Version::Own, gaps).with_definitions(&definitions)
    }
}

impl RepeatedFields {
    /// Writes the first fields of an operation.
    fn begin(&mut self, entry: &mut DocBuilder, op: &'static str, object: LoggedObject<'_>) {
        if self.last != (op, object.uuid) {
            (self.last, self.head) = ((op, object.uuid), None);
            return begin_operation(entry, op, object);
        }
        let known = self.head.take().filter(|(ns, _)| ns == object.ns);
        let head = known.unwrap_or_else(|| {
            let mut head = DocBuilder::new();
            begin_operation(&mut head, op, object);
            (object.ns.to_owned(), head.finish())
        });
        entry.append_all(head.1.as_doc());
        self.head = Some(head);
    }
}

/// A full entry of a transaction.
pub(super) struct Part {
    pub(super) entry: DocBuilder,
    pub(super) excess: i64,
    pub(super) packed: Packed,
    pub(super) definitions: Vec<(usize, DocBuf)>,
}

/// Appends the last fields of the entry with this index among those of its commit.
pub(super) fn end_entry(entry: &mut DocBuilder, index: u64, now_ms: i64) -> Gaps {
    let mut gaps = Gaps::of_entry(index);
    entry.append("ts", RawValue::Timestamp(0));
    gaps.add_last(entry, index);
    entry.append("t", 1i64).append("v", 2i64).append("wall", RawValue::Date(now_ms));
    gaps
}

fn begin_several(entry: &mut DocBuilder) {
    entry.append("op", "c").append("ns", "admin.$cmd").start_document("o");
    entry.start_array("applyOps");
}

fn begin_operation(entry: &mut DocBuilder, op: &str, object: LoggedObject<'_>) {
    entry.append("op", op).append("ns", object.ns);
    // A command on a database has no collection.
    if object.uuid != [0; 16] {
        entry.append("ui", RawValue::uuid(&object.uuid));
    }
}

/// The number of digits of a position in an array.
fn digits(position: usize) -> i64 {
    i64::from(position.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests;

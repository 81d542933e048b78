//! Consecutive operations of one kind on one collection, which become one item of a log entry.

use mayfly_value::{DocBuf, RawValue};

use super::ids::IdListBuilder;
use super::operation::{ExpiredBy, LoggedObject, RecordInLog};
use super::stored::ReferenceBuilder;

/// The size of an insert or a deletion as an item, without namespace, document and position:
/// frames, `op`, `ns`, `ui`, `o`.
pub(super) const ITEM_BYTES: usize = 5 + 10 + 9 + 25 + 3;
/// The size of a document that has only an `_id`, without the value.
const ID_DOCUMENT_BYTES: usize = 5 + 5;
/// The size of a binary value, without its bytes.
const BINARY_BYTES: usize = 5;

/// Consecutive inserts into one collection, whose documents are in records.
#[derive(Default)]
pub(super) struct InsertRun {
    pub(super) count: usize,
    collection: u64,
    pub(super) uuid: [u8; 16],
    pub(super) ns: String,
    pub(super) records: ReferenceBuilder,
    /// The size of their documents, in bytes.
    pub(super) documents: usize,
    /// The size of the operations for readers, in bytes.
    pub(super) logical: usize,
}

impl InsertRun {
    /// Whether an insert of this record can be added.
    pub(super) fn takes(&self, object: LoggedObject<'_>, record: RecordInLog<'_>) -> bool {
        self.count > 0 && self.collection == record.collection && self.ns == object.ns
    }

    /// Begins a new run.
    pub(super) fn begin(&mut self, object: LoggedObject<'_>, record: RecordInLog<'_>) {
        (self.collection, self.uuid) = (record.collection, object.uuid);
        self.ns.clear();
        self.ns.push_str(object.ns);
        self.records.begin(record.collection);
    }

    /// Adds an insert. `position` is the length of its name in the array that readers see.
    pub(super) fn push(&mut self, record_key: &[u8], position: usize, document_bytes: usize) {
        self.records.push(record_key);
        self.count += 1;
        self.documents += document_bytes;
        self.logical += 2 + position + ITEM_BYTES + self.ns.len() + document_bytes;
    }
}

/// Consecutive deletions from one collection, by the same policy or by none.
#[derive(Default)]
pub(super) struct DeletionRun {
    pub(super) count: usize,
    pub(super) uuid: [u8; 16],
    pub(super) ns: String,
    /// The policy: index, `expireAfterSeconds`, and the encoded field that names them.
    pub(super) expired: Option<(String, i64, DocBuf)>,
    pub(super) ids: IdListBuilder,
    /// The size of the operations for readers, in bytes.
    pub(super) logical: usize,
}

impl DeletionRun {
    /// Whether a deletion can be added.
    pub(super) fn takes(&self, object: LoggedObject<'_>, expired: Option<ExpiredBy<'_>>) -> bool {
        self.count > 0 && self.uuid == object.uuid && self.ns == object.ns && self.is_by(expired)
    }

    fn is_by(&self, expired: Option<ExpiredBy<'_>>) -> bool {
        match (&self.expired, expired) {
            (None, None) => true,
            (Some((index, seconds, _)), Some(by)) => {
                (index.as_str(), *seconds) == (by.index, by.expire_after_secs)
            }
            _ => false,
        }
    }

    /// Begins a new run.
    pub(super) fn begin(&mut self, object: LoggedObject<'_>, expired: Option<ExpiredBy<'_>>) {
        self.uuid = object.uuid;
        self.ns.clear();
        self.ns.push_str(object.ns);
        if !self.is_by(expired) {
            self.expired = expired.map(ExpiredBy::shown);
        }
        self.ids.begin();
    }

    /// Adds a deletion. `position` is the length of its name in the array that readers see.
    pub(super) fn push(&mut self, id: RawValue<'_>, position: usize) {
        let id_bytes = self.ids.push(id);
        self.count += 1;
        let own = ITEM_BYTES + self.ns.len() + ID_DOCUMENT_BYTES + id_bytes + self.policy_bytes();
        self.logical += 2 + position + own;
    }

    /// The size of the run as an item.
    pub(super) fn item_bytes(&self) -> usize {
        ITEM_BYTES + self.ns.len() + BINARY_BYTES + self.ids.len() + self.policy_bytes()
    }

    /// The size of the field that names the policy.
    fn policy_bytes(&self) -> usize {
        self.expired.as_ref().map_or(0, |(.., field)| field.as_bytes().len() - 5)
    }
}

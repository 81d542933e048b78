//! The description of an operation that a write unit passes to the log.

use mayfly_value::{ChangedPath, DocBuf, DocBuilder, RawDoc};

use crate::policy::value::seconds_value;

/// How an update made its new document. This decides what the log contains.
#[derive(Clone, Copy, Debug)]
pub enum UpdateStyle<'a> {
    /// A replacement; the log refers to the new document.
    Replacement,
    /// A computed document; the log contains a delta if it is shorter.
    Computed,
    /// The parts that differ; the log contains a delta, whatever its size.
    Parts,
    /// Update operators; the log contains a delta with the values at these paths. All other values
    /// stay the same, so that keys of indexes on them are not computed.
    Operators(&'a [ChangedPath<'a>]),
    /// Binary values grew at their end; the log contains what was appended. Change streams do not
    /// show documents of such collections.
    Growth,
}

/// The policy that expired a document, for the entry of its deletion.
#[derive(Clone, Copy)]
pub(crate) struct ExpiredBy<'a> {
    pub(crate) index: &'a str,
    pub(crate) expire_after_secs: i64,
}

/// The namespace and collection of an operation.
#[derive(Clone, Copy)]
pub(crate) struct LoggedObject<'a> {
    pub(crate) ns: &'a str,
    pub(crate) uuid: [u8; 16],
}

/// The content of an operation that changes definitions.
pub(crate) struct LoggedCommand<'a> {
    /// The database with `.$cmd`.
    pub(crate) ns: &'a str,
    /// The collection, or zeros for a command on a database.
    pub(crate) uuid: [u8; 16],
    pub(crate) command: RawDoc<'a>,
    /// The former values of changed options.
    pub(crate) before: Option<RawDoc<'a>>,
    /// The catalog document of the collection after the command. It is stored with the entry, and
    /// only the archive of the log reads it.
    pub(crate) definition: Option<DocBuf>,
}

impl<'a> LoggedCommand<'a> {
    /// A command without former values, after which there is no collection.
    pub(crate) fn new(ns: &'a str, uuid: [u8; 16], command: RawDoc<'a>) -> LoggedCommand<'a> {
        LoggedCommand { ns, uuid, command, before: None, definition: None }
    }

    /// Adds the former values of changed options.
    #[must_use]
    pub(crate) fn changing(self, before: RawDoc<'a>) -> LoggedCommand<'a> {
        LoggedCommand { before: Some(before), ..self }
    }

    /// Adds the catalog document of the collection after the command.
    #[must_use]
    pub(crate) fn defining(self, definition: DocBuf) -> LoggedCommand<'a> {
        LoggedCommand { definition: Some(definition), ..self }
    }
}

/// A record that an operation refers to.
#[derive(Clone, Copy)]
pub(crate) struct RecordInLog<'a> {
    pub(crate) collection: u64,
    pub(crate) key: &'a [u8],
}

/// The content of an update's operation.
pub(crate) struct LoggedUpdate<'a> {
    pub(crate) old: RawDoc<'a>,
    pub(crate) new: RawDoc<'a>,
    pub(crate) delta: Option<&'a DocBuf>,
    /// The record of the new document, if the log refers to it.
    pub(crate) record: Option<RecordInLog<'a>>,
    /// Whether the entry contains the documents before and after the update.
    pub(crate) images: bool,
}

impl ExpiredBy<'_> {
    /// The policy, and its encoded field.
    pub(super) fn shown(self) -> (String, i64, DocBuf) {
        let ExpiredBy { index, expire_after_secs } = self;
        let mut shown = DocBuilder::new();
        shown.start_document("ttl").append("index", index);
        shown.append("expireAfterSeconds", seconds_value(expire_after_secs)).end();
        (index.to_owned(), expire_after_secs, shown.finish())
    }
}

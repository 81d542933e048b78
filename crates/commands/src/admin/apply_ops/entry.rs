//! An entry of a log, with the checks of the fields that all entries have.

use mayfly_base::{Error, Namespace, Result};
use mayfly_value::{RawDoc, RawElement, RawValue};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Insert,
    Update,
    Delete,
    Command,
    /// A no-op.
    Note,
}

/// An entry.
pub(super) struct Entry<'a> {
    pub(super) kind: EntryKind,
    /// The collection, or `$cmd` of the database for a command.
    pub(super) ns: Namespace,
    /// The collection's UUID, which takes precedence over its name.
    pub(super) uuid: Option<[u8; 16]>,
    /// `o`: the document, the update, the `_id` or the command.
    pub(super) object: RawDoc<'a>,
    /// `o2`: selects the document of an update.
    pub(super) target: Option<RawDoc<'a>>,
    /// `b`: whether an update inserts a missing document.
    pub(super) upsert: bool,
    /// The command's `bypassDocumentValidation`.
    pub(super) bypasses: bool,
}

fn fault(text: &str) -> Error {
    Error::failed_to_parse(text)
}

impl<'a> Entry<'a> {
    /// Reads an element of `applyOps`.
    ///
    /// # Errors
    /// 9 FailedToParse for an invalid entry, 2 BadValue for an unknown kind, 73 InvalidNamespace.
    pub(super) fn parse(element: RawElement<'a>) -> Result<Entry<'a>> {
        let RawValue::Document(entry) = element.value() else {
            return Err(fault("an element of applyOps is not an object"));
        };
        let text = |name: &str| match entry.get(name) {
            Some(RawValue::String(text)) => Ok(text),
            Some(_) => Err(fault(&format!("the field '{name}' of an op is not a string"))),
            None => Err(fault(&format!("op does not contain required '{name}' field"))),
        };
        let kind = match text("op")? {
            "i" => EntryKind::Insert,
            "u" => EntryKind::Update,
            "d" => EntryKind::Delete,
            "c" => EntryKind::Command,
            "n" => EntryKind::Note,
            other => {
                return Err(Error::bad_value(format!("unknown op type '{other}' in applyOps")));
            }
        };
        let ns = match kind {
            EntryKind::Note => Namespace::new("admin", "$cmd")?,
            _ => match text("ns")? {
                "" => return Err(fault("the field 'ns' of an op cannot be empty")),
                name => Namespace::parse(name)?,
            },
        };
        let object = match (kind, entry.get("o")) {
            (_, Some(RawValue::Document(object))) => object,
            (EntryKind::Note, _) => RawDoc::EMPTY,
            _ => return Err(fault("op does not contain required 'o' field of type object")),
        };
        Ok(Entry {
            kind,
            ns,
            uuid: uuid(entry)?,
            object,
            target: entry.get("o2").and_then(RawValue::as_document),
            upsert: entry.get("b") == Some(RawValue::Bool(true)),
            bypasses: false,
        })
    }
}

fn uuid(entry: RawDoc<'_>) -> Result<Option<[u8; 16]>> {
    match entry.get("ui") {
        None | Some(RawValue::Null) => Ok(None),
        Some(RawValue::Binary { subtype: 4, bytes }) => match <[u8; 16]>::try_from(bytes) {
            Ok(uuid) => Ok(Some(uuid)),
            Err(_) => Err(fault("the field 'ui' of an op is not a UUID")),
        },
        Some(_) => Err(fault("the field 'ui' of an op is not a UUID")),
    }
}

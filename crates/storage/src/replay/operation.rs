//! The operations of an archived entry.

use mayfly_base::{Error, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::oplog::DEFINITION;
use crate::write::ReplayedChange;

/// An operation of an entry.
pub(super) struct Operation<'e> {
    /// The namespace, for messages.
    pub(super) ns: &'e str,
    /// The collection; `None` for a command on a database.
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) change: Change<'e>,
}

pub(super) enum Change<'e> {
    Document {
        id: RawValue<'e>,
        change: ReplayedChange<'e>,
    },
    /// A command, with the catalog document of the collection after it; `None` if there is no
    /// collection any more.
    Definition {
        command: RawDoc<'e>,
        definition: Option<RawDoc<'e>>,
    },
}

/// Appends the operations of an entry. A note has none.
///
/// # Errors
/// 9 FailedToParse.
pub(super) fn append_all<'e>(out: &mut Vec<Operation<'e>>, entry: RawDoc<'e>) -> Result<()> {
    let object = entry.get("o").and_then(RawValue::as_document);
    let items = object.and_then(|object| object.get("applyOps")).and_then(RawValue::as_array);
    match items.filter(|_| entry.get("op") == Some(RawValue::String("c"))) {
        None => out.extend(parse(entry)?),
        Some(items) => {
            for item in items {
                let item = item.value().as_document().ok_or_else(|| malformed("an item"))?;
                out.extend(parse(item)?);
            }
        }
    }
    Ok(())
}

fn malformed(what: &str) -> Error {
    Error::failed_to_parse(format!("{what} of an archived entry cannot be read"))
}

fn parse(item: RawDoc<'_>) -> Result<Option<Operation<'_>>> {
    let kind = item.get("op").and_then(RawValue::as_str).ok_or_else(|| malformed("the type"))?;
    if kind == "n" {
        return Ok(None);
    }
    let ns = item.get("ns").and_then(RawValue::as_str).ok_or_else(|| malformed("the namespace"))?;
    let object = item.get("o").and_then(RawValue::as_document);
    let object = object.ok_or_else(|| malformed("the document"))?;
    let uuid = match item.get("ui") {
        None => None,
        Some(RawValue::Binary { bytes, .. }) => {
            Some(bytes.try_into().map_err(|_| malformed("the UUID"))?)
        }
        Some(_) => return Err(malformed("the UUID")),
    };
    let change = match kind {
        "c" => {
            let definition = item.get(DEFINITION).and_then(RawValue::as_document);
            Change::Definition { command: object, definition }
        }
        "i" => of_document(object, ReplayedChange::Put(object))?,
        "d" => of_document(object, ReplayedChange::Remove)?,
        "u" => {
            let target = item.get("o2").and_then(RawValue::as_document);
            let target = target.ok_or_else(|| malformed("the target"))?;
            let delta = object.get("diff").and_then(RawValue::as_document);
            let delta = delta.filter(|_| object.get("_id").is_none());
            of_document(
                target,
                delta.map_or(ReplayedChange::Replacement(object), ReplayedChange::Delta),
            )?
        }
        other => return Err(malformed(&format!("the type '{other}'"))),
    };
    Ok(Some(Operation { ns, uuid, change }))
}

fn of_document<'e>(named: RawDoc<'e>, change: ReplayedChange<'e>) -> Result<Change<'e>> {
    let id = named.get("_id").ok_or_else(|| malformed("the _id"))?;
    Ok(Change::Document { id, change })
}

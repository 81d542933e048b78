//! The operations of an archived entry.

use mayfly_base::{Error, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::ddl::{LOGGED_SEARCH, LoggedSearchIndex, NewSearchIndex, ViewSource};
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
    /// The search indexes of the collection after a change of one, with the ids that clients see.
    SearchIndexes(Vec<LoggedSearchIndex>),
}

impl Operation<'_> {
    /// Whether it changes a document.
    pub(super) fn is_document(&self) -> bool {
        matches!(self.change, Change::Document { .. })
    }
}

/// Appends the operations of an entry. A note has none, except for one about search indexes.
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
    let is_note = kind == "n";
    let searches = || item.get("o")?.as_document()?.get(LOGGED_SEARCH)?.as_array();
    let searches = if is_note && item.get("ui").is_some() { searches() } else { None };
    if is_note && searches.is_none() {
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
    let change = match (kind, searches) {
        (_, Some(list)) => {
            let indexes = list.iter().map(|item| search_index(item.value()));
            let indexes = indexes.collect::<Option<_>>();
            Change::SearchIndexes(indexes.ok_or_else(|| malformed("a search index"))?)
        }
        ("c", _) => {
            let definition = item.get(DEFINITION).and_then(RawValue::as_document);
            Change::Definition { command: object, definition }
        }
        ("i", _) => of_document(object, ReplayedChange::Put(object))?,
        ("d", _) => of_document(object, ReplayedChange::Remove)?,
        ("u", _) => {
            let target = item.get("o2").and_then(RawValue::as_document);
            let target = target.ok_or_else(|| malformed("the target"))?;
            let delta = object.get("diff").and_then(RawValue::as_document);
            let delta = delta.filter(|_| object.get("_id").is_none());
            of_document(
                target,
                delta.map_or(ReplayedChange::Replacement(object), ReplayedChange::Delta),
            )?
        }
        (other, _) => return Err(malformed(&format!("the type '{other}'"))),
    };
    Ok(Some(Operation { ns, uuid, change }))
}

fn search_index(item: RawValue<'_>) -> Option<LoggedSearchIndex> {
    let item = item.as_document()?;
    let text = |name| Some(item.get(name)?.as_str()?.to_owned());
    let document = |name| Some(item.get(name)?.as_document()?.to_owned());
    let new = NewSearchIndex {
        name: text("name")?,
        kind: text("type")?,
        definition: document("definition")?,
    };
    let view = match text("view") {
        Some(name) => Some(ViewSource { name, transformation: document("transformation")? }),
        None => None,
    };
    Some(LoggedSearchIndex { id: text("id")?, new, view })
}

fn of_document<'e>(named: RawDoc<'e>, change: ReplayedChange<'e>) -> Result<Change<'e>> {
    let id = named.get("_id").ok_or_else(|| malformed("the _id"))?;
    Ok(Change::Document { id, change })
}

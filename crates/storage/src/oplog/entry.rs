//! An entry of the log as its readers see it. The documents of records are read on demand, so that
//! a reader of one collection does not read those of others.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::ids::{DamagedIds, IdList};
use super::resolve::{Reference, Resolver};
use super::stored::{DamagedList, DecodedEntry, KeyInLog, References};

/// The field of an archived command with the catalog document of its collection.
pub(crate) const DEFINITION: &str = "definition";

/// An entry of the log.
pub struct LogEntry<'l> {
    timestamp: u64,
    stored: DecodedEntry<'l>,
    resolver: &'l Resolver<'l>,
}

/// One operation of an entry.
pub struct LogOperation<'l> {
    item: RawDoc<'l>,
    reference: Option<Reference<'l>>,
    resolver: &'l Resolver<'l>,
}

/// A document of an operation.
pub enum LogObject<'l> {
    /// The document in the entry itself.
    Logged(RawDoc<'l>),
    /// The document of the record that the entry refers to.
    Read(DocBuf),
}

/// Visits the operations of an entry.
pub type OperationVisitor<'v> = dyn FnMut(&LogOperation<'_>) -> Result<ControlFlow<()>> + 'v;

impl LogObject<'_> {
    /// The document's bytes.
    pub fn as_doc(&self) -> RawDoc<'_> {
        match self {
            LogObject::Logged(document) => *document,
            LogObject::Read(document) => document.as_doc(),
        }
    }

    /// The document as an owned value; copies it only if necessary.
    pub fn into_owned(self) -> DocBuf {
        match self {
            LogObject::Logged(document) => document.to_owned(),
            LogObject::Read(document) => document,
        }
    }
}

impl<'l> LogOperation<'l> {
    /// A field of the operation. Use [`LogOperation::object`] for `o` of an insert or a
    /// replacement.
    pub fn get(&self, name: &str) -> Option<RawValue<'l>> {
        self.item.get(name)
    }

    /// The field `o`; an empty document when there is none.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when the log was cut meanwhile; 301 DataCorruptionDetected when
    /// the document is missing; errors of the engine.
    pub fn object(&self) -> Result<LogObject<'l>> {
        match &self.reference {
            Some(reference) => self.resolver.document(reference).map(LogObject::Read),
            None => {
                let object = self.item.get("o").and_then(RawValue::as_document);
                Ok(LogObject::Logged(object.unwrap_or(RawDoc::EMPTY)))
            }
        }
    }
}

impl<'l> LogEntry<'l> {
    pub(super) fn new(
        timestamp: u64,
        stored: DecodedEntry<'l>,
        resolver: &'l Resolver<'l>,
    ) -> LogEntry<'l> {
        LogEntry { timestamp, stored, resolver }
    }

    /// The timestamp under which the entry was committed.
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The size of the entry with all its documents, in bytes.
    pub fn bytes(&self) -> u64 {
        self.stored.logical
    }

    /// A field of the entry. Use [`LogOperation::object`] for `o` of an insert or a replacement.
    pub fn get(&self, name: &str) -> Option<RawValue<'l>> {
        self.stored.fields.get(name)
    }

    /// The fields of the entry, with references instead of documents, and lists of ids.
    pub fn fields(&self) -> RawDoc<'l> {
        self.stored.fields
    }

    /// The items of `applyOps`, if the entry has several.
    fn items(&self) -> Option<RawDoc<'l>> {
        // A document may have a field of this name as well.
        let command = self.get("o").filter(|_| self.get("op") == Some(RawValue::String("c")));
        command?.as_document()?.get("applyOps")?.as_array()
    }

    /// Visits the operations of the entry until the visitor breaks.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the visitor.
    pub fn operations(&self, visit: &mut OperationVisitor<'_>) -> Result<()> {
        let Some(items) = self.items() else {
            return self.item(self.stored.fields, visit).map(|_| ());
        };
        for item in items.iter().filter_map(|item| item.value().as_document()) {
            if self.item(item, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the operations of one item.
    fn item(&self, item: RawDoc<'l>, visit: &mut OperationVisitor<'_>) -> Result<ControlFlow<()>> {
        let resolver = self.resolver;
        if let Some(ids) = self.ids(item) {
            return self.deletions(item, ids, visit);
        }
        let Some((collection, keys)) = self.references(item) else {
            return visit(&LogOperation { item, reference: None, resolver });
        };
        for key in keys {
            let reference = Some(self.reference(collection, key)?);
            let flow = visit(&LogOperation { item, reference, resolver })?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the deletions of an item with a list of ids.
    fn deletions(
        &self,
        item: RawDoc<'_>,
        mut ids: IdList<'_>,
        visit: &mut OperationVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut buffer = Vec::new();
        while let Some(id) = ids.next() {
            let id = id.map_err(|DamagedIds| self.unreadable())?;
            buffer.clear();
            let mut shown = DocBuilder::in_buffer(buffer);
            for element in item {
                match element.name() {
                    "o" => {
                        shown.start_document("o").append("_id", id).end();
                    }
                    _ => {
                        shown.append_element(element);
                    }
                }
            }
            let shown = shown.finish();
            let item = shown.as_doc();
            let flow = visit(&LogOperation { item, reference: None, resolver: self.resolver })?;
            if flow.is_break() {
                return Ok(flow);
            }
            buffer = shown.into_bytes();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn ids(&self, item: RawDoc<'l>) -> Option<IdList<'l>> {
        if !self.stored.packed.lists_ids {
            return None;
        }
        IdList::of(item.get("o"))
    }

    fn references(&self, item: RawDoc<'l>) -> Option<(u64, References<'l>)> {
        if !self.stored.packed.refers {
            return None;
        }
        let keys = References::of(item.get("o"))?;
        Some((keys.collection, keys))
    }

    fn unreadable(&self) -> Error {
        let text = format!("the entry {} of the operation log cannot be read", self.timestamp);
        Error::new(ErrorCode::DataCorruptionDetected, text)
    }

    fn reference(
        &self,
        collection: u64,
        key: std::result::Result<KeyInLog<'l>, DamagedList>,
    ) -> Result<Reference<'l>> {
        let key = key.map_err(|DamagedList| self.unreadable())?;
        let version = self.stored.version.unwrap_or(self.timestamp);
        Ok(Reference { timestamp: self.timestamp, version, collection, key })
    }

    /// The entry with all its documents.
    ///
    /// # Errors
    /// As [`LogOperation::object`].
    pub fn whole(&self) -> Result<LogObject<'l>> {
        match self.stored.packed.any() {
            true => self.built(None),
            false => Ok(LogObject::Logged(self.stored.fields)),
        }
    }

    /// The entry for an archive: with all its documents, and with the field [`DEFINITION`] in
    /// commands, which has the catalog document of the collection after the command.
    ///
    /// # Errors
    /// As [`LogOperation::object`].
    pub(crate) fn archived(&self) -> Result<LogObject<'l>> {
        match self.stored.definitions {
            Some(definitions) => self.built(Some(definitions)),
            None => self.whole(),
        }
    }

    /// The entry with all its documents, and with these definitions by the position of the item.
    fn built(&self, definitions: Option<RawDoc<'_>>) -> Result<LogObject<'l>> {
        let fields = self.stored.fields;
        let definition =
            |item: usize| definitions?.get(&item.to_string()).and_then(RawValue::as_document);
        let room = usize::try_from(self.stored.logical).unwrap_or(0).min(64 << 20);
        let mut out = DocBuilder::in_buffer(Vec::with_capacity(room));
        let Some(items) = self.items() else {
            let see = &mut |operation: &LogOperation<'_>| {
                append_whole(&mut out, operation, definition(0))?;
                Ok(ControlFlow::Break(()))
            };
            let _ = self.item(fields, see)?;
            return Ok(LogObject::Read(out.finish()));
        };
        for element in fields {
            let command = element.value().as_document().filter(|_| element.name() == "o");
            let Some(command) = command else {
                out.append_element(element);
                continue;
            };
            out.start_document("o");
            for element in command {
                if element.name() != "applyOps" {
                    out.append_element(element);
                    continue;
                }
                out.start_array("applyOps");
                for (at, item) in items.iter().enumerate() {
                    // The store writes nothing else there.
                    let Some(item) = item.value().as_document() else { continue };
                    let see = &mut |operation: &LogOperation<'_>| {
                        out.push_document();
                        append_whole(&mut out, operation, definition(at))?;
                        out.end();
                        Ok(ControlFlow::Continue(()))
                    };
                    let _ = self.item(item, see)?;
                }
                out.end();
            }
            out.end();
        }
        Ok(LogObject::Read(out.finish()))
    }
}

/// Appends the fields of an operation, with its document, and with the definition of a command.
fn append_whole(
    out: &mut DocBuilder,
    operation: &LogOperation<'_>,
    definition: Option<RawDoc<'_>>,
) -> Result<()> {
    for element in operation.item {
        match element.name() {
            "o" if operation.reference.is_some() => {
                out.append("o", operation.object()?.as_doc());
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    if let Some(definition) = definition {
        out.append(DEFINITION, definition);
    }
    Ok(())
}

//! `fullDocument: "updateLookup"`: the present documents of update events. Those of several queued
//! events are read together, since over a network each read is a round trip.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Collection, IdKey, StoreSession};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::token::Token;

/// Most documents that are read together, and an approximate limit on their bytes.
const MOST_DOCUMENTS: usize = 128;
const MOST_BYTES: usize = 1 << 20;

/// The field with the document.
const FIELD: &str = "fullDocument";

/// An event that is waiting to be returned.
pub(super) struct Queued {
    pub(super) token: Token,
    pub(super) event: DocBuf,
    pub(super) lookup: Option<Lookup>,
}

/// The document that an event still lacks.
pub(super) struct Lookup {
    /// Its collection, if that still exists.
    pub(super) collection: Option<Arc<Collection>>,
    pub(super) id_key: IdKey,
}

/// Documents that were read before their events are returned.
#[derive(Default)]
pub(super) struct LookedUp(VecDeque<Option<DocBuf>>);

impl LookedUp {
    /// Completes the first event of the queue, if it lacks a document.
    ///
    /// # Errors
    /// Errors of the store and of the operation's deadline.
    pub(super) fn complete(
        &mut self,
        session: StoreSession<'_>,
        queue: &mut VecDeque<Queued>,
    ) -> Result<()> {
        if queue.front().is_none_or(|first| first.lookup.is_none()) {
            return Ok(());
        }
        if self.0.is_empty() {
            self.0 = read_ahead(session, queue)?;
        }
        if let (Some(document), Some(first)) = (self.0.pop_front(), queue.front_mut()) {
            first.event = with_document(first.event.as_doc(), document.as_ref());
            first.lookup = None;
        }
        Ok(())
    }
}

/// Reads the documents of the first events that lack one, at least that of the first.
fn read_ahead(
    session: StoreSession<'_>,
    queue: &VecDeque<Queued>,
) -> Result<VecDeque<Option<DocBuf>>> {
    let mut lookups = queue.iter().filter_map(|queued| queued.lookup.as_ref()).peekable();
    let Some(Lookup { collection: Some(collection), .. }) = lookups.peek() else {
        return Ok(VecDeque::from([None]));
    };
    let is_here = |other: &&Lookup| {
        other.collection.as_ref().is_some_and(|other| Arc::ptr_eq(other, collection))
    };
    let ids: Vec<&[u8]> =
        lookups.take_while(is_here).take(MOST_DOCUMENTS).map(|it| it.id_key.as_slice()).collect();
    if let [id] = ids[..] {
        let (store, view) = (session.store, session.view);
        let found = store.read_by_id(view, collection, id, |_, document| document.to_owned())?;
        return Ok(VecDeque::from([found]));
    }
    let (mut found, mut bytes) = (VecDeque::new(), 0);
    session.op.check()?;
    let end = session.snapshot()?.documents_by_id(collection, &ids, &mut |at, document| {
        found.resize(at, None);
        found.push_back(Some(document.to_owned()));
        bytes += document.as_bytes().len();
        Ok(if bytes < MOST_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    if end.is_continue() {
        found.resize(ids.len(), None);
    }
    Ok(found)
}

/// The event with the document before the namespace, where `fullDocument` is in all events.
fn with_document(event: RawDoc<'_>, document: Option<&DocBuf>) -> DocBuf {
    let mut out = DocBuilder::new();
    for field in event {
        if field.name() == "ns" {
            let document = document.map(DocBuf::as_doc);
            out.append(FIELD, document.map_or(RawValue::Null, RawValue::Document));
        }
        out.append_element(field);
    }
    out.finish()
}

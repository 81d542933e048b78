//! A change stream that follows the writers. After a crash, the events that it has returned must
//! still be there. All events, applied to the documents of the beginning, must give the documents
//! that are found.

use mayfly_testkit::outside::batch;
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use crate::load::{COLLECTIONS, Connection, DB, Failed, State, int};

/// A stream over the whole database.
pub(crate) struct Stream {
    /// The resume token of its beginning.
    begin: Document,
    cursor: i64,
    /// The tokens of the events that it has returned, in order.
    pub(crate) seen: Vec<String>,
}

impl Stream {
    /// Opens a stream.
    pub(crate) fn begin(connection: &mut Connection) -> Result<Stream, Failed> {
        let (cursor, events, begin) = open(connection, None)?;
        Ok(Stream { begin, cursor, seen: events.iter().map(|it| token(it.as_doc())).collect() })
    }

    /// Reads until the connection breaks or a stop is requested.
    pub(crate) fn follow(&mut self, connection: &mut Connection, enough: &dyn Fn() -> bool) {
        while !enough() {
            let Ok((events, _)) = more(connection, self.cursor, 50) else { return };
            self.seen.extend(events.iter().map(|it| token(it.as_doc())));
        }
    }

    /// Reads all events again from the beginning, when the documents of the writers were `before`.
    /// Now they are `now`.
    pub(crate) fn check(
        &self,
        connection: &mut Connection,
        before: &State,
        now: &State,
    ) -> Result<Vec<String>, Failed> {
        let (cursor, mut events, _) = open(connection, Some(&self.begin))?;
        loop {
            let (batch, _) = more(connection, cursor, 1)?;
            if batch.is_empty() {
                break;
            }
            events.extend(batch);
        }
        connection.run(DB, &doc! { "killCursors": "$cmd.aggregate", "cursors": [cursor] })?;
        let mut wrong = Vec::new();
        let again: Vec<String> = events.iter().map(|it| token(it.as_doc())).collect();
        if let Some(at) = (0..self.seen.len()).find(|at| self.seen.get(*at) != again.get(*at)) {
            wrong.push(format!(
                "the change stream had shown {} events; number {at} was {} and is {:?} of {}",
                self.seen.len(),
                self.seen[at],
                again.get(at),
                again.len()
            ));
        }
        let mut state = before.clone();
        events.iter().for_each(|event| apply(&mut state, event.as_doc()));
        let differences = crate::load::differences(&state, now);
        if !differences.is_empty() {
            let some: Vec<_> = differences.into_iter().take(5).collect();
            wrong.push(format!("the change stream tells another story: {}", some.join(", ")));
        }
        Ok(wrong)
    }
}

type Opened = (i64, Vec<DocBuf>, Document);

fn open(connection: &mut Connection, after: Option<&Document>) -> Result<Opened, Failed> {
    let stage = after.map_or_else(|| doc! {}, |token| doc! { "resumeAfter": token.clone() });
    let pipeline = [doc! { "$changeStream": stage }].to_vec();
    let command = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} };
    let reply = connection.run(DB, &command)?;
    let (events, token) = shown(&reply);
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    Ok((int(cursor.unwrap_or(RawDoc::EMPTY), "id"), events, token))
}

fn more(
    connection: &mut Connection,
    cursor: i64,
    wait_ms: i32,
) -> Result<(Vec<DocBuf>, Document), Failed> {
    let command = doc! { "getMore": cursor, "collection": "$cmd.aggregate", "maxTimeMS": wait_ms };
    Ok(shown(&connection.run(DB, &command)?))
}

fn shown(reply: &DocBuf) -> (Vec<DocBuf>, Document) {
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    let cursor = cursor.unwrap_or(RawDoc::EMPTY);
    let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document);
    let token = Document::from_reader(token.unwrap_or(RawDoc::EMPTY).as_bytes());
    (batch(cursor), token.unwrap_or_default())
}

fn token(event: RawDoc<'_>) -> String {
    let id = event.get("_id").and_then(RawValue::as_document);
    match id.and_then(|id| id.get("_data")) {
        Some(RawValue::String(data)) => data.to_owned(),
        _ => String::new(),
    }
}

/// Applies an event to documents.
fn apply(state: &mut State, event: RawDoc<'_>) {
    let part = |name: &str| event.get(name).and_then(RawValue::as_document);
    let Some(RawValue::String(collection)) = part("ns").and_then(|ns| ns.get("coll")) else {
        return;
    };
    if !COLLECTIONS.contains(&collection) {
        return;
    }
    let key = part("documentKey").unwrap_or(RawDoc::EMPTY);
    let key = (collection.to_owned(), int(key, "_id"));
    match event.get("operationType") {
        Some(RawValue::String("insert" | "replace")) => {
            let document = part("fullDocument").unwrap_or(RawDoc::EMPTY);
            state.insert(key, int(document, "v"));
        }
        Some(RawValue::String("update")) => {
            let changed = part("updateDescription").and_then(|it| it.get("updatedFields"));
            let changed = changed.and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
            if changed.get("v").is_some() {
                state.insert(key, int(changed, "v"));
            }
        }
        Some(RawValue::String("delete")) => _ = state.remove(&key),
        _ => {}
    }
}

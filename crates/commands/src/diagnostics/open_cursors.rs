//! Open cursors in the documents of `$currentOp` and `$listLocalCursors`.

use mayfly_service::{OpenCursor, Service};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::current_op::OperationOwner;

/// The documents of `$currentOp` for the cursors of which no batch runs.
pub(super) fn idle_cursors(service: &Service, whose: &OperationOwner) -> Vec<DocBuf> {
    let mut cursors = service.cursors.list(service.clock.monotonic_micros());
    cursors.retain(|cursor| cursor.is_idle && whose.includes_cursor_of(cursor.user.as_ref()));
    cursors.iter().map(|cursor| idle_cursor(service, cursor)).collect()
}

fn idle_cursor(service: &Service, cursor: &OpenCursor) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("type", "idleCursor");
    append_place(&mut doc, service, cursor);
    doc.start_document("cursor");
    append_cursor(&mut doc, service, cursor);
    append_origin(&mut doc, cursor);
    doc.end();
    doc.finish()
}

/// The documents of `$listLocalCursors`.
pub(crate) fn local_cursors(service: &Service) -> Vec<DocBuf> {
    let cursors = service.cursors.list(service.clock.monotonic_micros());
    let document = |cursor: &OpenCursor| {
        let mut doc = DocBuilder::new();
        append_cursor(&mut doc, service, cursor);
        append_origin(&mut doc, cursor);
        append_place(&mut doc, service, cursor);
        doc.finish()
    };
    cursors.iter().map(document).collect()
}

/// Appends what a cursor has in common with an operation.
fn append_place(doc: &mut DocBuilder, service: &Service, cursor: &OpenCursor) {
    doc.append("host", service.host.as_str());
    if let Some(user) = &cursor.user {
        doc.start_array("effectiveUsers").push_document();
        doc.append("user", user.user.as_str()).append("db", user.db.as_str());
        doc.end().end();
    }
    doc.append("ns", cursor.namespace.as_str());
    if let Some(session) = &cursor.session {
        doc.append("lsid", &session.to_document());
    }
    if let Some(origin) = &cursor.origin
        && !origin.plan_summary.is_empty()
    {
        doc.append("planSummary", &*origin.plan_summary);
    }
}

/// Appends the fields that describe a cursor, except the command that opened it.
pub(super) fn append_cursor(doc: &mut DocBuilder, service: &Service, cursor: &OpenCursor) {
    let (now_ms, now_micros) = (service.clock.now_ms(), service.clock.monotonic_micros());
    let date = |micros: i64| RawValue::Date(now_ms - (now_micros - micros) / 1000);
    doc.append("cursorId", cursor.id);
    doc.append("createdDate", date(cursor.created_micros));
    doc.append("lastAccessDate", date(cursor.last_used_micros));
    doc.append("nDocsReturned", cursor.returned.documents);
    doc.append("nBatchesReturned", cursor.returned.batches);
    doc.append("noCursorTimeout", cursor.no_timeout);
    doc.append("tailable", cursor.is_tailable);
    doc.append("awaitData", cursor.awaits_data);
}

fn append_origin(doc: &mut DocBuilder, cursor: &OpenCursor) {
    let command = cursor.origin.as_ref().and_then(|origin| RawDoc::new(&origin.command));
    doc.append("originatingCommand", command.unwrap_or(RawDoc::EMPTY));
}

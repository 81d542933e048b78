//! The trace of a command, if traces are on.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Error, Result};
use mayfly_service::{CommandTrace, Service, TraceParent, TraceTime, TracedPlan};
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::Incoming;
use crate::request::Request;

/// The field of a comment, or the name in its text, that has the parent of the command's span.
const PARENT: &str = "traceparent";

/// Begins the trace of a request.
pub(super) fn begin(service: &Service, incoming: &Incoming<'_>) -> Option<Box<CommandTrace>> {
    let mut trace = service.traces.begin(parent(incoming.body))?;
    trace.time.began = service.clock.monotonic_micros();
    let db = incoming.body.get("$db").and_then(RawValue::as_str).or(incoming.legacy_db);
    trace.db = db.unwrap_or_default().to_owned();
    let (entry, _) = incoming.called;
    // The name of a command that does not exist is a value of the client.
    trace.name = entry.map_or("unknown", |entry| entry.command.row.name);
    Some(trace)
}

/// Notes the collection and the plans of a command that has run.
pub(super) fn note(trace: &mut CommandTrace, op: &OpCtx, request: &Request<'_>) {
    let named = request.row.names.value_in(request.body).and_then(RawValue::as_str);
    trace.collection = named.unwrap_or_default().to_owned();
    let time = &op.planning.time;
    let count = time.count.load(Relaxed);
    if count > 0 {
        let mut summary = String::new();
        op.update_info(|info| summary = info.plan_summary.to_string());
        let time = TraceTime { began: time.began.load(Relaxed), micros: time.micros.load(Relaxed) };
        trace.plan = Some(TracedPlan { time, count, summary });
    }
}

/// Ends the command's time; the reply may still wait for the log.
pub(super) fn end(trace: &mut CommandTrace, service: &Service, result: &Result<()>) {
    trace.time.micros = service.clock.monotonic_micros() - trace.time.began;
    trace.error = result.as_ref().err().map(code_and_name);
}

fn code_and_name(error: &Error) -> (i32, String) {
    (error.code().0, error.code().name().into_owned())
}

/// The parent in a command's comment: the comment's text, `traceparent='...'` in it, or its field.
fn parent(body: RawDoc<'_>) -> Option<TraceParent> {
    let text = match body.get("comment")? {
        RawValue::String(text) => text,
        RawValue::Document(comment) => comment.get(PARENT)?.as_str()?,
        _ => return None,
    };
    TraceParent::parse(text).or_else(|| {
        let (_, rest) = text.split_once(PARENT)?;
        let rest = rest.trim_start_matches([' ', '=', ':', '"', '\'']);
        let end = rest.find(|it: char| !it.is_ascii_hexdigit() && it != '-');
        TraceParent::parse(&rest[..end.unwrap_or(rest.len())])
    })
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, doc};

    use super::*;

    #[test]
    fn a_comment_names_the_parent() {
        const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let found = |comment: Bson| {
            parent(DocBuf::from_bson(&doc! { "find": "c", "comment": comment }).as_doc())
        };
        let expected = TraceParent::parse(TEXT);
        assert!(expected.is_some());
        for comment in [
            Bson::from(TEXT),
            Bson::from(doc! { "traceparent": TEXT, "tracestate": "a=b" }),
            Bson::from(format!("route='/cart',traceparent='{TEXT}',x='é'")),
            Bson::from(format!("traceparent={TEXT}")),
            Bson::from(format!(r#"{{"traceparent": "{TEXT}"}}"#)),
        ] {
            assert_eq!(found(comment.clone()), expected, "{comment}");
        }
        for comment in [
            Bson::from("traceparent"),
            Bson::from("traceparent=é"),
            Bson::from(5),
            Bson::from(doc! { "traceparent": 5 }),
            Bson::Null,
        ] {
            assert_eq!(found(comment), None);
        }
        assert_eq!(parent(RawDoc::EMPTY), None);
    }
}

//! The JSON of OTLP (`opentelemetry-proto`, `ExportTraceServiceRequest`): ids are in hexadecimal
//! digits, times are nanoseconds since 1970 as text.

use mayfly_service::{CommandTrace, Service, TraceTime};
use serde_json::{Value, json};

/// The kinds of spans: work inside of the server, and an answer to a client.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
/// The status of a span with an error.
const ERROR: i32 = 2;

/// The body of a request with the spans of these commands.
pub(super) fn request(service: &Service, batch: &[CommandTrace]) -> String {
    // Times of spans are monotonic; here they become wall-clock times.
    let clock = &service.clock;
    let offset = clock.now_ms().saturating_mul(1000) - clock.monotonic_micros();
    let mut spans = Vec::with_capacity(batch.len() * 3);
    for trace in batch {
        append_command(trace, offset, &mut spans);
    }
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "mayflydb"),
            text("service.version", version),
            text("service.instance.id", &service.host),
        ] },
        "scopeSpans": [{ "scope": { "name": "mayflydb", "version": version }, "spans": spans }],
    }] })
    .to_string()
}

fn append_command(trace: &CommandTrace, offset: i64, spans: &mut Vec<Value>) {
    // OpenTelemetry, "Semantic conventions for database client calls": the name and the attributes.
    let target = match (trace.db.as_str(), trace.collection.as_str()) {
        ("", _) => String::new(),
        (db, "") => format!(" {db}"),
        (db, collection) => format!(" {db}.{collection}"),
    };
    let mut attributes =
        vec![text("db.system.name", "mongodb"), text("db.operation.name", trace.name)];
    for (name, value) in [("db.namespace", &trace.db), ("db.collection.name", &trace.collection)] {
        if !value.is_empty() {
            attributes.push(text(name, value));
        }
    }
    let mut status = json!({});
    if let Some((code, name)) = &trace.error {
        attributes.push(text("db.response.status_code", &code.to_string()));
        attributes.push(text("error.type", name));
        status = json!({ "code": ERROR, "message": name });
    }
    let mut command = span(trace, trace.time, (trace.span, trace.parent), offset);
    command["name"] = json!(format!("{}{target}", trace.name));
    command["kind"] = json!(SERVER);
    command["attributes"] = json!(attributes);
    command["status"] = status;
    spans.push(command);
    let mut append_part = |at: u64, name: &str, time: TraceTime, attributes: Vec<Value>| {
        let mut part = span(trace, time, (part_id(trace.span, at), Some(trace.span)), offset);
        part["name"] = json!(name);
        part["kind"] = json!(INTERNAL);
        part["attributes"] = json!(attributes);
        spans.push(part);
    };
    if let Some(plan) = &trace.plan {
        let count = json!({ "intValue": plan.count.to_string() });
        let count = json!({ "key": "mayflydb.plan.count", "value": count });
        let attributes = vec![text("mayflydb.plan.summary", &plan.summary), count];
        append_part(1, "plan", plan.time, attributes);
    }
    if let Some(sync) = trace.sync {
        append_part(2, "sync", sync, Vec::new());
    }
}

/// The id of a span inside of a command: it differs from the command's, and is not zero.
fn part_id(command: u64, at: u64) -> u64 {
    match command ^ (at << 32) {
        0 => at,
        id => id,
    }
}

fn span(
    trace: &CommandTrace,
    time: TraceTime,
    (id, parent): (u64, Option<u64>),
    offset: i64,
) -> Value {
    let nanos = |micros: i64| ((micros + offset).saturating_mul(1000)).to_string();
    let mut span = json!({
        "traceId": format!("{:032x}", trace.trace),
        "spanId": format!("{id:016x}"),
        "startTimeUnixNano": nanos(time.began),
        "endTimeUnixNano": nanos(time.began + time.micros.max(0)),
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    span
}

fn text(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

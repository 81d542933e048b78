//! The panels of the page: a row for each, with what it reads, how often, and the right it needs.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mayfly_value::{DocBuf, RawDoc, RawValue};
use serde_json::{Value, json};

use super::history;
use super::json::{object, shortened, text, value};
use super::peer::Peer;
use super::run::{CommandError, Reader, command};
use super::site::Site;
use crate::expiry_line::expiry_line;
use crate::expiry_state::{Circumstances, PolicyState};

mod storage;

/// The most policies that are sent, those with the most lag.
const MAX_POLICIES: usize = 500;
/// The most operations, log lines and query shapes that are sent.
const MAX_OPERATIONS: usize = 100;
const MAX_LINES: usize = 50;
const MAX_SHAPES: i32 = 20;
/// The sections of `serverStatus` that cost much and that the page does not show.
const OMITTED: &[&str] = &[
    "asserts",
    "batchedDeletes",
    "catalogStats",
    "extra_info",
    "globalLock",
    "locks",
    "logicalSessionRecordCache",
    "metrics",
    "network",
    "opLatencies",
    "opcounters",
    "opcountersRepl",
    "transportSecurity",
];

type Read = fn(&Site, &Peer, &Reader, &Place) -> Result<Value, CommandError>;

/// A panel of the page.
pub(super) struct Panel {
    /// The name of its events.
    pub(super) name: &'static str,
    /// The shortest time between two reads.
    pub(super) every: Duration,
    /// The rights that it needs, for a user that lacks them.
    pub(super) right: &'static str,
    pub(super) read: Read,
}

/// What a page has received so far.
#[derive(Default)]
pub(super) struct Place {
    /// The time of the latest point of the plots, in milliseconds since 1970.
    latest_point: AtomicI64,
}

const fn panel(name: &'static str, secs: u64, right: &'static str, read: Read) -> Panel {
    Panel { name, every: Duration::from_secs(secs), right, read }
}

/// All panels, in the order in which they are read.
pub(super) const PANELS: &[Panel] = &[
    panel("points", 2, "serverStatus (in the role clusterMonitor)", points),
    panel("server", 5, "serverStatus (in the role clusterMonitor)", server),
    panel("policies", 2, "serverStatus (in the role clusterMonitor)", policies),
    panel("operations", 2, "inprog (in the role clusterMonitor)", operations),
    panel("backup", 10, "serverStatus (in the role clusterMonitor)", backup),
    panel("log", 5, "getLog (in the role clusterMonitor)", log),
    panel("shapes", 10, "queryStatsRead (in the role clusterMonitor)", shapes),
    panel("disk", 30, "serverStatus (in the role clusterMonitor)", storage::disk),
    panel(
        "collections",
        300,
        "listDatabases and collStats (in the role clusterMonitor)",
        storage::collections,
    ),
];

/// What the server is, and the state of its process, disk and connections.
fn server(site: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let status = command("admin", "serverStatus", 1, |doc| {
        for section in OMITTED {
            doc.append(section, 0);
        }
    });
    let mut answer = object(reader.run(&status)?.as_doc());
    answer["mayflydb"] = json!(env!("CARGO_PKG_VERSION"));
    answer["readOnly"] = json!(site.is_read_only);
    answer["user"] = match reader.connection.access.user() {
        Some(user) => json!(user.name.to_string()),
        None => Value::Null,
    };
    answer["certificateEndsMs"] = match site.service.transport.get().and_then(|it| it.certificate())
    {
        Some(certificate) => json!(certificate.expires_ms),
        None => Value::Null,
    };
    answer["logWindowSecs"] = json!(super::metrics::log_window_secs(&site.service));
    Ok(answer)
}

/// The page's first sentence, and the TTL policies with the most lag, with their state and their
/// last hour.
fn policies(site: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let limit = site.policies.due_limit();
    let mut doc = mayfly_value::DocBuilder::new();
    doc.start_document("ttlStatus").append("dueLimit", limit).end().append("$db", "admin");
    let reply = reader.run(&doc.finish())?;
    let reply = reply.as_doc();
    let is_disk_nearly_full = site.is_disk_nearly_full.load(Ordering::Relaxed);
    let around = Circumstances { is_disk_nearly_full, ..Circumstances::of(&site.service) };
    let (mood, sentence) = expiry_line(reply, &around);
    let mut all: Vec<RawDoc<'_>> = documents(reply, "policies").collect();
    let overdue = |policy: &RawDoc<'_>| double(*policy, "oldestOverdueSecs").unwrap_or(-1.0);
    all.sort_by(|one, other| overdue(other).total_cmp(&overdue(one)));
    let omitted = all.len().saturating_sub(MAX_POLICIES);
    all.truncate(MAX_POLICIES);
    let listed: Vec<Value> = all
        .into_iter()
        .map(|policy| {
            let mut listed = object(policy);
            let name = |field| policy.get(field).and_then(RawValue::as_str).unwrap_or_default();
            listed["state"] = json!(PolicyState::of(reply, policy, &around).word());
            listed["line"] = site.policies.line(name("ns"), name("index"));
            listed
        })
        .collect();
    let field = |name: &str| reply.get(name).map_or(Value::Null, value);
    Ok(json!({
        "mood": mood.name(), "sentence": sentence, "policies": listed, "omitted": omitted, "totals": field("totals"),
        "suspended": field("suspended"), "full": is_disk_nearly_full,
    }))
}

/// The points of the plots since the last event.
fn points(site: &Site, peer: &Peer, _: &Reader, place: &Place) -> Result<Value, CommandError> {
    if let Err((_, text)) = site.check_right(peer) {
        return Err(CommandError { code: 13, text });
    }
    let now = site.service.clock.now_ms();
    // The first event has the whole hour, later ones what is new.
    let latest = place.latest_point.load(Ordering::Relaxed);
    let is_first = latest == 0;
    let since = if is_first { now - history::HOUR_MS } else { latest + 1 };
    let window = site.samples.series(history::SHOWN, since, now);
    place.latest_point.store(window.times.last().copied().unwrap_or(now), Ordering::Relaxed);
    let mut points = history::to_json(&history::thinned(window));
    points["whole"] = json!(is_first);
    Ok(points)
}

/// The running operations of clients and of the server, the longest first. Cursors that wait for
/// data come after the others.
fn operations(_: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let reply = reader.run(&command("admin", "currentOp", 1, |doc| {
        doc.append("$truncateOps", true);
    }))?;
    let own = reader.connection.id;
    let mut all: Vec<Value> = documents(reply.as_doc(), "inprog")
        .filter(|op| long(*op, "connectionId") != Some(own))
        .map(|op| {
            let of = |name: &str| op.get(name).map_or(Value::Null, value);
            let command = match op.get("command") {
                Some(RawValue::Document(command)) => text(command),
                _ => String::new(),
            };
            let cursor = op.get("cursor").and_then(RawValue::as_document);
            let awaits = cursor.and_then(|it| it.get("awaitData")) == Some(RawValue::Bool(true));
            json!({
                "awaits": awaits, "opid": of("opid"), "op": of("op"), "ns": of("ns"), "desc": of("desc"),
                "client": of("client"), "app": of("appName"), "micros": of("microsecs_running"),
                "plan": of("planSummary"), "command": command, "msg": of("msg"),
                "killPending": of("killPending"), "active": of("active"),
            })
        })
        .collect();
    let micros = |op: &Value| op["micros"].as_i64().unwrap_or(0);
    all.sort_by_key(|op| (op["awaits"] == true, std::cmp::Reverse(micros(op))));
    let total = all.len();
    all.truncate(MAX_OPERATIONS);
    Ok(json!({ "operations": all, "total": total }))
}

fn backup(_: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let reply = reader.run(&command("admin", "backupStatus", 1, |_| {}))?;
    Ok(object(reply.as_doc()))
}

/// The latest warnings and errors of the log. Its lines are JSON already.
fn log(_: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let warnings = |of: &str| -> Result<Vec<Value>, CommandError> {
        let reply = reader.run(&command("admin", "getLog", of, |_| {}))?;
        let Some(RawValue::Array(lines)) = reply.as_doc().get("log") else { return Ok(Vec::new()) };
        let parsed = lines.iter().filter_map(|line| line.value().as_str().and_then(warning));
        Ok(parsed.collect())
    };
    let mut lines = warnings("global")?;
    let from = lines.len().saturating_sub(MAX_LINES);
    lines.drain(..from);
    lines.reverse();
    Ok(json!({ "lines": lines, "startup": warnings("startupWarnings")? }))
}

/// The shown fields of a log line, if it is a warning or an error.
fn warning(line: &str) -> Option<Value> {
    // Most lines are neither; they need not be parsed.
    let severities = [r#""s":"W""#, r#""s":"E""#, r#""s":"F""#];
    if !severities.iter().any(|severity| line.contains(severity)) {
        return None;
    }
    let parsed: Value = serde_json::from_str(line).ok()?;
    let severity = parsed.get("s")?.as_str().filter(|it| matches!(*it, "W" | "E" | "F"))?;
    let attributes = parsed.get("attr").and_then(Value::as_object).into_iter().flatten();
    // The list of startup warnings is separate.
    let attributes = attributes.filter(|(name, _)| *name != "startupWarning");
    let attributes: Vec<String> = attributes
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}: {text}"),
            other => format!("{name}: {other}"),
        })
        .collect();
    Some(json!({
        "severity": severity,
        "time": parsed.pointer("/t/$date"),
        "component": parsed.get("c"),
        "text": shortened(parsed.get("msg")?.as_str()?),
        "attributes": shortened(&attributes.join(", ")),
    }))
}

/// The shapes of slow queries, by their total time.
fn shapes(_: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let reply = reader.run(&aggregate("admin", None, |doc| {
        doc.push_document().start_document("$queryStats").end().end();
        doc.push_document().start_document("$match").start_document("metrics.slowExecCount");
        doc.append("$gt", 0).end().end().end();
        doc.push_document().append("$limit", MAX_SHAPES).end();
    }))?;
    // The stage returns those with the most time first.
    let shapes: Vec<Value> = first_batch(reply.as_doc()).map(object).collect();
    Ok(json!({ "shapes": shapes }))
}

/// An aggregation of one batch: on a collection, or on the database.
fn aggregate(
    db: &str,
    collection: Option<&str>,
    stages: impl FnOnce(&mut mayfly_value::DocBuilder),
) -> DocBuf {
    let on = collection.map_or(RawValue::Int32(1), RawValue::String);
    command(db, "aggregate", on, |doc| {
        doc.start_array("pipeline");
        stages(doc);
        doc.end().start_document("cursor").append("batchSize", 10_000).end();
    })
}

fn first_batch(reply: RawDoc<'_>) -> impl Iterator<Item = RawDoc<'_>> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    documents(cursor, "firstBatch")
}

fn documents<'d>(doc: RawDoc<'d>, name: &str) -> impl Iterator<Item = RawDoc<'d>> {
    let array = doc.get(name).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    array.iter().filter_map(|element| element.value().as_document())
}

fn double(doc: RawDoc<'_>, name: &str) -> Option<f64> {
    match doc.get(name)? {
        RawValue::Double(number) => Some(number),
        RawValue::Int32(number) => Some(f64::from(number)),
        RawValue::Int64(number) => Some(number as f64),
        _ => None,
    }
}

fn long(doc: RawDoc<'_>, name: &str) -> Option<i64> {
    double(doc, name).map(|number| number as i64)
}

//! Records finished commands: their time for `top` and `opLatencies`; a log line and a document in
//! `system.profile` if the command was slow or its database is profiled.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{ErrorCode, Result};
use mayfly_query::QueryShape;
use mayfly_service::query_settings::namespace_of;
use mayfly_service::top::{Done, Scan, Use};
use mayfly_service::{Connection, Service};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use crate::diagnostics::scale::small;
use crate::request::row::{Names, Reads};
use crate::request::{OpKind, Request, RowFlags};
use crate::rules::redaction;
use mayfly_value::arguments::convert::{truth, whole_number};

/// The largest command in the log and in the profile, in bytes. The text of a larger one is cut.
const MAX_COMMAND_BYTES: usize = 50 * 1024;
/// The id of the log line in the reference.
const SLOW_QUERY_ID: i64 = 51803;

/// A finished command, before its reply is closed.
pub(crate) struct Observed<'a> {
    pub(crate) service: &'a Service,
    pub(crate) connection: &'a Connection,
    pub(crate) op: &'a OpCtx,
    pub(crate) request: &'a Request<'a>,
    /// The reply so far.
    pub(crate) reply: &'a DocBuilder,
    pub(crate) result: &'a Result<()>,
    /// The length of the reply's buffer at the beginning of the command.
    pub(crate) began_at: usize,
}

impl Observed<'_> {
    /// Records the command.
    pub(crate) fn note(&self) {
        let micros = self.op.worked_micros();
        let namespace = self.collection().map(|collection| (self.request.db, collection));
        let reads = self.request.row.reads.contains(Reads::COUNTED);
        let done = Done { kind: self.usage(), reads, micros, scan: self.scan() };
        let exists = |name: &str| self.service.has_namespace(name);
        self.service.top.record(namespace, done, exists);
        self.service.metrics.count_memory(self.op);
        if self.service.profiler.may_record(micros) {
            self.record(micros);
        }
    }

    /// The kind of collection scan that it did.
    fn scan(&self) -> Scan {
        let mut scans = false;
        self.op.update_info(|info| scans = info.plan_summary.is_collection_scan());
        if !scans {
            return Scan::None;
        }
        match self.request.body.get("tailable") {
            Some(RawValue::Bool(true)) => Scan::Tailing,
            _ => Scan::Ending,
        }
    }

    /// The collection that it concerns.
    fn collection(&self) -> Option<&str> {
        let row = self.request.row;
        let named = match row.kind {
            // A command on `admin` concerns the server.
            OpKind::Command if row.flags.contains(RowFlags::ADMIN_ONLY) => None,
            OpKind::Command if row.names == Names::Word => None,
            _ => row.names.value_in(self.request.body).and_then(RawValue::as_str),
        };
        named.filter(|name| !name.is_empty())
    }

    fn usage(&self) -> Use {
        match self.request.row.kind {
            OpKind::Insert => Use::Insert,
            OpKind::Query => Use::Queries,
            OpKind::Update => Use::Update,
            OpKind::Delete => Use::Remove,
            OpKind::GetMore => Use::GetMore,
            OpKind::Command => Use::Commands,
        }
    }

    fn record(&self, micros: i64) {
        let mut described = None;
        let mut describe = || described.get_or_insert_with(|| self.document(micros)).clone();
        let profiler = &self.service.profiler;
        let targets = profiler.targets(self.request.db, micros, &mut describe);
        if targets.log {
            self.log(describe().as_doc(), micros);
        }
        // While `fsync` holds its lock nothing is written, and the profiler drops the document.
        let writing = self.service.store.fsync_lock.try_enter();
        let is_profiled = !self.request.row.flags.contains(RowFlags::NOT_PROFILED);
        if !(targets.profile && is_profiled) || writing.is_none() {
            return;
        }
        let op = OpCtx::detached(self.service.clock.clone());
        let kept = profiler.keep(&self.service.store, &op, self.request.db, describe().as_doc());
        if let Err(error) = kept {
            tracing::debug!(%error, "an operation could not be written to system.profile");
        }
    }

    fn log(&self, about: RawDoc<'_>, micros: i64) {
        let number = |name: &str| about.get(name).and_then(whole_number).unwrap_or(0);
        let command = about.get("command").and_then(RawValue::as_document);
        tracing::info!(
            id = SLOW_QUERY_ID,
            component = "COMMAND",
            ctx = &**self.connection.desc(),
            r#type = "command",
            ns = about.get("ns").and_then(RawValue::as_str).unwrap_or_default(),
            appName = self.connection.app_name(),
            command = redaction::logged(command.unwrap_or(RawDoc::EMPTY)).as_str(),
            planSummary = about.get("planSummary").and_then(RawValue::as_str).unwrap_or_default(),
            keysExamined = number("keysExamined"),
            docsExamined = number("docsExamined"),
            queryShapeHash = about.get("queryShapeHash").and_then(RawValue::as_str),
            planCacheShapeHash = about.get("planCacheShapeHash").and_then(RawValue::as_str),
            planCacheKey = about.get("planCacheKey").and_then(RawValue::as_str),
            fromMultiPlanner = self.op.planning.by_trial.load(Relaxed).then_some(true),
            replanReason = self.op.planning.replan_reason(),
            hasSortStage = self.op.has_sort_stage.load(Relaxed).then_some(true),
            usedDisk = (!self.op.spills.is_empty()).then_some(true),
            nreturned = number("nreturned"),
            reslen = number("responseLength"),
            protocol = "op_msg",
            durationMillis = micros / 1000,
            "Slow query"
        );
    }

    /// Builds the document for `system.profile`.
    fn document(&self, micros: i64) -> DocBuf {
        let info = self.op.info();
        let mut doc = DocBuilder::new();
        doc.append("op", info.op).append("ns", info.ns.as_str());
        match self.statement() {
            Some(statement) => append_command(statement.as_doc(), &mut doc),
            None => {
                let body = redaction::shown(self.request.row, self.request.body);
                append_command(RawDoc::new(&body).unwrap_or(RawDoc::EMPTY), &mut doc);
            }
        }
        let count = |counter: &std::sync::atomic::AtomicU64| {
            small(i64::try_from(counter.load(Relaxed)).unwrap_or(i64::MAX))
        };
        doc.append("keysExamined", count(&self.op.keys_examined));
        doc.append("docsExamined", count(&self.op.docs_examined));
        self.append_memory(&mut doc);
        self.append_planning(&mut doc);
        if self.result.is_ok() {
            self.append_results(&mut doc);
        }
        doc.append("numYield", count(&self.op.yields));
        if let Some(shape) = self.shape() {
            doc.append("queryShapeHash", shape.hash().to_string().as_str());
        }
        doc.append("locks", RawDoc::EMPTY);
        let length = self.reply.len().saturating_sub(self.began_at);
        doc.append("responseLength", small(length as i64)).append("protocol", "op_msg");
        doc.append("millis", small(micros / 1000));
        if !info.plan_summary.is_empty() {
            doc.append("planSummary", &*info.plan_summary);
        }
        if let Err(error) = self.result {
            doc.append("ok", 0.0).append("errMsg", error.message());
            doc.append("errName", error.code().name().as_ref()).append("errCode", error.code().0);
        }
        doc.append("ts", RawValue::Date(self.service.clock.now_ms()));
        doc.append("client", self.connection.client.rsplit_once(':').map_or("", |(ip, _)| ip));
        let app_name = self.connection.app_name();
        if !app_name.is_empty() {
            doc.append("appName", app_name.as_str());
        }
        let user = self.connection.access.user();
        doc.start_array("allUsers");
        if let Some(user) = &user {
            doc.push_document().append("user", user.name.user.as_str());
            doc.append("db", user.name.db.as_str()).end();
        }
        doc.end();
        let shown = user.map(|user| user.name.to_string()).unwrap_or_default();
        doc.append("user", shown.as_str());
        doc.finish()
    }

    /// The only statement of an update or a delete, with its defaults, as the reference shows it.
    fn statement(&self) -> Option<DocBuf> {
        let (list, defaults): (_, &[_]) = match self.request.row.kind {
            OpKind::Update => ("updates", &["multi", "upsert"]),
            OpKind::Delete => ("deletes", &[]),
            _ => return None,
        };
        let mut statements = self.request.documents(list).ok()??;
        let (Some(only), None) = (statements.next(), statements.next()) else { return None };
        let mut out = DocBuilder::new();
        only.iter().filter(|field| !defaults.contains(&field.name())).for_each(|field| {
            out.append_element(field);
        });
        for name in defaults {
            out.append(name, only.get(name).and_then(truth).unwrap_or(false));
        }
        if let Some(comment) = self.request.body.get_element("comment") {
            out.append_element(comment);
        }
        Some(out.finish())
    }

    /// The query shape, if the query was valid.
    fn shape(&self) -> Option<QueryShape> {
        let checked = match self.result {
            Ok(()) => true,
            Err(error) => error.code() == ErrorCode::QueryRejectedBySettings,
        };
        let ns = namespace_of(self.request.db, self.request.target()).filter(|_| checked)?;
        QueryShape::of(self.request.row.name, &ns, self.request.body)
    }

    /// Appends what it sorted and spilled.
    fn append_memory(&self, doc: &mut DocBuilder) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        if self.op.has_sort_stage.load(Relaxed) {
            doc.append("hasSortStage", true);
            doc.append("sortTotalDataSizeBytes", number(self.op.bytes_sorted.load(Relaxed)));
        }
        if self.op.spills.is_empty() {
            return;
        }
        doc.append("usedDisk", true);
        for operator in Operator::ALL {
            let (name, spilled) = (operator.name(), self.op.spills.of(operator));
            if spilled.spills > 0 {
                doc.append(&format!("{name}Spills"), number(spilled.spills));
                doc.append(&format!("{name}SpilledBytes"), number(spilled.bytes));
                doc.append(&format!("{name}SpilledRecords"), number(spilled.records));
                doc.append(&format!("{name}SpilledDataStorageSize"), number(spilled.file_bytes));
            }
        }
    }

    /// Appends how its plan was chosen.
    fn append_planning(&self, doc: &mut DocBuilder) {
        let planning = &self.op.planning;
        let (shape, key) = (planning.keys.0.load(Relaxed), planning.keys.1.load(Relaxed));
        if (shape, key) != (0, 0) {
            doc.append("planCacheShapeHash", format!("{shape:08X}").as_str());
            doc.append("planCacheKey", format!("{key:08X}").as_str());
        }
        if planning.by_trial.load(Relaxed) {
            doc.append("fromMultiPlanner", true);
        }
        if planning.from_cache.load(Relaxed) {
            doc.append("fromPlanCache", true);
        }
        if let Some(reason) = planning.replan_reason() {
            doc.append("replanned", true).append("replanReason", reason.as_str());
        }
    }

    /// Appends the results in the reply.
    fn append_results(&self, doc: &mut DocBuilder) {
        let reply = self.reply.closed_copy();
        let reply = reply.as_doc();
        let n = reply.get("n").and_then(whole_number).map(small);
        match (self.request.row.kind, n) {
            (OpKind::Insert, Some(n)) => {
                doc.append("ninserted", n);
            }
            (OpKind::Delete, Some(n)) => {
                doc.append("ndeleted", n);
            }
            (OpKind::Update, Some(n)) => {
                let modified = reply.get("nModified").and_then(whole_number).unwrap_or(0);
                let upserted = reply.get("upserted").and_then(RawValue::as_array);
                let upserted = upserted.map_or(0, |list| list.iter().count() as i64);
                doc.append("nMatched", n).append("nModified", small(modified));
                doc.append("nUpserted", small(upserted));
            }
            _ => {}
        }
        if let Some(RawValue::Document(last)) = reply.get("lastErrorObject") {
            append_found_and_modified(last, doc);
        }
        let Some(cursor) = reply.get("cursor").and_then(RawValue::as_document) else { return };
        let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"));
        if let Some(RawValue::Int64(id)) = cursor.get("id") {
            match id {
                0 => doc.append("cursorExhausted", true),
                id => doc.append("cursorid", id),
            };
        }
        if let Some(RawValue::Array(batch)) = batch {
            doc.append("nreturned", small(batch.iter().count() as i64));
        }
    }
}

/// Appends a command, or the beginning of its text.
fn append_command(command: RawDoc<'_>, doc: &mut DocBuilder) {
    if command.as_bytes().len() <= MAX_COMMAND_BYTES {
        doc.append("command", command);
        return;
    }
    let text = Shell(command).to_string();
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=MAX_COMMAND_BYTES).rev().find(is_end).unwrap_or(0);
    doc.start_document("command").append("$truncated", &text[..end]).end();
}

/// Appends the counts of `findAndModify`.
fn append_found_and_modified(last: RawDoc<'_>, doc: &mut DocBuilder) {
    let n = last.get("n").and_then(whole_number).unwrap_or(0);
    match last.get("updatedExisting") {
        Some(RawValue::Bool(existing)) => {
            let found = if existing { n } else { 0 };
            doc.append("nMatched", small(found)).append("nModified", small(found));
            doc.append("nUpserted", small(n - found));
        }
        _ => drop(doc.append("ndeleted", small(n))),
    }
}

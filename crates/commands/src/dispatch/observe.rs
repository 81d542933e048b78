//! Records finished commands: their time for `top` and `opLatencies`; a log line and a document in
//! `system.profile` if the command was slow or its database is profiled; slow and sampled ones by
//! query shape. Of commands with encrypted values only the time is recorded.

mod shapes;

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{ErrorCode, Result};
use mayfly_query::QueryShape;
use mayfly_service::query_settings::namespace_of;
use mayfly_service::top::{Done, Scan, Use};
use mayfly_service::{Connection, Metrics, Service, Shapes};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use crate::context::{Effects, StatementFigures};
use crate::diagnostics::scale::small;
use crate::request::row::{Names, Reads};
use crate::request::{OpKind, Request, RowFlags};
use crate::rules::redaction;
use mayfly_value::arguments::convert::{truth, whole_number};

/// The largest command in the profile, in bytes. The text of a larger one is cut.
const MAX_PROFILED_BYTES: usize = 50 * 1024;
/// The same in the log (the default of `maxLogSizeKB`).
const MAX_LOGGED_BYTES: usize = 10 * 1024;
/// The only field of a command that was cut: the beginning of its text.
const TRUNCATED: &str = "$truncated";
/// The id of the log line in the reference.
const SLOW_QUERY_ID: i64 = 51803;

/// A finished command, before its reply is closed.
pub(crate) struct Observed<'a> {
    pub(crate) service: &'a Service,
    pub(crate) connection: &'a Connection,
    pub(crate) op: &'a OpCtx,
    pub(crate) request: &'a Request<'a>,
    pub(crate) effects: &'a Effects,
    /// The reply so far.
    pub(crate) reply: &'a DocBuilder,
    pub(crate) result: &'a Result<()>,
    /// The length of the reply's buffer at the beginning of the command.
    pub(crate) began_at: usize,
}

/// One of several statements, as it is shown.
struct Part {
    figures: StatementFigures,
    shown: DocBuf,
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
        self.count_scan(done.scan);
        self.service.metrics.count_work(self.op);
        let profiler = &self.service.profiler;
        let has_shape = profiler.is_slow(micros) || Shapes::samples(self.op.id());
        let is_recorded = profiler.may_record(micros);
        if !(has_shape || is_recorded) || redaction::is_encrypted(self.request) {
            return;
        }
        if has_shape {
            self.record_shape(micros);
        }
        if is_recorded {
            self.record(micros);
        }
    }

    /// Counts a collection scan, and a read by its read concern.
    #[inline(always)]
    fn count_scan(&self, scan: Scan) {
        let Metrics { query_executor, read_concerns, .. } = &self.service.metrics;
        if scan != Scan::None {
            query_executor.collection_scans.add(1);
            query_executor.non_tailable_scans.add(u64::from(scan == Scan::Ending));
        }
        if self.request.row.reads.contains(Reads::DEFAULTS) {
            read_concerns[self.request.generic.read_concern.counted_at()].add(1);
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
        let mut describe = || described.get_or_insert_with(|| self.document(micros, None)).clone();
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
        let keep = |about: &DocBuf| {
            let kept = profiler.keep(&self.service.store, &op, self.request.db, about.as_doc());
            if let Err(error) = kept {
                tracing::debug!(%error, "an operation could not be written to system.profile");
            }
        };
        let parts = self.parts();
        if parts.is_empty() {
            keep(&describe());
        }
        parts.iter().for_each(|part| keep(&self.document(part.figures.micros, Some(part))));
    }

    /// The statements of an update or a delete that has several.
    fn parts(&self) -> Vec<Part> {
        let figures = self.effects.take_statements();
        let statements = self.statement_list().map(Iterator::collect::<Vec<_>>);
        let statements = statements.unwrap_or_default();
        let parts = figures.into_iter().zip(statements);
        parts.map(|(figures, given)| Part { figures, shown: self.shown_statement(given) }).collect()
    }

    fn log(&self, about: RawDoc<'_>, micros: i64) {
        let number = |name: &str| about.get(name).and_then(whole_number).unwrap_or(0);
        let command = about.get("command").and_then(RawValue::as_document);
        let command = shortened(command.unwrap_or(RawDoc::EMPTY), MAX_LOGGED_BYTES);
        tracing::info!(
            id = SLOW_QUERY_ID,
            component = "COMMAND",
            ctx = &**self.connection.desc(),
            r#type = "command",
            ns = about.get("ns").and_then(RawValue::as_str).unwrap_or_default(),
            appName = self.connection.app_name(),
            command = redaction::logged(command.as_doc()).as_str(),
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

    /// Builds the document for `system.profile`, of the command or of one of its statements.
    fn document(&self, micros: i64, part: Option<&Part>) -> DocBuf {
        let info = self.op.info();
        let mut doc = DocBuilder::new();
        doc.append("op", info.op).append("ns", info.ns.as_str());
        let statement = part.is_none().then(|| self.statement()).flatten();
        match part.map(|part| &part.shown).or(statement.as_ref()) {
            Some(statement) => append_command(statement.as_doc(), &mut doc),
            None => {
                let body = redaction::shown(self.request.row, self.request.body);
                append_command(RawDoc::new(&body).unwrap_or(RawDoc::EMPTY), &mut doc);
            }
        }
        if let Some(origin) = info.originating_command.as_deref().and_then(RawDoc::new) {
            doc.append("originatingCommand", origin);
        }
        let whole = |number: u64| small(i64::try_from(number).unwrap_or(i64::MAX));
        let (keys, docs) = match part {
            Some(Part { figures, .. }) => (figures.keys_examined, figures.docs_examined),
            None => (self.op.keys_examined.load(Relaxed), self.op.docs_examined.load(Relaxed)),
        };
        doc.append("keysExamined", whole(keys)).append("docsExamined", whole(docs));
        self.append_memory(&mut doc);
        self.append_planning(&mut doc);
        let error = match part {
            Some(part) => {
                self.append_part(part, &mut doc);
                part.figures.outcome.as_ref().err()
            }
            None => self.result.as_ref().err(),
        };
        if part.is_none() && error.is_none() {
            self.append_results(&mut doc);
        }
        doc.append("numYield", whole(self.op.yields.load(Relaxed)));
        if let Some(shape) = self.shape() {
            doc.append("queryShapeHash", shape.hash().to_string().as_str());
        }
        doc.append("locks", RawDoc::EMPTY);
        let length = self.reply.len().saturating_sub(self.began_at);
        doc.append("responseLength", small(length as i64)).append("protocol", "op_msg");
        doc.append("millis", small(micros / 1000));
        let plan_summary = part.map_or(&info.plan_summary, |part| &part.figures.plan_summary);
        if !plan_summary.is_empty() {
            doc.append("planSummary", &**plan_summary);
        }
        if let Some(error) = error {
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

    /// The statements of an update or a delete.
    fn statement_list(&self) -> Option<impl Iterator<Item = RawDoc<'_>>> {
        let list = match self.request.row.kind {
            OpKind::Update => "updates",
            OpKind::Delete => "deletes",
            _ => return None,
        };
        self.request.documents(list).ok()?
    }

    /// The only statement of an update or a delete.
    fn statement(&self) -> Option<DocBuf> {
        let mut statements = self.statement_list()?;
        let (Some(only), None) = (statements.next(), statements.next()) else { return None };
        Some(self.shown_statement(only))
    }

    /// A statement with its defaults, as the reference shows it.
    fn shown_statement(&self, only: RawDoc<'_>) -> DocBuf {
        let defaults: &[&str] = match self.request.row.kind {
            OpKind::Update => &["multi", "upsert"],
            _ => &[],
        };
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
        out.finish()
    }

    /// Appends the counts of one of several statements.
    fn append_part(&self, part: &Part, doc: &mut DocBuilder) {
        let Ok([matched, modified, upserted]) = part.figures.outcome else { return };
        match self.request.row.kind {
            OpKind::Delete => drop(doc.append("ndeleted", small(matched))),
            _ => {
                doc.append("nMatched", small(matched)).append("nModified", small(modified));
                doc.append("nUpserted", small(upserted));
            }
        }
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
                let matched = whole_number(n).unwrap_or(0) - upserted;
                doc.append("nMatched", small(matched)).append("nModified", small(modified));
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
    match command.as_bytes().len() <= MAX_PROFILED_BYTES {
        true => doc.append("command", command),
        false => doc.append("command", shortened(command, MAX_PROFILED_BYTES).as_doc()),
    };
}

/// The command, or a document with the beginning of its text if it has more bytes.
fn shortened(command: RawDoc<'_>, most_bytes: usize) -> DocBuf {
    if command.as_bytes().len() <= most_bytes {
        return command.to_owned();
    }
    let mut text = Beginning { text: String::new(), left: most_bytes };
    let written = match command.get(TRUNCATED).and_then(RawValue::as_str) {
        Some(before) => text.write_str(before),
        None => write!(text, "{}", Shell(command)),
    };
    // It ends with an error where the text is cut.
    let _ = written;
    let mut doc = DocBuilder::new();
    doc.append(TRUNCATED, text.text.as_str());
    doc.finish()
}

/// A writer that keeps the first bytes of a text and fails at the first one beyond them, so that a
/// long command is not formatted as a whole.
struct Beginning {
    text: String,
    left: usize,
}

impl fmt::Write for Beginning {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let boundary = |at: &usize| part.is_char_boundary(*at);
        let end = (0..=self.left.min(part.len())).rev().find(boundary).unwrap_or(0);
        self.text.push_str(&part[..end]);
        self.left -= end;
        if end < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut() {
        let mut long = DocBuilder::new();
        long.append("insert", "c").append("text", "ä".repeat(40_000).as_str());
        let long = long.finish();
        let shown = |most: usize| {
            let cut = shortened(long.as_doc(), most);
            cut.as_doc().get(TRUNCATED).and_then(RawValue::as_str).map(str::to_owned)
        };
        assert_eq!(shown(100_000), None);
        assert_eq!(shortened(long.as_doc(), 100_000), long);
        let text = shown(1000).unwrap();
        assert!(text.starts_with("{ insert: \"c\", text: \"ä"), "{text}");
        assert!((998..=1000).contains(&text.len()), "{}", text.len());
        // What was cut is cut again.
        let cut = shortened(long.as_doc(), 1000);
        let again = shortened(cut.as_doc(), 100);
        let again = again.as_doc().get(TRUNCATED).and_then(RawValue::as_str).unwrap();
        assert!(text.starts_with(again) && again.len() >= 98, "{again}");
    }
}

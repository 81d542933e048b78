//! `currentOp` and `killOp`: what runs now. `$currentOp` lists the same documents.
//!
//! The TTL monitor is listed even when it sleeps, so that users can see that expiry runs.

use mayfly_value::arguments::Argument;
use mayfly_value::arguments::error::mistyped;
use std::collections::HashSet;

use mayfly_auth::{Action, Target, UserName};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_service::{Authority, ClientInfo, Service, TransactionInfo};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::op::{OpInfo, OpProgress};

use super::open_cursors::{append_cursor, idle_cursors};
use crate::context::{Command, CommandContext};
use crate::request::generic::is_generic;
use crate::request::row::{Names, RowFlags};
use crate::request::{Demands, Needs, Request};
use crate::rules::transaction::{append_transaction, time_text};
use mayfly_value::arguments::convert::whole_number;

/// How the monitor calls itself.
const TTL_MONITOR: &str = "TTLMonitor";
/// The field that asks for the client's own operations.
const OWN: &str = "$ownOps";
/// Longest command shown with `truncateOps`.
const TRUNCATED_COMMAND_BYTES: usize = 1000;

pub(crate) const ROW: Command =
    Command::new("currentOp", "Lists the operations that run now", run_current_op)
        .needs(Needs::Demands(demand))
        .since("3.2")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(crate) const KILL_OP: Command = Command::new("killOp", "Ends an operation", run_kill_op)
    .arguments(&[Argument::any("op"), Argument::any("maxTimeMSOpOnly")])
    .needs(Needs::InHandler)
    .since("3.2")
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
    .names(Names::Word);

/// A client may see its own operations without a right.
fn demand(demands: &mut Demands<'_>, request: &Request<'_>) {
    let repeats = request.body.iter().filter(|field| field.name() == OWN).count() > 1;
    if repeats || !is_set(request.body, OWN) {
        demands.need(Target::Cluster, Action::Inprog);
    }
}

/// The user whose operations are listed.
#[derive(Clone, Debug, Default)]
pub enum OperationOwner {
    /// All that there are.
    #[default]
    All,
    /// The operations of one user, on all its connections.
    User(UserName),
}

impl OperationOwner {
    /// The operations that the client of a command may see: its own user's, or all without access
    /// control.
    pub fn of(ctx: &CommandContext<'_>) -> OperationOwner {
        match &ctx.authority {
            Authority::User(user) => OperationOwner::User(user.name.clone()),
            Authority::Unrestricted | Authority::FirstUser | Authority::NotAuthenticated => {
                OperationOwner::All
            }
        }
    }

    /// Whether a cursor of this user is listed.
    pub(crate) fn includes_cursor_of(&self, user: Option<&UserName>) -> bool {
        match self {
            OperationOwner::All => true,
            OperationOwner::User(name) => user == Some(name),
        }
    }

    fn includes(&self, service: &Service, connection: i64) -> bool {
        match self {
            OperationOwner::All => true,
            OperationOwner::User(name) => service
                .connections
                .get(connection)
                .and_then(|connection| connection.access.user())
                .is_some_and(|user| user.name == *name),
        }
    }
}

/// Which operations to list.
#[derive(Clone, Debug, Default)]
pub struct CurrentOpOptions {
    /// The user whose operations are listed; those of others are left out.
    pub whose: OperationOwner,
    /// Connections and background tasks that do nothing now, too.
    pub idle_connections: bool,
    /// Open cursors of which no batch runs, too.
    pub idle_cursors: bool,
    /// Open transactions of which no statement runs, too.
    pub idle_sessions: bool,
    /// Leave long commands out.
    pub truncate_ops: bool,
}

/// The documents of `$currentOp`.
pub fn current_ops(service: &Service, options: &CurrentOpOptions) -> Vec<DocBuf> {
    let is_selected = |connection| options.whose.includes(service, connection);
    let mut list = Vec::new();
    let mut busy = HashSet::new();
    let mut monitor_works = false;
    for op in service.ops.list_all() {
        let info = op.info();
        busy.insert(info.connection_id);
        monitor_works |= *info.desc == *TTL_MONITOR;
        if !is_selected(info.connection_id) {
            continue;
        }
        list.push(active(service, &op, &info, options));
    }
    if options.idle_sessions {
        let inactive = service.sessions.transactions.inactive(&*service.clock);
        let inactive = inactive.iter().filter(|one| is_selected(one.beginning.connection_id));
        list.extend(inactive.map(|transaction| inactive_transaction(service, transaction)));
    }
    if options.idle_cursors {
        list.extend(idle_cursors(service, &options.whose));
    }
    if !options.idle_connections {
        return list;
    }
    for connection in service.connections.list() {
        if !busy.contains(&connection.id) && is_selected(connection.id) {
            let mut doc = begin(service, connection.desc());
            doc.append("connectionId", connection.id);
            append_client(&mut doc, &connection.client, &connection.info());
            doc.append("active", false);
            doc.append("currentOpTime", time_text(service.clock.now_ms()).as_str());
            list.push(doc.finish());
        }
    }
    if !monitor_works && is_selected(0) {
        let mut doc = begin(service, TTL_MONITOR);
        doc.append("active", false);
        doc.append("currentOpTime", time_text(service.clock.now_ms()).as_str());
        append_system_user(&mut doc);
        list.push(doc.finish());
    }
    list
}

fn begin(service: &Service, desc: &str) -> DocBuilder {
    let mut doc = DocBuilder::new();
    doc.append("type", "op");
    doc.append("host", service.host.as_str());
    doc.append("desc", desc);
    doc
}

fn inactive_transaction(service: &Service, transaction: &TransactionInfo) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("type", "idleSession");
    doc.append("host", service.host.as_str());
    doc.append("desc", "inactive transaction");
    let beginning = &transaction.beginning;
    let connection = service.connections.get(beginning.connection_id);
    let said = connection.map(|connection| connection.info()).unwrap_or_default();
    append_client(&mut doc, &beginning.client, &said);
    doc.append("connectionId", beginning.connection_id);
    doc.append("lsid", &beginning.lsid);
    append_transaction(&mut doc, transaction);
    doc.append("waitingForLock", false).append("active", false);
    doc.append("locks", RawDoc::EMPTY).append("lockStats", RawDoc::EMPTY);
    doc.finish()
}

fn active(service: &Service, op: &OpCtx, info: &OpInfo, options: &CurrentOpOptions) -> DocBuf {
    let mut doc = begin(service, &info.desc);
    if info.connection_id != 0 {
        doc.append("connectionId", info.connection_id);
        let connection = service.connections.get(info.connection_id);
        let said = connection.as_ref().map(|it| it.info()).unwrap_or_default();
        append_client(&mut doc, &info.client, &said);
        if let Some(user) = connection.and_then(|connection| connection.access.user()) {
            doc.start_array("effectiveUsers").push_document();
            doc.append("user", user.name.user.as_str()).append("db", user.name.db.as_str());
            doc.end().end();
        }
    }
    doc.append("active", true);
    doc.append("currentOpTime", time_text(service.clock.now_ms()).as_str());
    if info.connection_id == 0 {
        append_system_user(&mut doc);
    }
    doc.append("opid", op.id());
    if let Some(lsid) = RawDoc::new(&info.lsid) {
        doc.append("lsid", lsid);
    }
    let micros = op.shown_micros();
    doc.append("secs_running", micros / 1_000_000).append("microsecs_running", micros);
    doc.append("op", info.op);
    doc.append("ns", info.ns.as_str());
    let shown = RawDoc::new(&info.command).filter(|command| {
        !options.truncate_ops || command.as_bytes().len() <= TRUNCATED_COMMAND_BYTES
    });
    doc.append("command", shown.unwrap_or(RawDoc::EMPTY));
    if let Some(origin) = info.originating_command.as_deref().and_then(RawDoc::new) {
        doc.start_document("cursor");
        let id = shown.and_then(|command| command.get("getMore"));
        let open = id.and_then(whole_number).and_then(|id| service.cursors.find(id));
        match (open, id) {
            (Some(cursor), _) => append_cursor(&mut doc, service, &cursor),
            (None, Some(id)) => drop(doc.append("cursorId", id)),
            (None, None) => {}
        }
        doc.append("originatingCommand", origin).end();
    }
    if !info.plan_summary.is_empty() {
        doc.append("planSummary", &*info.plan_summary);
    }
    if let Some(progress) = &info.progress {
        append_progress(&mut doc, progress);
    }
    if op.is_killed() {
        doc.append("killPending", true);
    }
    let count = |counter: &std::sync::atomic::AtomicU64| {
        i64::try_from(counter.load(std::sync::atomic::Ordering::Relaxed)).unwrap_or(i64::MAX)
    };
    doc.append("numYields", i32::try_from(count(&op.yields)).unwrap_or(i32::MAX));
    doc.append("keysExamined", count(&op.keys_examined));
    doc.append("docsExamined", count(&op.docs_examined));
    doc.append("locks", RawDoc::EMPTY);
    doc.append("waitingForLock", false);
    doc.append("lockStats", RawDoc::EMPTY);
    if let Some(extra) = RawDoc::new(&info.extra) {
        doc.append_all(extra);
    }
    doc.finish()
}

/// Appends the progress as the reference does: phase and numbers in one text, and the numbers once
/// more.
fn append_progress(doc: &mut DocBuilder, progress: &OpProgress) {
    let OpProgress { message, done, total } = progress;
    let percent = (done * 100).checked_div(*total).unwrap_or(0);
    doc.append("msg", format!("{message} {message}: {done}/{total} {percent}%").as_str());
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    doc.start_document("progress").append("done", number(*done)).append("total", number(*total));
    doc.end();
}

fn append_client(doc: &mut DocBuilder, client: &str, info: &ClientInfo) {
    doc.append("client", client);
    if !info.app_name.is_empty() {
        doc.append("appName", info.app_name.as_str());
    }
    if let Some(metadata) = &info.metadata {
        doc.append("clientMetadata", metadata);
    }
}

fn append_system_user(doc: &mut DocBuilder) {
    doc.start_array("effectiveUsers").push_document();
    doc.append("user", "__system").append("db", "local");
    doc.end().end();
}

/// Whether a field is true, or another value that the shell sends for true.
fn is_set(body: RawDoc<'_>, name: &str) -> bool {
    match body.get(name) {
        Some(RawValue::Bool(flag)) => flag,
        Some(value) => whole_number(value).is_some_and(|number| number != 0),
        None => false,
    }
}

/// The filter of a command: all fields that are neither options nor generic arguments. Manual:
/// "currentOp", "Syntax".
///
/// # Errors
/// Errors of the query language.
fn filter(request: &Request<'_>) -> Result<Matcher> {
    let options = [OWN, "$all", "$truncateOps", "truncateOps"];
    let mut filter = DocBuilder::new();
    for field in request.body.iter().skip(1) {
        if !options.contains(&field.name()) && !is_generic(field.name_bytes()) {
            filter.append_element(field);
        }
    }
    Matcher::parse(filter.finish().as_doc(), &ParseContext::default())
}

fn run_current_op(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let truthy = |name| is_set(request.body, name);
    let own = is_set(request.body, OWN);
    let options = CurrentOpOptions {
        whose: if own { OperationOwner::of(ctx) } else { OperationOwner::All },
        idle_connections: truthy("$all"),
        idle_cursors: false,
        idle_sessions: true,
        truncate_ops: truthy("$truncateOps") || truthy("truncateOps"),
    };
    let filter = filter(request)?;
    doc.start_array("inprog");
    for op in current_ops(ctx.service, &options) {
        if !filter.matches(op.as_doc())? {
            continue;
        }
        let id = op.as_doc().get("connectionId").and_then(whole_number);
        // Without users a client's own operations are those of its connection.
        if !own || ctx.authority.is_limited() || id == Some(ctx.connection.id) {
            doc.push(&op);
        }
    }
    doc.end();
    if ctx.service.store.fsync_lock.count() > 0 {
        doc.append("fsyncLock", true);
        doc.append("info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
    }
    Ok(())
}

fn run_kill_op(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    let Some(id) = fields.get("op").and_then(whole_number) else {
        return Err(match fields.get("op") {
            Some(value) => {
                let text = format!(
                    "\"op\" had the wrong type. Expected number, found {}",
                    value.type_name()
                );
                mistyped(text)
            }
            None => Error::new(ErrorCode::NoSuchKey, "Missing expected field \"op\""),
        });
    };
    let Ok(id) = i32::try_from(id) else {
        return Err(Error::bad_value(format!(
            "invalid op : {id}. Op ID cannot be represented with 32 bits"
        )));
    };
    let is_own = ctx.service.ops.list_all().iter().any(|op| {
        op.id() == id
            && matches!(OperationOwner::of(ctx), whose @ OperationOwner::User(_)
                if whose.includes(ctx.service, op.info().connection_id))
    });
    if !is_own {
        ctx.permit(request, Target::Cluster, Action::KillOp)?;
    }
    doc.append("info", "attempting to kill op");
    // An operation that is not there is not an error: it may have ended while the command was on
    // its way.
    ctx.service.ops.kill(id, ErrorCode::Interrupted);
    Ok(())
}

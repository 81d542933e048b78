//! The effects of fail points on commands; see [`mayfly_service::fail_points`] for the points
//! themselves.
//!
//! Dispatch calls this module only while a point is set. The data of a point is not checked when it
//! is set, as in the reference: a field with another type counts as absent.

use mayfly_storage::ReadView;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{Connection, FailPoint, Service};
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};
use mayfly_work::{OpCtx, current};

use crate::context::CommandContext;
use crate::request::{Request, RowFlags};
use crate::rules::repeat::is_worth_repeating;

/// The interval at which a blocked command checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The effects of fail points on dispatch, besides the error.
#[derive(Default)]
pub(crate) struct Faults {
    hangs_up: bool,
    /// Set by a statement that closes the connection.
    by_statement: Option<Arc<AtomicBool>>,
}

impl Faults {
    /// Whether the connection is closed without a reply.
    pub(crate) fn hangs_up(&self) -> bool {
        self.hangs_up
            || self.by_statement.as_ref().is_some_and(|hang_up| hang_up.load(Ordering::Relaxed))
    }

    /// Passes the points before a command.
    ///
    /// # Errors
    /// The error that `failCommand` requests, 50 MaxTimeMSExpired.
    #[cold]
    #[inline(never)]
    pub(crate) fn before(
        &mut self,
        service: &Service,
        connection: &Connection,
        op: &OpCtx,
        request: &Request<'_>,
    ) -> Result<()> {
        let acts = |data: RawDoc<'_>| {
            let asks = flag(data, "closeConnection") || flag(data, "blockConnection");
            asks || code(data, "errorCode").is_some()
        };
        let meant = |data: RawDoc<'_>| acts(data) && matches_data(data, connection, request);
        let Some(data) = service.fail_points.pass(FailPoint::Command, meant) else {
            return Ok(());
        };
        let data = data.as_doc();
        let name = request.row.name;
        tracing::info!(command = name, "the fail point 'failCommand' fired");
        if flag(data, "blockConnection") {
            block(op, data)?;
        }
        if flag(data, "closeConnection") {
            self.hangs_up = true;
            let text =
                format!("Failing command '{name}' via 'failCommand' failpoint: closing connection");
            return Err(Error::new(ErrorCode(50985), text));
        }
        let Some(code) = code(data, "errorCode") else { return Ok(()) };
        let mut error = Error::new(code, "Failing command via 'failCommand' failpoint");
        if let Some(extra) = data.get("errorExtraInfo").and_then(RawValue::as_document) {
            error = error.with_extra(extra.as_bytes().to_vec());
        }
        Err(match labels(data) {
            Some(labels) => error.with_only_labels(labels),
            None => error,
        })
    }

    /// Makes each statement with an effect pass the point of retryable writes. The unit of a
    /// statement may run more than once, but passes the point once.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch_statements(
        &mut self,
        service: &Service,
        request: &Request<'_>,
        view: &mut ReadView,
    ) {
        if request.generic.txn_number.is_none() {
            return;
        }
        let points = service.fail_points.clone();
        let hang_up = self.by_statement.get_or_insert_default().clone();
        let last: Mutex<Option<(i32, Option<ErrorCode>)>> = Mutex::new(None);
        view.set_before_record(Box::new(move |statement| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let fails = match *last {
                Some((id, fails)) if id == statement => fails,
                _ => {
                    let data = points.pass(FailPoint::PrimaryTransactionalWrite, |_| true);
                    let data = data.as_ref().map(|data| data.as_doc());
                    if data.is_some_and(|data| {
                        data.get("closeConnection") != Some(RawValue::Bool(false))
                    }) {
                        hang_up.store(true, Ordering::Relaxed);
                    }
                    data.and_then(|data| code(data, "failBeforeCommitExceptionCode"))
                }
            };
            *last = Some((statement, fails));
            let text = "Failing the write due to the fail point 'onPrimaryTransactionalWrite'";
            fails.map_or(Ok(()), |code| Err(Error::new(code, text)))
        }));
    }
}

/// Passes `failCommand` after a command has run, and appends its write concern error to the reply.
#[cold]
#[inline(never)]
pub(crate) fn after(
    service: &Service,
    connection: &Connection,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) {
    let concern = |data: RawDoc<'_>| data.get("writeConcernError").is_some();
    let meant = |data: RawDoc<'_>| concern(data) && matches_data(data, connection, request);
    let Some(data) = service.fail_points.pass(FailPoint::Command, meant) else { return };
    let data = data.as_doc();
    let Some(error) = data.get("writeConcernError") else { return };
    reply.append("writeConcernError", error);
    let repeatable = || {
        let code = error.as_document().and_then(|error| code(error, "code"));
        let code = code.filter(|code| is_worth_repeating(*code, request.row, request.body));
        code.map(|_| mayfly_base::ErrorLabel::RetryableWrite.as_str().to_owned())
    };
    let labels = labels(data).unwrap_or_else(|| repeatable().into_iter().collect());
    if !labels.is_empty() {
        reply.start_array("errorLabels");
        for label in &labels {
            reply.push(label.as_str());
        }
        reply.end();
    }
}

/// Sets the time limit of an operation, which fail points may remove or turn into an error.
///
/// # Errors
/// 50 MaxTimeMSExpired.
#[cold]
#[inline(never)]
pub(crate) fn limited(service: &Service, op: &OpCtx, max_time_ms: i64) -> Result<()> {
    let points = &service.fail_points;
    if points.pass(FailPoint::MaxTimeAlwaysTimeOut, |_| true).is_some() {
        return Err(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
    }
    if points.pass(FailPoint::MaxTimeNeverTimeOut, |_| true).is_none() {
        op.set_max_time_ms(max_time_ms);
    }
    Ok(())
}

/// Passes the point of a `getMore` that has taken its cursor.
///
/// # Errors
/// The error that the point requests.
#[cold]
#[inline(never)]
pub(crate) fn get_more(ctx: &CommandContext<'_>) -> Result<()> {
    let points = &ctx.service.fail_points;
    let data = points.pass(FailPoint::GetMoreAfterCursorCheckout, |_| true);
    let Some(data) = data else { return Ok(()) };
    let data = data.as_doc();
    let text = "Failing getMore via 'failGetMoreAfterCursorCheckout' failpoint";
    if flag(data, "closeConnection") {
        ctx.effects.hang_up();
        return Err(Error::new(ErrorCode(50985), text));
    }
    match code(data, "errorCode") {
        Some(code) => Err(Error::new(code, text)),
        None => Ok(()),
    }
}

/// Whether all conditions in the point's data match this command.
fn matches_data(data: RawDoc<'_>, connection: &Connection, request: &Request<'_>) -> bool {
    let row = request.row;
    if row.flags.contains(RowFlags::NEVER_FAILS) {
        return false;
    }
    if let Some(app) = data.get("appName").and_then(RawValue::as_str)
        && app != app_name(connection, request)
    {
        return false;
    }
    if let Some(namespace) = data.get("namespace").and_then(RawValue::as_str)
        && !is_over(request, namespace)
    {
        return false;
    }
    if flag(data, "failAllCommands") {
        return true;
    }
    let names = data.get("failCommands").and_then(RawValue::as_array);
    names.into_iter().flatten().any(|name| {
        let name = name.value().as_str();
        name.is_some_and(|name| name == row.name || row.aliases.contains(&name))
    })
}

/// The application's name; in a first handshake, that in the command.
fn app_name(connection: &Connection, request: &Request<'_>) -> String {
    let known = connection.app_name();
    if !known.is_empty() || !request.row.flags.contains(RowFlags::HANDSHAKE) {
        return known;
    }
    let client = request.body.get("client").and_then(RawValue::as_document);
    let application = client.and_then(|client| client.get("application")?.as_document());
    let name = application.and_then(|application| application.get("name")?.as_str());
    name.unwrap_or_default().to_owned()
}

/// Whether the command concerns this collection, or this database if it names no collection.
fn is_over(request: &Request<'_>, namespace: &str) -> bool {
    let collection = request.row.names.value_in(request.body).and_then(RawValue::as_str);
    match (namespace.strip_prefix(request.db), collection) {
        (Some(rest), Some(collection)) => rest.strip_prefix('.') == Some(collection),
        (Some(rest), None) => rest.is_empty(),
        (None, _) => false,
    }
}

/// Waits as long as the point specifies, or until the operation is killed.
fn block(op: &OpCtx, data: RawDoc<'_>) -> Result<()> {
    let Some(ms) = number(data, "blockTimeMS") else {
        let text = "'failCommand' with blockConnection needs blockTimeMS";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    };
    current::wait(|| {
        let mut left = Duration::from_millis(ms.max(0).unsigned_abs());
        while !left.is_zero() {
            op.check()?;
            let step = left.min(CHECK_INTERVAL);
            std::thread::sleep(step);
            left -= step;
        }
        op.check()
    })
}

fn flag(data: RawDoc<'_>, name: &str) -> bool {
    match data.get(name) {
        Some(RawValue::Bool(flag)) => flag,
        Some(value) => {
            mayfly_value::arguments::convert::whole_number(value).is_some_and(|number| number != 0)
        }
        None => false,
    }
}

fn number(data: RawDoc<'_>, name: &str) -> Option<i64> {
    data.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact)
}

/// An error code other than 0.
fn code(data: RawDoc<'_>, name: &str) -> Option<ErrorCode> {
    let code = number(data, name).and_then(|code| i32::try_from(code).ok());
    code.filter(|code| *code != 0).map(ErrorCode)
}

/// The labels in the data, which replace the server's own.
fn labels(data: RawDoc<'_>) -> Option<Vec<String>> {
    let labels = data.get("errorLabels").and_then(RawValue::as_array)?;
    let text = |label: mayfly_value::RawElement<'_>| label.value().as_str().map(str::to_owned);
    Some(labels.iter().filter_map(text).collect())
}

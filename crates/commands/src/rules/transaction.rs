//! Statements of multi-document transactions: the commands that can be statements, their sessions,
//! and the errors after which a client may retry the whole transaction. Manual: "Transactions",
//! "Production Considerations".
//!
//! 1. [`validate`] refuses commands that cannot be statements; the transaction is unaffected.
//! 2. [`check_out`] checks the session out and begins or continues the transaction.
//! 3. Dispatch enters the transaction, runs the handler, and leaves the transaction ([`leave`])
//!    before anything else is written on the thread.
//! 4. Any error of the statement aborts the transaction, including errors in `writeErrors`: a
//!    failed unit may have written a part, which can only be rolled back with the whole
//!    transaction.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, ErrorLabel, Result};
use mayfly_service::sharding::SHARD;
use mayfly_service::{Beginning, CheckedOut, Connection, Service, TransactionInfo};
use mayfly_storage::{ReadView, StoreSession};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::request::row::InTransaction;
use crate::request::{Generic, ReadLevel, Request, Row, TransactionPart};
use crate::rules::repeat::TRY_AGAIN;

/// Collections that transactions cannot use.
const UNTOUCHED: &[&str] = &["system.profile", "system.views"];

/// The reference's text of a write conflict.
const CONFLICT: &str = "WriteConflict error: this operation conflicted with another operation. Please retry your \
                        operation or multi-document transaction.";

/// Refuses commands that cannot be statements, and removes the transaction from informational
/// commands.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction, 72 InvalidOptions for concerns that are not allowed.
#[cold]
pub(crate) fn validate(
    service: &Service,
    generic: &mut Generic<'_>,
    (row, db, body): (&Row, &str, RawDoc<'_>),
) -> Result<()> {
    let Some(part) = generic.transaction else { return Ok(()) };
    let refused =
        |text: String| Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text));
    let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    let name = row.name;
    match row.in_transaction {
        InTransaction::LaterStatement | InTransaction::Ends if part == TransactionPart::Begins => {
            return refused(format!(
                "Cannot run {name} as the first operation in a multi-document transaction."
            ));
        }
        InTransaction::Statement
        | InTransaction::Definition
        | InTransaction::LaterStatement
        | InTransaction::Ends => {}
        InTransaction::Informational if part == TransactionPart::Continues => {
            (generic.transaction, generic.txn_number) = (None, None);
            return Ok(());
        }
        InTransaction::Informational | InTransaction::Refused => {
            return refused(format!("Cannot run '{name}' in a multi-document transaction."));
        }
        InTransaction::RefusedWith(advice) => {
            return refused(format!(
                "Cannot run '{name}' in a multi-document transaction. {advice}"
            ));
        }
    }
    let target = row.names.value_in(body);
    check_namespace(db, target.and_then(RawValue::as_str).unwrap_or_default())?;
    for (db, collection) in row.names.listed_in(body).filter_map(|name| name.split_once('.')) {
        check_namespace(db, collection)?;
    }
    if generic.write_concern.given && row.in_transaction != InTransaction::Ends {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    let concern = body.get("readConcern").and_then(RawValue::as_document);
    if concern.is_some_and(|concern| !concern.is_empty()) && part == TransactionPart::Continues {
        return invalid("Only the first command in a transaction may specify a readConcern");
    }
    match generic.read_concern.level {
        ReadLevel::Local | ReadLevel::Majority | ReadLevel::Snapshot => {
            generic.read_concern.check_after(service)
        }
        ReadLevel::Available | ReadLevel::Linearizable => invalid(
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction",
        ),
    }
}

fn check_namespace(db: &str, collection: &str) -> Result<()> {
    let what = match db {
        "local" => "the 'local' database".to_owned(),
        "config" => "the config database".to_owned(),
        _ if UNTOUCHED.contains(&collection) => format!("the '{db}.{collection}' collection"),
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorCode::OperationNotSupportedInTransaction,
        format!("Cannot run command against {what} in a transaction."),
    ))
}

/// Checks out the session of a statement, and begins its transaction if it is the first statement.
///
/// # Errors
/// Errors of [`mayfly_service::Sessions::check_out_transaction`], and of a read concern with a
/// time.
#[cold]
pub(crate) fn check_out(
    service: &Service,
    op: &OpCtx,
    connection: &Connection,
    request: &Request<'_>,
) -> Result<Option<CheckedOut>> {
    let generic = &request.generic;
    let (Some(part), Some(session), Some(number)) =
        (generic.transaction, generic.lsid, generic.txn_number)
    else {
        return Ok(None);
    };
    let concern = request.body.get("readConcern").and_then(RawValue::as_document);
    let beginning = (part == TransactionPart::Begins).then(|| Beginning {
        lsid: session.to_document(),
        read_concern: concern.map_or_else(DocBuf::empty, RawDoc::to_owned),
        client: connection.client.clone(),
        connection_id: connection.id,
    });
    let begins = beginning.is_some();
    let (store, sessions) = (&service.store, &service.sessions);
    let mut session = sessions.check_out_transaction(store, op, (session, number), beginning)?;
    let at = generic.read_concern.at;
    if begins
        && at > 0
        && let Err(error) = store.check_shows(session.read_time(), at)
    {
        session.abort_open();
        return Err(error);
    }
    if let Some(shown) = session.shown(&*service.clock) {
        if request.row.in_transaction == InTransaction::Definition
            && let Err(error) = check_local(request.row.name, &shown.beginning)
        {
            session.abort_open();
            return Err(error);
        }
        let mut extra = DocBuilder::new();
        append_transaction(&mut extra, &shown);
        op.update_info(|info| info.extra = extra.finish().into_bytes());
    }
    Ok(Some(session))
}

/// Refuses definitions in a transaction that does not read locally. Manual: "Read Concern "local"",
/// "Read Concern local and Transactions".
fn check_local(command: &str, beginning: &Beginning) -> Result<()> {
    let concern = beginning.read_concern.as_doc();
    match concern.get("level").and_then(RawValue::as_str) {
        None | Some("local") => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "Command {command} does not support this transaction's {{ readConcern: {} }}",
                Shell(concern)
            ),
        )),
    }
}

/// Ends a statement with a reply of `reply_bytes` bytes: its transaction continues, or is aborted
/// if the statement failed.
#[cold]
pub(crate) fn leave(
    session: &mut CheckedOut,
    view: ReadView,
    op: &Arc<OpCtx>,
    reply_bytes: usize,
    (result, failed): (Result<()>, bool),
) -> Result<()> {
    match result {
        Ok(()) if !failed => session.leave(view, op, reply_bytes),
        Ok(()) => {
            drop(view);
            session.abort_open();
            Ok(())
        }
        Err(error) => {
            // The definitions that it used may have changed concurrently, which is the error to
            // report then.
            let gone =
                matches!(error.code(), ErrorCode::QueryPlanKilled | ErrorCode::NamespaceNotFound);
            let left = match gone {
                true => session.leave(view, op, reply_bytes),
                false => Ok(()),
            };
            session.abort_open();
            left.and(Err(error))
        }
    }
}

/// Whether an error of a statement lets the client retry the whole transaction, so that it must be
/// the error of the whole command.
pub(crate) fn ends_statement(store: StoreSession<'_>, error: &Error) -> bool {
    store.in_transaction() && is_transient(error.code(), false)
}

/// Whether the client may retry the whole transaction after this error code. Specification
/// "Transactions", "TransientTransactionError".
fn is_transient(code: ErrorCode, finishing: bool) -> bool {
    match code {
        ErrorCode::WriteConflict
        | ErrorCode::LockTimeout
        | ErrorCode::PreparedTransactionInProgress
        | ErrorCode::SnapshotTooOld
        | ErrorCode::SnapshotUnavailable
        | ErrorCode::NoSuchTransaction => true,
        // The outcome of the commit is unknown.
        ErrorCode::HostUnreachable
        | ErrorCode::NetworkTimeout
        | ErrorCode::ReadConcernMajorityNotAvailableYet => !finishing,
        _ => !finishing && TRY_AGAIN.contains(&code),
    }
}

/// Appends `recoveryToken` to the reply to a statement, a commit or an abort, as routers do. It
/// names the shard that knows the outcome of the transaction; a driver returns it with the commit.
/// Here each server knows the outcome from the session's record and ignores the token.
#[cold]
pub(crate) fn append_recovery_token(service: &Service, doc: &mut DocBuilder) {
    if service.replica_set.get().is_none() {
        doc.start_document("recoveryToken").append("recoveryShardId", SHARD).end();
    }
}

/// Adds the error labels of a statement, a commit or an abort, and sets the text of write
/// conflicts.
#[cold]
pub(crate) fn label(error: Error, row: &Row) -> Error {
    let finishing = row.in_transaction == InTransaction::Ends;
    let error = match error.code() {
        ErrorCode::WriteConflict => error.with_message(CONFLICT),
        _ => error,
    };
    if is_transient(error.code(), finishing) {
        return error.with_label(ErrorLabel::TransientTransaction);
    }
    match finishing && TRY_AGAIN.contains(&error.code()) {
        true => error.with_label(ErrorLabel::RetryableWrite),
        false => error,
    }
}

/// Appends `transaction` for `currentOp`.
pub(crate) fn append_transaction(doc: &mut DocBuilder, transaction: &TransactionInfo) {
    let TransactionInfo { number, beginning, open_micros, active_micros, .. } = transaction;
    doc.start_document("transaction").start_document("parameters");
    doc.append("txnNumber", *number).append("txnRetryCounter", 0).append("autocommit", false);
    doc.append("readConcern", &beginning.read_concern).end();
    doc.append("readTimestamp", RawValue::Timestamp(transaction.read_time));
    doc.append("startWallClockTime", time_text(transaction.started_ms).as_str());
    doc.append("timeOpenMicros", *open_micros).append("timeActiveMicros", *active_micros);
    doc.append("timeInactiveMicros", (open_micros - active_micros).max(0));
    doc.append("expiryTime", time_text(transaction.expires_ms).as_str()).end();
}

/// Formats a time as `2026-08-01T12:00:00.000+00:00`, as the reference does in `currentOpTime`.
pub(crate) fn time_text(now_ms: i64) -> String {
    let text = mayfly_value::bson::DateTime::from_millis(now_ms - now_ms.rem_euclid(1000));
    let text = text.try_to_rfc3339_string().unwrap_or_default();
    let millis = now_ms.rem_euclid(1000);
    format!("{}.{millis:03}+00:00", text.trim_end_matches('Z'))
}

//! Statements of transactions of several statements: which commands may be one, what their session says to them, and which of
//! their errors let the client begin the whole transaction again. Manual: "Transactions", "Production Considerations".
//!
//! 1. [`validate`] refuses what cannot be a statement at all; the transaction goes on as if it had not been sent.
//! 2. [`check_out`] takes the session and begins the transaction or goes on with it.
//! 3. The dispatcher enters it, runs the handler, and leaves it ([`leave`]) before anything else is written on its thread.
//! 4. Any error of the statement aborts the transaction, also one that stands in `writeErrors`: a unit that failed has written a
//!    part, and nothing takes that back but the end of all.

use std::cell::Cell;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, ErrorLabel, Result};
use mayfly_service::{Beginning, CheckedOut, Connection, Service};
use mayfly_storage::{EnteredTransaction, in_transaction};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::diagnostics::current_op::append_transaction;
use crate::generic::TransactionPart;
use crate::{Generic, ReadLevel, Request};

/// Commands that end a transaction.
const FINISHING: &[&str] = &["abortTransaction", "commitTransaction"];
/// Commands that may be statements.
const ALLOWED: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "coordinateCommitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "prepareTransaction",
    "update",
];
/// Commands that only tell something: between the statements, but none of them. Manual: "Transactions", "Informational Commands".
const HARMLESS: &[&str] = &["buildInfo", "connectionStatus", "hello", "isMaster", "ping"];
/// Collections that no transaction touches.
const UNTOUCHED: &[&str] = &["system.profile", "system.views"];

/// The reference's text of a conflict.
const CONFLICT: &str = "WriteConflict error: this operation conflicted with another operation. Please retry your \
                        operation or multi-document transaction.";

thread_local! {
    /// Whether a statement of the command that this thread runs has failed, though its reply says ok.
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the command ends its transaction.
pub(crate) fn is_finishing(name: &str) -> bool {
    FINISHING.contains(&name)
}

/// Refuses what cannot be a statement, and forgets the transaction of what may be sent beside its statements.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction, 72 InvalidOptions for concerns where they do not belong.
#[cold]
pub(crate) fn validate(
    service: &Service,
    generic: &mut Generic<'_>,
    (name, db, body): (&str, &str, RawDoc<'_>),
) -> Result<()> {
    let Some(part) = generic.transaction else { return Ok(()) };
    let refused =
        |text: String| Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text));
    let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    if name == "count" {
        return refused(
            "Cannot run 'count' in a multi-document transaction. Please see \
             http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
                .to_owned(),
        );
    }
    if HARMLESS.contains(&name) && part == TransactionPart::GoesOn {
        (generic.transaction, generic.txn_number) = (None, None);
        return Ok(());
    }
    if !ALLOWED.contains(&name) {
        return refused(format!("Cannot run '{name}' in a multi-document transaction."));
    }
    let first = body.iter().next().map(|element| element.value());
    let target = match name {
        "getMore" => body.get("collection"),
        _ => first,
    };
    check_namespace(db, target.and_then(RawValue::as_str).unwrap_or_default())?;
    if let (Some(RawValue::Array(infos)), "bulkWrite") = (body.get("nsInfo"), name) {
        let names = infos.iter().filter_map(|info| info.value().as_document()?.get("ns")?.as_str());
        for (db, collection) in names.filter_map(|name| name.split_once('.')) {
            check_namespace(db, collection)?;
        }
    }
    if generic.write_concern.given && !is_finishing(name) {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    let concern = body.get("readConcern").and_then(RawValue::as_document);
    if concern.is_some_and(|concern| !concern.is_empty()) && part == TransactionPart::GoesOn {
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

/// Takes the session of a statement, and begins its transaction when it is the first one.
///
/// # Errors
/// Those of [`mayfly_service::Sessions::check_out_transaction`], and of a read concern that names a time.
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
        let mut extra = DocBuilder::new();
        append_transaction(&mut extra, &shown);
        op.update_info(|info| info.extra = extra.finish().into_bytes());
    }
    Ok(Some(session))
}

/// Ends a statement, whose reply takes so many bytes: its transaction goes on, or is aborted when the statement failed.
#[cold]
pub(crate) fn leave(
    session: &mut CheckedOut,
    entered: EnteredTransaction,
    op: &Arc<OpCtx>,
    reply_bytes: usize,
    result: Result<()>,
) -> Result<()> {
    let failed = FAILED.take();
    match result {
        Ok(()) if !failed => session.leave(entered, op, reply_bytes),
        Ok(()) => {
            drop(entered);
            session.abort_open();
            Ok(())
        }
        Err(error) => {
            // What it worked on may have gone under it, which is something to say.
            let gone =
                matches!(error.code(), ErrorCode::QueryPlanKilled | ErrorCode::NamespaceNotFound);
            let left = match gone {
                true => session.leave(entered, op, reply_bytes),
                false => Ok(()),
            };
            session.abort_open();
            left.and(Err(error))
        }
    }
}

/// Notes that a statement of a write command failed; true inside a transaction, where nothing is done after a failure.
pub(crate) fn note_failure() -> bool {
    if !in_transaction() {
        return false;
    }
    FAILED.set(true);
    true
}

/// Whether an error of a statement lets the client begin the whole transaction again, so that the whole command says so.
pub(crate) fn ends_statement(error: &Error) -> bool {
    in_transaction() && is_transient(error.code(), false)
}

/// After which codes the client may begin the whole transaction again. Specification "Transactions", "TransientTransactionError".
fn is_transient(code: ErrorCode, finishing: bool) -> bool {
    match code {
        ErrorCode::WriteConflict
        | ErrorCode::LockTimeout
        | ErrorCode::PreparedTransactionInProgress
        | ErrorCode::SnapshotTooOld
        | ErrorCode::SnapshotUnavailable
        | ErrorCode::NoSuchTransaction => true,
        // What became of the commit is not known.
        ErrorCode::HostUnreachable
        | ErrorCode::NetworkTimeout
        | ErrorCode::ReadConcernMajorityNotAvailableYet => !finishing,
        _ => !finishing && crate::dispatch::TRY_AGAIN.contains(&code),
    }
}

/// Adds the labels of an error of a statement, or of a commit or abort, and gives conflicts their text.
#[cold]
pub(crate) fn label(error: Error, name: &str) -> Error {
    let finishing = is_finishing(name);
    let error = match error.code() {
        ErrorCode::WriteConflict => error.with_message(CONFLICT),
        _ => error,
    };
    if is_transient(error.code(), finishing) {
        return error.with_label(ErrorLabel::TransientTransaction);
    }
    match finishing && crate::dispatch::TRY_AGAIN.contains(&error.code()) {
        true => error.with_label(ErrorLabel::RetryableWrite),
        false => error,
    }
}

//! `releaseMemory`: moves what open cursors buffer from memory to files. Manual: "releaseMemory".

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{InTransaction, Names, Reads};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("releaseMemory", "Moves what open cursors buffer from memory to files", run)
        .needs(Needs::InHandler)
        .since("8.1")
        .names(Names::Word)
        .reads(Reads::empty())
        .in_transaction(InTransaction::Statement);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let RawValue::Array(list) = request.target() else {
        return Err(fields.wrong_or_missing(request.row.name, request.target(), "array"));
    };
    let mut ids = Vec::new();
    for element in list {
        let RawValue::Int64(id) = element.value() else {
            let path = format!("{0}.{0}.{1}", request.row.name, element.name());
            return Err(wrong_type(path, element.value(), "long"));
        };
        ids.push(id);
    }
    check_rights(ctx, request, &ids)?;
    let (mut released, mut missing, mut pinned) = (Vec::new(), Vec::new(), Vec::new());
    let mut failed = Vec::new();
    for id in ids {
        match ctx.service.cursors.borrow(id, |cursor| cursor.release(ctx.op)) {
            Ok(()) => released.push(id),
            Err(error) => match error.code() {
                ErrorCode::CursorNotFound => missing.push(id),
                ErrorCode::CursorInUse => pinned.push(id),
                _ => {
                    // An operation that has to end does not go on with the next cursor.
                    ctx.op.check()?;
                    failed.push((id, error));
                }
            },
        }
    }
    for (name, ids) in [
        ("cursorsReleased", released),
        ("cursorsNotFound", missing),
        ("cursorsCurrentlyPinned", pinned),
    ] {
        reply.start_array(name);
        for id in ids {
            reply.push(id);
        }
        reply.end();
    }
    reply.start_array("cursorsWithErrors");
    for (id, error) in failed {
        append_failure(id, &error, reply);
    }
    reply.end();
    Ok(())
}

/// Appends a cursor that kept its memory, and why.
fn append_failure(id: i64, error: &Error, reply: &mut DocBuilder) {
    reply.push_document();
    reply.append("cursorId", id).start_document("status");
    reply.append("ok", 0.0).append("errmsg", error.message());
    reply.append("code", error.code().0).append("codeName", error.code().name().as_ref());
    reply.end().end();
}

/// Checks the right to release the memory of all these cursors; those that do not exist need none.
///
/// # Errors
/// 13 Unauthorized.
fn check_rights(ctx: &CommandContext<'_>, request: &Request<'_>, ids: &[i64]) -> Result<()> {
    let action = Action::ReleaseMemoryAnyCursor;
    if ctx.authority.allows(Target::Cluster, action) {
        return Ok(());
    }
    for ns in ids.iter().filter_map(|id| ctx.service.cursors.namespace(*id)) {
        ctx.permit(request, Target::Collection(ns.db(), ns.collection()), action)?;
    }
    Ok(())
}

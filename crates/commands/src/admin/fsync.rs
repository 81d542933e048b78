//! `fsync` and `fsyncUnlock`: sync all data to disk, and block writes during a backup.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::{Argument, Form};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("fsync", "Syncs all data to disk, and can block writes", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Cluster(&[Action::Fsync]))
        .flags(RowFlags::ADMIN_ONLY)
        .reads(Reads::empty())
        .expected(Expected::Long);
pub(crate) const UNLOCK: Command =
    Command::new("fsyncUnlock", "Releases the lock of fsync", run_unlock)
        .needs(Needs::Cluster(&[Action::Unlock]))
        .since("3.2")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .reads(Reads::empty());

const ARGUMENTS: &[Argument] = &[
    Argument::flag("lock"),
    Argument::flag("async"),
    Argument::new("fsyncLockAcquisitionTimeoutMillis", Form::Int32),
    Argument::flag("forBackup"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let lock = fields.bool("lock")?.unwrap_or(false);
    if lock && fields.bool("async")?.unwrap_or(false) {
        let text = "fsync::lock cannot be used with the async option";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    if let Some(timeout) = fields.long("fsyncLockAcquisitionTimeoutMillis")?.filter(|ms| *ms > 0)
        && request.generic.max_time_ms == 0
    {
        ctx.op.set_max_time_ms(timeout);
    }
    let store = &ctx.service.store;
    if !lock {
        if let Err(error) = store.engine().sync() {
            return Err(Error::new(ErrorCode::OperationFailed, format!("cannot sync: {error}")));
        }
        doc.append("numFiles", 1);
        return Ok(());
    }
    let count = store.lock_for_copy(ctx.op)?;
    tracing::warn!(lockCount = count, "fsync blocks writes until fsyncUnlock");
    doc.append("info", "now locked against writes, use db.fsyncUnlock() to unlock");
    doc.append("lockCount", count);
    doc.append("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(())
}

fn run_unlock(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let Some(left) = ctx.service.store.unlock_after_copy()? else {
        let text = "fsyncUnlock called when not locked";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    };
    tracing::info!(lockCount = left, "fsyncUnlock completed");
    doc.append("info", "fsyncUnlock completed").append("lockCount", left);
    Ok(())
}

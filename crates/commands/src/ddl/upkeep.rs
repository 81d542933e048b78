//! `compact` and `reIndex`: commands that only change the storage of a collection.

use mayfly_value::arguments::Argument;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::Collection;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Writes};
use crate::request::{Needs, Request};

pub(super) const COMPACT: Command =
    Command::new("compact", "Frees unused disk space of a collection", compact)
        .arguments(ARGUMENTS)
        .needs(Needs::Collection(&[Action::Compact]))
        .expected(Expected::Long);
pub(super) const RE_INDEX: Command =
    Command::new("reIndex", "Rebuilds the indexes of a collection", re_index)
        .needs(Needs::Collection(&[Action::ReIndex]))
        .writes(Writes::Settings)
        .expected(Expected::Long);

/// The collection of a command that does not support views.
fn collection(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    act: &str,
) -> Result<Arc<Collection>> {
    let ns = request.namespace()?;
    let store = &ctx.service.store;
    if let Some(collection) = store.collection(ctx.store.view, &ns) {
        return Ok(collection);
    }
    Err(match store.view(ctx.store.view, &ns)? {
        Some(_) => {
            Error::new(ErrorCode::CommandNotSupportedOnView, format!("can't {act} a view: {ns}"))
        }
        None => Error::new(ErrorCode::NamespaceNotFound, "collection does not exist"),
    })
}
const ARGUMENTS: &[Argument] =
    &[Argument::flag("force"), Argument::flag("dryRun"), Argument::whole("freeSpaceTargetMB")];

/// Runs `compact`. The space that it frees is unknown before; therefore `freeSpaceTargetMB` only
/// skips a collection that is smaller than the target.
fn compact(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    fields.bool("force")?;
    let target_mb = fields.long("freeSpaceTargetMB")?;
    if let Some(target) = target_mb.filter(|target| *target < 1) {
        return Err(Error::bad_value(format!(
            "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{target}'"
        )));
    }
    let dry_run = fields.bool("dryRun")?.unwrap_or(false);
    let collection = collection(ctx, request, "compact")?;
    if dry_run {
        return Err(Error::not_implemented("the option 'dryRun' of 'compact'"));
    }
    let store = &ctx.service.store;
    let target = u64::try_from(target_mb.unwrap_or(0)).unwrap_or(0).saturating_mul(1 << 20);
    let freed = match target > 0 && store.engine_bytes(&collection)? < target {
        true => 0,
        false => store.compact(ctx.op, &collection)?,
    };
    reply.append("bytesFreed", i64::try_from(freed).unwrap_or(i64::MAX));
    Ok(())
}

fn re_index(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    if ctx.service.replica_set.get().is_some() {
        let text = "reIndex is only allowed on a standalone mongod instance.";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let collection = collection(ctx, request, "re-index")?;
    let before = collection.list_indexes().len() as i32;
    ctx.service.store.rebuild_indexes(ctx.op, &collection)?;
    let indexes = collection.list_indexes();
    reply.append("nIndexesWas", before).append("nIndexes", indexes.len() as i32);
    reply.start_array("indexes");
    for index in &indexes {
        reply.push(index);
    }
    reply.end();
    Ok(())
}

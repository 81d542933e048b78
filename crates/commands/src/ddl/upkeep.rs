//! `compact`, `autoCompact` and `reIndex`: commands that only change the storage of collections.

use mayfly_value::arguments::{Argument, Form};
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Compaction;
use mayfly_storage::Collection;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use mayfly_work::current;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags, Writes};
use crate::request::{Needs, Request};

pub(super) const COMPACT: Command =
    Command::new("compact", "Frees unused disk space of a collection", compact)
        .arguments(ARGUMENTS)
        .needs(Needs::Collection(&[Action::Compact]))
        .expected(Expected::Long);
pub(super) const AUTO_COMPACT: Command =
    Command::new("autoCompact", "Compacts all collections in the background", auto_compact)
        .arguments(&[Argument::whole("freeSpaceTargetMB").at_least(1), Argument::bool("runOnce")])
        .needs(Needs::Cluster(&[Action::Compact]))
        .since("8.0")
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const COMMIT_QUORUM: Command =
    Command::new("setIndexCommitQuorum", "Changes the quorum of an index build", commit_quorum)
        .arguments(&[
            Argument::array("indexNames").required(),
            Argument::one_of("commitQuorum", &[Form::String, Form::Whole]).required(),
        ])
        .needs(Needs::Collection(&[Action::CreateIndex]))
        .since("4.4");
pub(super) const RE_INDEX: Command =
    Command::new("reIndex", "Rebuilds the indexes of a collection", re_index)
        .needs(Needs::Collection(&[Action::ReIndex]))
        .writes(Writes::Settings)
        .expected(Expected::Long);

/// The default of `freeSpaceTargetMB` in `autoCompact`.
const DEFAULT_TARGET_MB: i64 = 20;

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
const ARGUMENTS: &[Argument] = &[
    Argument::flag("force"),
    Argument::flag("dryRun").since("8.0"),
    Argument::whole("freeSpaceTargetMB").at_least(1).since("8.0"),
];

/// Runs `compact`. The space that it frees is unknown before; therefore `freeSpaceTargetMB` only
/// skips a collection that is smaller than the target.
fn compact(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let target_mb = fields.long("freeSpaceTargetMB")?;
    let dry_run = fields.bool("dryRun")?.unwrap_or(false);
    let store = &ctx.service.store;
    let collection = match store.time_series_named(ctx.store.view, &request.namespace()?) {
        Some((buckets, _)) => buckets,
        None => collection(ctx, request, "compact")?,
    };
    if dry_run {
        return Err(Error::not_implemented("the option 'dryRun' of 'compact'"));
    }
    let target = u64::try_from(target_mb.unwrap_or(0)).unwrap_or(0).saturating_mul(1 << 20);
    let freed = match target > 0 && store.engine_bytes(&collection)? < target {
        true => 0,
        false => {
            // Under the lock of `fsync` no file changes.
            let _writing = current::wait(|| store.fsync_lock.enter(ctx.op))?;
            store.compact(ctx.op, &collection)?
        }
    };
    reply.append("bytesFreed", i64::try_from(freed).unwrap_or(i64::MAX));
    Ok(())
}

/// Manual: "autoCompact".
fn auto_compact(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name = request.row.name;
    let enables = match request.target() {
        RawValue::Bool(enables) => enables,
        other => return Err(fields.wrong_or_missing(name, other, "bool")),
    };
    if !enables {
        ctx.service.auto_compact.disable();
        return Ok(());
    }
    let target_mb = fields.long("freeSpaceTargetMB")?.unwrap_or(DEFAULT_TARGET_MB);
    let bytes = target_mb.checked_mul(1 << 20).and_then(|bytes| u64::try_from(bytes).ok());
    let Some(target_bytes) = bytes else {
        return Err(Error::bad_value(format!("freeSpaceTargetMB is too large: {target_mb}")));
    };
    let runs_once = fields.bool("runOnce")?.unwrap_or(false);
    ctx.service.enable_auto_compact(Compaction { target_bytes, runs_once })
}

/// One server commits its builds by itself, so a quorum has no effect on them.
fn commit_quorum(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    let collection = collection(ctx, request, "build an index on")?;
    let names = fields.array("indexNames")?.unwrap_or(RawDoc::EMPTY);
    let indexes = collection.indexes();
    let is_built = |name: RawValue<'_>| {
        let mut building = indexes.iter().filter(|index| !index.is_ready());
        building.any(|index| Some(index.spec.name()) == name.as_str())
    };
    if names.is_empty() || !names.iter().all(|name| is_built(name.value())) {
        let ns = collection.namespace();
        let text = format!(
            "Cannot find an index build on collection '{ns}' with the provided index names"
        );
        return Err(Error::new(ErrorCode::IndexNotFound, text));
    }
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

//! `renameCollection`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::sharding;
use mayfly_storage::{OPLOG, RenameTarget, TempMark};
use mayfly_value::arguments::convert::truth;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuilder, RawValue};

use super::encrypted_fields::is_encrypted;
use crate::context::{Command, CommandContext};
use crate::crud::check_writable;
use crate::request::row::{LogForm, Names, RowFlags, Writes};
use crate::request::{Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("renameCollection", "Renames a collection", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::rename))
    .flags(RowFlags::ADMIN_ONLY)
    .writes(Writes::Settings)
    .names(Names::FullName)
    .replayed(LogForm::DroppedByUuid, &[ErrorCode::NamespaceNotFound, ErrorCode::NamespaceExists]);
/// The collection of the profiler, whose changes are not logged.
const PROFILE: &str = "system.profile";

const ARGUMENTS: &[Argument] = &[
    Argument::string("to").required(),
    Argument::one_of("dropTarget", &[Form::Flag, Form::Uuid]).null_is_value(),
    Argument::bool("stayTemp"),
    Argument::uuid("collectionUUID"),
];

/// Refuses to rename system collections, and from the logged databases to `local` or back.
///
/// # Errors
/// 20 IllegalOperation.
fn check_system(from: &Namespace, to: &Namespace) -> Result<()> {
    let refused = |text: String| Err(Error::new(ErrorCode::IllegalOperation, text));
    if [from, to].iter().any(|ns| ns.as_str() == OPLOG) {
        return refused("can't rename live oplog while replicating".to_owned());
    }
    for (ns, place) in [(from, "source"), (to, "target")] {
        if let Err(error) = check_writable(ns)
            && ns.collection() != PROFILE
        {
            return refused(format!("error with {place} namespace: {}", error.message()));
        }
    }
    if from.as_str() == "admin.system.version" {
        let text =
            "renaming the server configuration collection (admin.system.version) is not allowed";
        return refused(text.to_owned());
    }
    for name in [mayfly_storage::SYSTEM_VIEWS, "system.js", "system.users"] {
        if from.collection() == name || to.collection() == name {
            return refused(format!(
                "renaming {name} collection or renaming to {name} is not allowed"
            ));
        }
    }
    let is_logged = |ns: &Namespace| ns.db() != "local" && ns.collection() != PROFILE;
    if is_logged(from) != is_logged(to) {
        let text = "Cannot rename collections between a replicated and an unreplicated database";
        return refused(text.to_owned());
    }
    Ok(())
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let RawValue::String(from) = request.target() else {
        return Err(fields.wrong_or_missing("renameCollection", request.target(), "string"));
    };
    let to = fields.string("to")?.unwrap_or_default();
    if [from, to].iter().any(|name| name.contains('$')) {
        let text = format!("collection names cannot contain '$': {from}, {to}");
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let (from, to) = (Namespace::parse(from)?, Namespace::parse(to)?);
    if [&from, &to].iter().any(|ns| TimeSeries::name_of(ns).is_some()) {
        let text = "Renaming system.buckets collections is not allowed";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    check_system(&from, &to)?;
    for (ns, text) in [
        (&from, "Cannot rename an encrypted collection"),
        (&to, "Cannot rename to an existing encrypted collection"),
    ] {
        if is_encrypted(ctx, ns) {
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
    }
    let source = fields.uuid("collectionUUID");
    let target = match (fields.uuid("dropTarget"), fields.get("dropTarget").and_then(truth)) {
        (Some(uuid), _) => RenameTarget::DroppedIfItIs(uuid),
        (None, Some(true)) => RenameTarget::Dropped,
        (None, _) => RenameTarget::MustNotExist,
    };
    let is_identified = source.is_some() || matches!(target, RenameTarget::DroppedIfItIs(_));
    if is_identified && from.db() != to.db() {
        let text = "a rename from one database to another cannot name UUIDs";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let mark = match fields.bool("stayTemp")? {
        Some(true) => TempMark::Kept,
        _ => TempMark::Removed,
    };
    ctx.service.store.rename_identified((&from, source), &to, target, mark)?;
    ctx.service.top.forget(from.as_str());
    ctx.service.top.forget(to.as_str());
    sharding::rename_collection(&ctx.service.store, ctx.op, &from, &to)?;
    Ok(())
}

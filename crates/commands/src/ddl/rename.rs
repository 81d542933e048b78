//! `renameCollection`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_storage::{OPLOG, RenameTarget};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

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
const ARGUMENTS: &[Argument] =
    &[Argument::string("to").required(), Argument::flag("dropTarget"), Argument::bool("stayTemp")];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let from = match request.target().as_str() {
        Some(from) => Namespace::parse(from)?,
        None => return Err(fields.wrong("renameCollection", request.target(), "string")),
    };
    let to = Namespace::parse(fields.string("to")?.ok_or_else(|| fields.missing("to"))?)?;
    check_writable(&to)?;
    if from.as_str() == OPLOG {
        let text = "can't rename live oplog while replicating";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let views = mayfly_storage::SYSTEM_VIEWS;
    if from.collection() == views || to.collection() == views {
        let text = "renaming system.views collection or renaming to system.views is not allowed";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    if [&from, &to].iter().any(|ns| TimeSeries::name_of(ns).is_some()) {
        let text = "Renaming system.buckets collections is not allowed";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let target = match fields.bool("dropTarget")? {
        Some(true) => RenameTarget::Dropped,
        _ => RenameTarget::MustNotExist,
    };
    ctx.service.store.rename_collection(&from, &to, target)?;
    ctx.service.top.forget(from.as_str());
    ctx.service.top.forget(to.as_str());
    Ok(())
}

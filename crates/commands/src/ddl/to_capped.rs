//! `convertToCapped` and `cloneCollectionAsCapped`.

use mayfly_auth::Action;
use mayfly_base::{ErrorCode, Namespace, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder};

use super::options::{capped_size, compact, invalid};
use crate::context::{Command, CommandContext};
use crate::crud::check_writable;
use crate::request::row::{Expected, LogForm, Reads, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const CONVERT: Command =
    Command::new("convertToCapped", "Converts a collection to a capped one", convert)
        .arguments(&[Argument::whole("size").required(), Argument::any("temp")])
        .needs(Needs::Collection(&[Action::ConvertToCapped]))
        .writes(Writes::Settings)
        .reads(Reads::empty())
        .expected(Expected::Long)
        .replayed(LogForm::Command, &[ErrorCode::NamespaceNotFound]);
pub(crate) const CLONE: Command =
    Command::new("cloneCollectionAsCapped", "Copies a collection into a capped one", clone)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands::clone_as_capped))
        .writes(Writes::Settings)
        .expected(Expected::Long);

fn convert(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    let options = capped_options(&fields)?;
    ctx.service.store.convert_collection(ctx.op, &ns, options.as_doc())?;
    Ok(())
}
const ARGUMENTS: &[Argument] = &[
    Argument::string("toCollection").required(),
    Argument::whole("size").required(),
    Argument::any("temp"),
];

fn clone(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let from = request.namespace()?;
    let to = fields.string("toCollection")?.ok_or_else(|| fields.missing("toCollection"))?;
    let to = Namespace::new(request.db, to)?;
    check_writable(&to)?;
    let options = capped_options(&fields)?;
    ctx.service.store.clone_collection(ctx.op, &from, &to, options.as_doc())?;
    Ok(())
}

fn capped_options(fields: &Fields<'_>) -> Result<DocBuf> {
    let size = fields.long("size")?.ok_or_else(|| fields.missing("size"))?;
    if size <= 0 {
        return Err(invalid("Capped collection size must be greater than zero"));
    }
    let mut options = DocBuilder::new();
    options.append("capped", true).append("size", compact(capped_size(size, "size")?));
    Ok(options.finish())
}

//! `convertToCapped` and `cloneCollectionAsCapped`.

use mayfly_auth::Action;
use mayfly_base::limits::MAX_NAMESPACE_BYTES;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_storage::SYSTEM_VIEWS;
use mayfly_value::arguments::Argument;
use mayfly_value::arguments::convert::whole_number;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::encrypted_fields::is_encrypted;
use super::options::{capped_size, compact, invalid};
use crate::context::{Command, CommandContext};
use crate::crud::{check_creatable, check_writable};
use crate::request::row::{Expected, LogForm, Reads, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const CONVERT: Command =
    Command::new("convertToCapped", "Converts a collection to a capped one", convert)
        .arguments(&[SIZE])
        .needs(Needs::Collection(&[Action::ConvertToCapped]))
        .flags(RowFlags::LENIENT)
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
    if let RawValue::String(name) = request.target()
        && name.contains('$')
    {
        let text = format!("source collection {}.{name} does not exist", request.db);
        return Err(Error::new(ErrorCode::NamespaceNotFound, text));
    }
    let ns = request.namespace()?;
    check_convertible(&ns)?;
    check_plain(ctx, &ns)?;
    let options = capped_options(&fields)?;
    ctx.service.store.convert_collection(ctx.op, &ns, options.as_doc())?;
    Ok(())
}

/// The size in bytes. The reference checks it after all other fields.
const SIZE: Argument = Argument::any("size");
const ARGUMENTS: &[Argument] =
    &[Argument::string("toCollection").required(), SIZE, Argument::any("temp")];

/// The bytes that the name of the reference's temporary collection has in addition:
/// `tmp<5 characters>.convertToCapped.<name>`.
const TEMPORARY_NAME_BYTES: usize = 25;

/// Checks that a collection of this name can be converted.
///
/// # Errors
/// 20 IllegalOperation, 2 BadValue, 73 InvalidNamespace.
fn check_convertible(ns: &Namespace) -> Result<()> {
    if TimeSeries::name_of(ns).is_some() {
        let text = "cannot convert the buckets of a time series to a capped collection";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    if ns.collection() == SYSTEM_VIEWS {
        return Err(Error::bad_value("system.views cannot be a capped collection"));
    }
    if ns.as_str().len() + TEMPORARY_NAME_BYTES > MAX_NAMESPACE_BYTES {
        let text = format!("the name {ns} is too long for the conversion's temporary collection");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    check_writable(ns)
}

/// Refuses a collection with encrypted fields.
///
/// # Errors
/// 6367302.
fn check_plain(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<()> {
    match is_encrypted(ctx, ns) {
        true => {
            let text = "Cannot convert an encrypted collection to a capped collection";
            Err(Error::new(ErrorCode(6367302), text))
        }
        false => Ok(()),
    }
}

fn clone(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let from = request.namespace()?;
    let to = fields.string("toCollection")?.ok_or_else(|| fields.missing("toCollection"))?;
    let to = Namespace::new(request.db, to)?;
    check_creatable(&to)?;
    check_plain(ctx, &from)?;
    let options = capped_options(&fields)?;
    ctx.service.store.clone_collection(ctx.op, &from, &to, options.as_doc())?;
    Ok(())
}

fn capped_options(fields: &Fields<'_>) -> Result<DocBuf> {
    let size = fields.get("size").and_then(whole_number);
    let size = size.ok_or_else(|| invalid("'size' must be a number of bytes"))?;
    if size <= 0 {
        return Err(invalid("Capped collection size must be greater than zero"));
    }
    let mut options = DocBuilder::new();
    options.append("capped", true).append("size", compact(capped_size(size)?));
    Ok(options.finish())
}

//! `convertToCapped` and `cloneCollectionAsCapped`.

use mayfly_auth::Action;
use mayfly_base::{Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder};

use super::options::{capped_size, compact, invalid};
use super::wrote;
use crate::access::demands;
use crate::crud::check_writable;
use crate::{CommandContext, Fields, Needs, Request, Row, RowFlags};

pub(crate) const CONVERT: Row = Row::new("convertToCapped", "Makes a collection capped", convert)
    .needs(Needs::Collection(&[Action::ConvertToCapped]))
    .flags(RowFlags::WRITE_CONCERN.and(RowFlags::MAY_BLOCK));
pub(crate) const CLONE: Row =
    Row::new("cloneCollectionAsCapped", "Copies a collection into a capped one", clone)
        .needs(Needs::Demands(demands::clone_as_capped))
        .flags(RowFlags::WRITE_CONCERN.and(RowFlags::MAY_BLOCK));

fn convert(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["size", "temp"])?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    let options = capped_options(&fields)?;
    ctx.service.store.convert_collection(ctx.op, &ns, options.as_doc())?;
    wrote(ctx, request);
    Ok(())
}

fn clone(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["toCollection", "size", "temp"])?;
    let from = request.namespace()?;
    let to = fields.string("toCollection")?.ok_or_else(|| fields.missing("toCollection"))?;
    let to = Namespace::new(request.db, to)?;
    check_writable(&to)?;
    let options = capped_options(&fields)?;
    ctx.service.store.clone_collection(ctx.op, &from, &to, options.as_doc())?;
    wrote(ctx, request);
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

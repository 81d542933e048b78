//! Explains commands on a view: the combined pipeline over the underlying collection.

use mayfly_base::{Error, Result};
use mayfly_storage::ResolvedView;
use mayfly_value::{DocBuilder, RawDoc};

use super::{Inner, OnView, pipeline};
use crate::context::CommandContext;
use crate::crud::{Collating, Stages, count_limit, count_on_view, decide_collation, reads_log};
use crate::request::Fields;

/// Explains a command on a view.
///
/// # Errors
/// 167 OptionNotSupportedOnView for another collation; errors of the command and of its stages.
pub(super) fn explain(
    ctx: &CommandContext<'_>,
    on_view: OnView,
    inner: Inner<'_>,
    view: &mut ResolvedView,
    doc: &mut DocBuilder,
) -> Result<()> {
    decide_collation(view, &inner.collating)?;
    if reads_log(view) {
        return Err(Error::not_implemented("explain of a read of the operation log"));
    }
    let stages = on_view(&inner.fields, view)?;
    let searched = stages.is_searching().then(|| view.clone());
    let (stages, of_view) = stages.finish();
    let collating = Collating::By(view.collation.clone());
    let below = Inner { ns: view.on.clone(), searched, collating, ..inner };
    pipeline::explain_stages(ctx, &below, (stages.as_doc(), of_view), doc)
}

/// The stages of `count`.
pub(super) fn count(fields: &Fields<'_>, view: &ResolvedView) -> Result<Stages> {
    let skip = fields.long("skip")?.unwrap_or(0);
    let limit = count_limit(fields)?;
    let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
    Ok(count_on_view(view, filter, skip, limit))
}

/// The stages of `distinct`.
pub(super) fn distinct(fields: &Fields<'_>, view: &ResolvedView) -> Result<Stages> {
    fields.string("key")?.ok_or_else(|| fields.missing("key"))?;
    let mut stages = Stages::new(view);
    stages.push_document("$match", fields.document("query")?);
    Ok(stages)
}

/// The stages of `aggregate`.
pub(super) fn aggregate(fields: &Fields<'_>, view: &ResolvedView) -> Result<Stages> {
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    Ok(Stages::over(view, pipeline))
}

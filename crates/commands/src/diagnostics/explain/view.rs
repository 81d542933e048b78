//! Explaining what reads a view: the pipeline that it comes to, over the collection below.

use mayfly_base::{Error, Result};
use mayfly_storage::ResolvedView;
use mayfly_value::{DocBuilder, RawDoc};

use super::{Inner, pipeline};
use crate::CommandContext;
use crate::crud::{Collating, Stages, check_collation, count_on_view, find_on_view, reads_log};

/// Explains `find`, `count`, `distinct` or `aggregate`.
///
/// # Errors
/// 167 OptionNotSupportedOnView for another collation, those of the command and of its stages.
pub(super) fn explain(
    ctx: &CommandContext<'_>,
    command: &str,
    inner: Inner<'_>,
    view: &ResolvedView,
    doc: &mut DocBuilder,
) -> Result<()> {
    check_collation(view, &inner.collating)?;
    if reads_log(view) {
        return Err(Error::not_implemented("explain of a read of the operation log"));
    }
    let fields = &inner.fields;
    let stages = match command {
        "find" => find_on_view(fields, view)?,
        "count" => {
            let skip = fields.non_negative("skip")?.unwrap_or(0);
            let limit = fields.long("limit")?.unwrap_or(0).unsigned_abs();
            let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
            count_on_view(view, filter, skip, limit)
        }
        "distinct" => {
            fields.string("key")?.ok_or_else(|| fields.missing("key"))?;
            let mut stages = Stages::new(view);
            stages.push_document("$match", fields.document("query")?);
            stages
        }
        _ => {
            let mut stages = Stages::new(view);
            let own = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
            stages.push_all(own);
            stages
        }
    };
    let stages = stages.finish();
    let collating = Collating::By(view.collation.clone());
    let below = Inner { ns: view.on.clone(), collating, ..inner };
    pipeline::explain_stages(ctx, &below, stages.as_doc(), doc)
}

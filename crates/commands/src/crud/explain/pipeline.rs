//! Explains `aggregate`: the plan of the leading stages, and the stages after it.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{Hint, PipelineContext, Purpose, RunSettings, UncheckedPipeline};
use mayfly_value::{DocBuilder, RawDoc};

use super::Inner;
use super::query::explained;
use crate::context::CommandContext;
use crate::crud::{command_scope, hint_on, run_settings, with_descriptions};

/// Explains the pipeline of the command.
pub(super) fn aggregate(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    explain_stages(ctx, inner, (pipeline, 0), doc)
}

/// Explains stages over the command's collection. The first `of_view` stages belong to a view; the
/// other arguments are those of the command.
pub(super) fn explain_stages(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    (pipeline, of_view): (RawDoc<'_>, usize),
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let collection = ctx.store.collection(&inner.ns);
    let collation = inner.collating.over(collection.as_deref());
    let variables = inner.variables()?;
    let scope = command_scope(ctx, collation, variables)?;
    let context = PipelineContext::command(inner.ns.db(), &scope).after_view(of_view);
    let context = context.over(inner.request.target().as_str());
    let mut parsed = ctx.checked(inner.request, UncheckedPipeline::parse(pipeline, &context))?;
    if let Some(view) = &inner.searched {
        parsed.search_view(view);
    }
    if parsed.follows_changes().is_some() {
        // It reads the log and not the collection, whose plan would be returned.
        return Err(Error::not_implemented("explain of '$changeStream'"));
    }
    if parsed.is_source() {
        let text = "a pipeline that reads no collection cannot be explained";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let hint = fields.get("hint").map(Hint::parse).transpose()?.flatten();
    let hint = hint_on(collection.as_deref(), hint);
    let hints = inner.setting.as_ref().and_then(|setting| setting.hints.clone());
    let settings = RunSettings { hints, ..run_settings(ctx, inner.may_spill()?) };
    let settings = with_descriptions(ctx, &parsed, settings)?;
    let explained = explained(ctx, inner, None, Purpose::Find)?;
    parsed.explain(ctx.store, collection, hint, settings, &explained, doc)
}

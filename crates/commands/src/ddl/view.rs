//! Views in `create` and `collMod`.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_query::{PipelineContext, StageRow, UncheckedPipeline, view_reads};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;
use crate::crud::command_scope;
use crate::request::{Fields, Request};
use crate::rules::rights::check::Definer;

/// Creates a view.
///
/// # Errors
/// Errors of the definition and of [`mayfly_storage::Store::create_view`].
pub(super) fn create(
    ctx: &CommandContext<'_>,
    (request, ns): (&Request<'_>, &Namespace),
    on: &str,
    fields: &Fields<'_>,
) -> Result<()> {
    let pipeline = fields.array("pipeline")?.unwrap_or(RawDoc::EMPTY);
    let collation = match fields.document("collation")? {
        None => None,
        Some(collation) if collation.is_empty() => {
            return Err(Error::bad_value("'collation' cannot be an empty document."));
        }
        Some(collation) => Collation::parse(collation, "create.collation")?,
    };
    let defined = definition(ctx, (request, ns), on, (pipeline, collation), Definer::Creates)?;
    let reads_of = |db: &str, view: RawDoc<'_>| defined.reads_of(db, view);
    ctx.service.store.create_view(ctx.op, ns, defined.options.as_doc(), &reads_of)
}

/// Changes the view whose present definition is `existing`.
///
/// # Errors
/// Errors of the definition and of [`mayfly_storage::Store::replace_view`].
pub(super) fn change(
    ctx: &CommandContext<'_>,
    (request, ns): (&Request<'_>, &Namespace),
    existing: RawDoc<'_>,
    fields: &Fields<'_>,
) -> Result<()> {
    let (on, pipeline) = (fields.string("viewOn")?, fields.array("pipeline")?);
    if on.is_none() && pipeline.is_none() {
        return Ok(());
    }
    let old = existing.get("pipeline").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let on = on.or(existing.get("viewOn").and_then(RawValue::as_str)).unwrap_or_default();
    let pipeline = pipeline.unwrap_or(old);
    let collation = Collation::of_options(existing)?;
    let defined = definition(ctx, (request, ns), on, (pipeline, collation), Definer::Changes)?;
    let reads_of = |db: &str, view: RawDoc<'_>| defined.reads_of(db, view);
    ctx.service.store.replace_view(ctx.op, ns, defined.options.as_doc(), &reads_of)
}

/// A checked definition of a view.
struct CheckedView {
    /// `viewOn`, `pipeline` and `collation`.
    options: DocBuf,
    /// The collections that it reads.
    reads: Vec<Namespace>,
}

impl CheckedView {
    /// The collections that a view of this database reads: this view or another existing one.
    fn reads_of(&self, db: &str, view: RawDoc<'_>) -> Vec<Namespace> {
        let own = self.options.as_doc();
        let is_own = ["viewOn", "pipeline"].iter().all(|field| own.get(field) == view.get(field));
        if is_own { self.reads.clone() } else { view_reads(db, view) }
    }
}

/// Checks `viewOn`, `pipeline` and `collation`, and the client's right to read the collections of
/// the view.
fn definition(
    ctx: &CommandContext<'_>,
    (request, ns): (&Request<'_>, &Namespace),
    on: &str,
    (pipeline, collation): (RawDoc<'_>, Option<Arc<Collation>>),
    definer: Definer,
) -> Result<CheckedView> {
    if on.is_empty() {
        return Err(Error::bad_value("'viewOn' cannot be empty"));
    }
    if ns.collection() == mayfly_storage::SYSTEM_VIEWS {
        let text =
            "View name cannot be 'system.views', which is the collection of view definitions";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let source = Namespace::new(ns.db(), on)?;
    for (at, stage) in pipeline.iter().enumerate() {
        let name = stage.value().as_document().and_then(|stage| stage.iter().next());
        let row = name.and_then(|field| StageRow::find(field.name()));
        if let Some(StageRow { name, .. }) = row.filter(|row| row.writes()) {
            let text = format!(
                "The aggregation stage {name} in position {at} of the pipeline cannot be used in the view definition of {ns}"
            );
            return Err(Error::new(ErrorCode::OptionNotSupportedOnView, text));
        }
        if let Some(StageRow { name, .. }) = row.filter(|row| row.is_independent()) {
            let text = format!("{name} cannot be used in the definition of the view {ns}");
            return Err(Error::new(ErrorCode::InvalidNamespace, text));
        }
    }
    if pipeline.as_bytes().len() > limits::MAX_USER_DOCUMENT_BYTES {
        let text = "the pipeline of a view must not exceed 16 MB";
        return Err(Error::new(ErrorCode::ViewPipelineMaxSizeExceeded, text));
    }
    let scope = command_scope(ctx, collation.clone(), None)?;
    let stages = UncheckedPipeline::parse(pipeline, &PipelineContext::view(ns.db(), &scope));
    let stages = ctx.checked_view(request, (ns, on), stages, definer)?;
    let reads = std::iter::once(source).chain(stages.collections()).collect();
    let mut options = DocBuilder::new();
    options.append("viewOn", on).append("pipeline", RawValue::Array(pipeline));
    if let Some(collation) = collation {
        options.append("collation", collation.document());
    }
    Ok(CheckedView { options: options.finish(), reads })
}

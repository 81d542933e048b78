//! The parts of `create` and `collMod` that are about views.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{Around, Pipeline, view_reads};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;
use crate::crud::command_scope;
use crate::request::Fields;

/// Creates a view.
///
/// # Errors
/// Those of the definition and of [`mayfly_storage::Store::create_view`].
pub(super) fn create(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
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
    let options = definition(ctx, ns, on, pipeline, collation)?;
    ctx.service.store.create_view(ctx.op, ns, options.as_doc(), &view_reads)
}

/// Changes a view; what is there now is `existing`.
///
/// # Errors
/// Those of the definition and of [`mayfly_storage::Store::replace_view`].
pub(super) fn change(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
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
    let options = definition(ctx, ns, on, pipeline, Collation::of_options(existing)?)?;
    ctx.service.store.replace_view(ctx.op, ns, options.as_doc(), &view_reads)
}

/// `viewOn`, `pipeline` and `collation`, checked.
fn definition(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    on: &str,
    pipeline: RawDoc<'_>,
    collation: Option<Arc<Collation>>,
) -> Result<DocBuf> {
    if on.is_empty() {
        return Err(Error::bad_value("'viewOn' cannot be empty"));
    }
    if ns.collection() == mayfly_storage::SYSTEM_VIEWS {
        let text = "View name cannot be 'system.views', the collection that holds views";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    Namespace::new(ns.db(), on)?;
    for (at, stage) in pipeline.iter().enumerate() {
        let name = stage.value().as_document().and_then(|stage| stage.iter().next());
        if let Some(name @ ("$out" | "$merge")) = name.map(|field| field.name()) {
            let text = format!(
                "The aggregation stage {name} in position {at} of the pipeline cannot be used in the view definition of {ns}"
            );
            return Err(Error::new(ErrorCode::OptionNotSupportedOnView, text));
        }
    }
    let scope = command_scope(ctx, collation.clone(), None)?;
    Pipeline::parse(pipeline, &Around::view(ns.db(), &scope))?;
    let mut options = DocBuilder::new();
    options.append("viewOn", on).append("pipeline", RawValue::Array(pipeline));
    if let Some(collation) = collation {
        options.append("collation", collation.document());
    }
    Ok(options.finish())
}

//! The descriptions of collections with which pipelines inside of stages begin: `$collStats` in the
//! pipeline of a `$lookup`, for example. They come from the server, so they are collected before
//! the pipeline runs.

use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_query::{
    Client, Description, Flow, KnownDescription, Pipeline, PipelineContext, RunSettings,
    UncheckedPipeline, Validation, WantedDescription,
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use super::host::{Described, ServerHost};
use super::no_stats;
use crate::context::CommandContext;
use crate::crud::command_scope;
use crate::crud::view::{Source, source};

/// Adds the descriptions that the stages of a pipeline return.
///
/// # Errors
/// Errors of the describing stages: 26 NamespaceNotFound for a missing collection.
pub(crate) fn with_descriptions(
    ctx: &CommandContext<'_>,
    pipeline: &Pipeline,
    settings: RunSettings,
) -> Result<RunSettings> {
    let wanted = pipeline.descriptions();
    if wanted.is_empty() {
        return Ok(settings);
    }
    let mut known: Vec<KnownDescription> = Vec::new();
    for wanted in wanted {
        if known.iter().all(|known| known.wanted != wanted) {
            let documents = describe(ctx, &wanted)?;
            known.push(KnownDescription { wanted, documents });
        }
    }
    Ok(RunSettings { descriptions: Arc::new(known), ..settings })
}

/// The documents of a stage that describes a collection.
fn describe(ctx: &CommandContext<'_>, wanted: &WantedDescription) -> Result<Vec<DocBuf>> {
    let mut stages = DocBuilder::new_array();
    stages.push(wanted.stage.as_doc());
    let stages = stages.finish();
    let scope = command_scope(ctx, None, None)?;
    let context = PipelineContext::command(wanted.of.db(), &scope).with_view(ctx.store.view);
    let context = context.over(Some(wanted.of.collection()));
    // The rights were checked with those of the enclosing pipeline.
    let pipeline = UncheckedPipeline::parse(stages.as_doc(), &context).check(&Client {
        db: wanted.of.db(),
        collection: Some(wanted.of.collection()),
        allows: &|_, _| true,
        refusal: &|| Error::internal("a description was refused"),
        validation: Validation::Enforced,
    })?;
    let described = match (source(ctx, &wanted.of)?, pipeline.describes_collection()) {
        (Source::Collection(collection), _) => Described::Documents(collection),
        (Source::Nothing, Some(Description::Figures)) => return Err(no_stats(&wanted.of)),
        (Source::Nothing, Some(Description::Plans)) => Described::Nothing,
        (Source::Nothing, _) => return Ok(Vec::new()),
        // The stage follows those of the view, where the run refuses it.
        (Source::View(_), _) => return Ok(Vec::new()),
    };
    let host = ServerHost { ctx, described };
    let mut run = pipeline.start_source(ctx.store, &host, RunSettings::default())?;
    let mut documents = Vec::new();
    while !run.is_done() {
        run.run(ctx.store, &mut |document: RawDoc<'_>| {
            documents.push(document.to_owned());
            Ok(Flow::More)
        })?;
    }
    Ok(documents)
}

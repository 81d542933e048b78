//! `$unionWith`: the input, followed by the results of a pipeline over another collection.

use mayfly_base::{Error, Namespace, Result};
use mayfly_mql::matcher::Expr;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::sub::{SubPipeline, pipeline_argument};
use super::{
    Next, PipelineContext, PipelineOwner, Reads, Running, Stage, StageContext, WantedDescription,
};
use crate::exec::Flow;
use crate::stage::sub::PipelineRun;

pub(crate) const ARGUMENTS: &[Argument] =
    &[Argument::string("coll").null_is_value(), Argument::any("pipeline")];

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let (from, pipeline) = match value {
        RawValue::String(name) => (Some(name), RawDoc::EMPTY),
        RawValue::Document(spec) => {
            // The rights on what it names are checked before its errors are shown.
            if let Some(named) = spec.get("coll").filter(|named| named.as_str().is_none()) {
                context.needs_named(named);
            }
            let fields = Fields::read(spec, "$unionWith", ARGUMENTS)?;
            let stages = fields.doc().get("pipeline").map(pipeline_argument).transpose()?;
            (fields.string("coll")?, stages.unwrap_or(RawDoc::EMPTY))
        }
        other => {
            return Err(Error::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                other.type_name()
            )));
        }
    };
    let from = from.map(|name| context.collection(name)).transpose()?;
    let sub = SubPipeline::parse(from, pipeline, PipelineOwner::UnionWith, RawDoc::EMPTY, context)?;
    Ok(Box::new(UnionWith(sub)))
}

/// A parsed `$unionWith`.
#[derive(Debug)]
pub(crate) struct UnionWith(SubPipeline);

impl UnionWith {
    /// The stage with a filter appended to its pipeline.
    pub(crate) fn filtered(&self, filter: &Expr) -> UnionWith {
        UnionWith(self.0.filtered(filter))
    }

    /// The stage as explain shows it.
    pub(crate) fn written(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("$unionWith");
        if let Some(from) = &self.0.from {
            out.append("coll", from.collection());
        }
        out.append("pipeline", RawValue::Array(self.0.stages())).end();
        out.finish()
    }
}

impl Stage for UnionWith {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningUnionWith { sub: self.0, run: None })
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }

    fn collections(&self) -> Vec<Namespace> {
        self.0.collections()
    }

    fn descriptions(&self) -> Vec<WantedDescription> {
        self.0.descriptions().to_vec()
    }
}

struct RunningUnionWith {
    sub: SubPipeline,
    run: Option<Box<PipelineRun>>,
}

impl Running for RunningUnionWith {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        next(document)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let run = match &mut self.run {
            Some(run) => run,
            None => {
                let run = self.sub.start(context, self.sub.scope(), None)?;
                self.run.insert(Box::new(run))
            }
        };
        while !run.is_done() {
            let mut paused = false;
            run.run(context.session, &mut |document| {
                let flow = next(document)?;
                paused = flow != Flow::More;
                Ok(flow)
            })?;
            if paused && !run.is_done() {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

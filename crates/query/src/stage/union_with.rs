//! `$unionWith`: its input, and behind it what a pipeline over another collection gives.

use mayfly_base::{Error, Result};
use mayfly_value::{RawDoc, RawValue};

use super::sub::{SubPipeline, pipeline_argument};
use super::{Around, Inside, Next, Running, Stage, StageContext};
use crate::Flow;
use crate::pipeline::PipelineRun;

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    let (mut from, mut pipeline) = (None, RawDoc::EMPTY);
    match value {
        RawValue::String(name) => from = Some(name),
        RawValue::Document(spec) => {
            for option in spec {
                match (option.name(), option.value()) {
                    ("coll", RawValue::String(name)) => from = Some(name),
                    ("coll", other) => {
                        return Err(Error::type_mismatch(format!(
                            "BSON field '$unionWith.coll' is the wrong type '{}', expected type 'string'",
                            other.type_name()
                        )));
                    }
                    ("pipeline", stages) => pipeline = pipeline_argument(stages)?,
                    (name, _) => {
                        let text = format!("BSON field '$unionWith.{name}' is an unknown field.");
                        return Err(Error::new(mayfly_base::ErrorCode(40415), text));
                    }
                }
            }
        }
        other => {
            return Err(Error::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                other.type_name()
            )));
        }
    }
    let from = from.map(|name| around.collection(name)).transpose()?;
    let sub = SubPipeline::parse(from, pipeline, Inside::UnionWith, RawDoc::EMPTY, around)?;
    Ok(vec![Stage::UnionWith(Box::new(sub))])
}

pub(super) struct RunningUnionWith {
    sub: SubPipeline,
    run: Option<Box<PipelineRun>>,
}

impl RunningUnionWith {
    pub(super) fn new(sub: SubPipeline) -> RunningUnionWith {
        RunningUnionWith { sub, run: None }
    }
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
            run.run(context.store, context.op, &mut |document| {
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

//! `$facet`: runs several pipelines over the same documents, and returns one document with an array
//! of the results of each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuilder, RawDoc, RawValue, check_depth};
use mayfly_work::memory;
use mayfly_work::spill::Operator;

use super::fields::needed_fields;
use super::sub::branch;
use super::{
    Next, PipelineContext, PipelineOwner, Reads, Running, Stage, StageContext, Step,
    WantedDescription, show,
};
use crate::exec::Flow;
use crate::memory::Share;

/// A parsed `$facet`.
#[derive(Debug)]
struct Facet(Vec<(String, Vec<Step>)>);

fn fault(code: i32, text: String) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let spec = match value {
        RawValue::Document(spec) if !spec.is_empty() => spec,
        other => {
            let text = format!(
                "the $facet specification must be a non-empty object, but found: {}",
                other.type_name()
            );
            return Err(fault(40169, text));
        }
    };
    let inner = context.deeper(PipelineOwner::Facet)?;
    let mut facets = Vec::new();
    for facet in spec {
        let name = facet.name();
        if name.starts_with('$') {
            let text = "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return Err(fault(16410, text.to_owned()));
        }
        if name.contains('.') {
            return Err(fault(16412, "FieldPath field names may not contain '.'.".to_owned()));
        }
        if name.is_empty() {
            return Err(fault(15998, "FieldPath field names may not be empty strings.".to_owned()));
        }
        let RawValue::Array(pipeline) = facet.value() else {
            let kind = facet.value().type_name();
            let text = format!("arguments to $facet must be arrays, {name} is type {kind}");
            return Err(fault(40170, text));
        };
        facets.push((name.to_owned(), branch(pipeline, &inner)?));
    }
    Ok(Box::new(Facet(facets)))
}

impl Stage for Facet {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningFacet::new(*self))
    }

    fn reads(&self) -> Reads {
        let mut all = BTreeSet::new();
        for (_, steps) in &self.0 {
            match needed_fields(steps.iter()) {
                Some(fields) => all.extend(fields),
                None => return Reads::Anything,
            }
        }
        Reads::Only(all)
    }

    fn collections(&self) -> Vec<Namespace> {
        let stages = self.0.iter().flat_map(|(_, steps)| steps);
        stages.flat_map(|step| step.stage().collections()).collect()
    }

    fn descriptions(&self) -> Vec<WantedDescription> {
        let stages = self.0.iter().flat_map(|(_, steps)| steps);
        stages.flat_map(|step| step.stage().descriptions()).collect()
    }
}

struct Branch {
    name: String,
    stages: Vec<Box<dyn Running>>,
    results: DocBuilder,
}

struct RunningFacet {
    branches: Vec<Branch>,
    /// Memory of all results.
    output: Output,
}

/// Memory of the results of all branches.
#[derive(Default)]
struct Output {
    bytes: Cell<usize>,
    share: RefCell<Option<Share>>,
}

impl RunningFacet {
    fn new(facet: Facet) -> RunningFacet {
        let branch = |(name, stages): (String, Vec<Step>)| Branch {
            name,
            stages: stages.into_iter().map(Step::start).collect(),
            results: DocBuilder::new_array(),
        };
        let branches = facet.0.into_iter().map(branch).collect();
        RunningFacet { branches, output: Output::default() }
    }
}

fn keep(
    results: &mut DocBuilder,
    document: RawDoc<'_>,
    context: &StageContext<'_>,
    output: &Output,
) -> Result<Flow> {
    let before = results.len();
    results.push(document);
    output.take(results.len() - before, context)?;
    Ok(Flow::More)
}

impl Output {
    /// The result may exceed the size of a stored document, as long as a later stage reduces it.
    fn take(&self, more: usize, context: &StageContext<'_>) -> Result<()> {
        let bytes = self.bytes.get() + more;
        self.bytes.set(bytes);
        let mut share = self.share.borrow_mut();
        let share = share.get_or_insert_with(|| context.settings.budget.share(Operator::Facet));
        match share.is_over(bytes) {
            true => Err(share.failure(|limit| too_large(bytes, limit))),
            false => Ok(()),
        }
    }
}

fn too_large(bytes: usize, limit: usize) -> Error {
    let text = format!(
        "document constructed by $facet is {bytes} bytes, which exceeds the limit of {limit} bytes"
    );
    fault(4031700, text)
}

impl Running for RunningFacet {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let (metadata, output) = (context.metadata.get(), &self.output);
        for branch in &mut self.branches {
            // With many branches, each may stay below the amount of memory that triggers a check.
            memory::check()?;
            context.metadata.set(&metadata);
            if branch.stages.iter().any(|stage| stage.is_satisfied()) {
                continue;
            }
            let results = &mut branch.results;
            show(&mut branch.stages, context, document, &mut |result| {
                keep(results, result, context, output)
            })?;
            resume(branch, context, output)?;
            // A pause of one branch does not affect the others.
            context.begin_step();
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let (mut out, output) = (DocBuilder::new(), &self.output);
        for mut branch in std::mem::take(&mut self.branches) {
            let satisfied = branch.stages.iter().rposition(|stage| stage.is_satisfied());
            for at in satisfied.map_or(0, |at| at + 1)..branch.stages.len() {
                loop {
                    context.session.op.check()?;
                    let (now, later) = branch.stages[at..].split_at_mut(1);
                    let results = &mut branch.results;
                    let take = &mut |document: RawDoc<'_>| {
                        show(later, context, document, &mut |result| {
                            keep(results, result, context, output)
                        })
                    };
                    context.metadata.clear();
                    context.begin_step();
                    let over = now[0].finish(context, take)? == Flow::More;
                    resume(&mut branch, context, output)?;
                    // A later stage may be satisfied.
                    if over || branch.stages[at..].iter().any(|stage| stage.is_satisfied()) {
                        break;
                    }
                }
            }
            out.append(&branch.name, RawValue::Array(branch.results.finish().as_doc()));
        }
        context.metadata.clear();
        context.begin_step();
        let results = out.finish();
        check_depth(results.as_doc())?;
        next(results.as_doc())?;
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

/// Resumes stages that kept results when a later stage paused.
fn resume(branch: &mut Branch, context: &StageContext<'_>, output: &Output) -> Result<()> {
    for at in (0..branch.stages.len()).rev() {
        let (now, later) = branch.stages[at..].split_at_mut(1);
        let results = &mut branch.results;
        let take = &mut |document: RawDoc<'_>| {
            show(later, context, document, &mut |result| keep(results, result, context, output))
        };
        context.begin_step();
        now[0].resume(context, take)?;
    }
    Ok(())
}

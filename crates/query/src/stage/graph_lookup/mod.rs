//! `$graphLookup`: follows values through another collection, level by level.
//!
//! The found records, the searched values and the values of the next level spill to files. The
//! results stay in memory, because they become one field of a document. Like `$lookup`, the stage
//! uses an index for each part of a level, or reads the other collection into a table, which serves
//! all levels of all documents of a batch.

mod frontier;
mod search;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

use super::sub::SubPipeline;
use super::unwind::{parts, replaced};
use super::{Effect, Next, PipelineContext, PipelineOwner, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use search::{OtherCollection, Search};

/// A parsed `$graphLookup`.
#[derive(Debug)]
struct GraphLookup {
    sub: SubPipeline,
    start: Expression,
    from: Vec<String>,
    to: String,
    result: Vec<String>,
    max_depth: Option<i64>,
    depth_field: Option<Vec<String>>,
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text =
            format!("the $graphLookup stage specification must be an object, but found {kind}");
        return Err(fault(40327, text));
    };
    let (mut collection, mut start, mut from, mut to) = (None, None, None, None);
    let (mut result, mut max_depth, mut depth_field, mut restriction) = (None, None, None, None);
    for option in spec {
        let (name, value) = (option.name(), option.value());
        let text = || {
            value.as_str().ok_or_else(|| {
                let shown = ShellValue(value);
                let kind = value.type_name();
                fault(
                    40103,
                    format!("expected string as argument for {name}, found: {shown} (type {kind})"),
                )
            })
        };
        match name {
            "startWith" => start = Some(Expression::parse_in(value, context.scope)?),
            "maxDepth" => max_depth = Some(depth(value)?),
            "restrictSearchWithMatch" => match value {
                RawValue::Document(filter) => restriction = Some(filter),
                other => {
                    let kind = other.type_name();
                    let text = format!("restrictSearchWithMatch must be an object, found {kind}");
                    return Err(fault(40185, text));
                }
            },
            "from" => {
                context.needs_named(value);
                collection = Some(text()?);
            }
            "as" => result = Some(parts(text()?)?),
            "connectFromField" => from = Some(parts(text()?)?),
            "connectToField" => to = Some(text()?),
            "depthField" => depth_field = Some(parts(text()?)?),
            other => {
                return Err(fault(40104, format!("Unknown argument to $graphLookup: {other}")));
            }
        }
    }
    let (Some(collection), Some(start), Some(from), Some(to), Some(result)) =
        (collection, start, from, to, result)
    else {
        return Err(fault(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
        ));
    };
    parts(to)?;
    let mut stages = DocBuilder::new_array();
    if let Some(filter) = restriction {
        stages.push_document().append("$match", filter).end();
    }
    let stages = stages.finish();
    let inside = PipelineOwner::Lookup;
    let namespace = Some(context.collection(collection)?);
    let sub = SubPipeline::parse(namespace, stages.as_doc(), inside, RawDoc::EMPTY, context)?;
    let to = to.to_owned();
    let graph = GraphLookup { sub, start, from, to, result, max_depth, depth_field };
    Ok(Box::new(graph))
}

impl Stage for GraphLookup {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningGraphLookup { graph: *self, other: OtherCollection::default() })
    }

    fn reads(&self) -> Reads {
        Reads::some_of(self.start.dependencies(), self.result.first().cloned())
    }

    fn effect(&self) -> Effect {
        Effect::changes(self.result.first().cloned())
    }

    fn is_one_for_one(&self) -> bool {
        true
    }

    fn collections(&self) -> Vec<Namespace> {
        self.sub.collections()
    }
}

fn depth(value: RawValue<'_>) -> Result<i64> {
    let shown = ShellValue(value);
    let Some(number) = Number::from_value(value) else {
        let text = format!("maxDepth must be numeric, found type: {}", value.type_name());
        return Err(fault(40100, text));
    };
    match number.to_i64_exact() {
        Some(depth) if depth >= 0 => Ok(depth),
        Some(_) => {
            Err(fault(40101, format!("maxDepth requires a nonnegative argument, found: {shown}")))
        }
        None => {
            Err(fault(40102, format!("maxDepth could not be represented as a long long: {shown}")))
        }
    }
}

struct RunningGraphLookup {
    graph: GraphLookup,
    other: OtherCollection,
}

impl Running for RunningGraphLookup {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let results = Search::new(&self.graph, context).run(&mut self.other, document)?;
        let results = RawValue::Array(results.as_doc());
        next(replaced(document, &self.graph.result, Some(results)).as_doc())
    }

    fn end_batch(&mut self) {
        self.other.end_batch();
    }
}

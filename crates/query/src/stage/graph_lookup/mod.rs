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
use mayfly_value::arguments::{Argument, Fields, OwnCodes};
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
        return Err(Error::failed_to_parse(format!(
            "the $graphLookup stage specification must be an object, but found {kind}"
        )));
    };
    // The rights on what it names are checked before its errors are shown.
    if let Some(named) = spec.get("from") {
        context.needs_named(named);
    }
    let missing = || {
        let text = "missing 'from' option to $graphLookup stage specification";
        Error::failed_to_parse(format!("{text}: {}", ShellValue(value)))
    };
    // The collection comes before all other parts.
    spec.get("from").ok_or_else(missing)?;
    let given = Fields::read_with(spec, "$graphLookup", ARGUMENTS, CODES)?;
    let collection = given.string("from")?.ok_or_else(missing)?;
    let start = Expression::parse_in(
        given.doc().get("startWith").unwrap_or(RawValue::Null),
        context.scope,
    )?;
    let max_depth = given.doc().get("maxDepth").map(depth).transpose()?;
    let depth_field = given.string("depthField")?.map(parts).transpose()?;
    let restriction = given.document("restrictSearchWithMatch")?;
    let text = |name| given.string(name).map(Option::unwrap_or_default);
    let to = text("connectToField")?;
    let (from, result) = (parts(text("connectFromField")?)?, parts(text("as")?)?);
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

/// The text of a refusal; `{}` stands for the type.
macro_rules! no_string {
    ($name:literal) => {
        concat!("expected string as argument for ", $name, ", found type {}")
    };
}

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("as").required().null_is_value().refused_with(40103, no_string!("as")),
    Argument::any("startWith").required(),
    Argument::string("connectFromField")
        .required()
        .null_is_value()
        .refused_with(40103, no_string!("connectFromField")),
    Argument::string("connectToField")
        .required()
        .null_is_value()
        .refused_with(40103, no_string!("connectToField")),
    Argument::string("from")
        .null_is_value()
        .refused_with(9, "$graphLookup 'from' field must be a string, but found {}"),
    Argument::string("depthField").null_is_value().refused_with(40103, no_string!("depthField")),
    Argument::any("maxDepth"),
    Argument::document("restrictSearchWithMatch")
        .null_is_value()
        .refused_with(40185, "restrictSearchWithMatch must be an object, found {}"),
];
pub(crate) const CODES: OwnCodes = OwnCodes {
    unknown: (40104, "Unknown argument to $graphLookup: {}"),
    missing: Some((
        40105,
        "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
    )),
};

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

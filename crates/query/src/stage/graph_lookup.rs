//! `$graphLookup`: goes from value to value through another collection, level by level.

use foldhash::{HashSet, HashSetExt};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue, ValueBuf};

use super::lookup::{equality_filter, local_values};
use super::sub::SubPipeline;
use super::unwind::{parts, replaced};
use super::{Around, Effect, Inside, Next, Reads, Running, Stage, StageContext};
use crate::Flow;

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

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Box<dyn Stage>> {
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
            "startWith" => start = Some(Expression::parse_in(value, around.scope)?),
            "maxDepth" => max_depth = Some(depth(value)?),
            "restrictSearchWithMatch" => match value {
                RawValue::Document(filter) => restriction = Some(filter),
                other => {
                    let kind = other.type_name();
                    let text = format!("restrictSearchWithMatch must be an object, found {kind}");
                    return Err(fault(40185, text));
                }
            },
            "from" => collection = Some(text()?),
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
    let inside = Inside::Lookup;
    let namespace = Some(around.collection(collection)?);
    let sub = SubPipeline::parse(namespace, stages.as_doc(), inside, RawDoc::EMPTY, around)?;
    let to = to.to_owned();
    let graph = GraphLookup { sub, start, from, to, result, max_depth, depth_field };
    Ok(Box::new(graph))
}

impl Stage for GraphLookup {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningGraphLookup(*self))
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

/// A search for one document.
struct Search<'s> {
    graph: &'s GraphLookup,
    context: &'s StageContext<'s>,
    /// Records that were found, and values that were asked for.
    found: HashSet<Vec<u8>>,
    asked: HashSet<Vec<u8>>,
    results: DocBuilder,
    bytes: usize,
}

impl Search<'_> {
    fn key(&self, value: RawValue<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        let collation = self.graph.sub.scope().collation().map(|it| &**it);
        keys::append_value_in(&mut key, &mut TypeBits::default(), value, false, collation);
        key
    }

    /// Those of the values that nobody asked for yet.
    fn new_values(&mut self, values: Vec<ValueBuf>) -> Vec<ValueBuf> {
        let mut new = Vec::new();
        for value in values {
            let key = self.key(value.as_raw());
            let size = key.len();
            if self.asked.insert(key) {
                self.bytes += 2 * size;
                new.push(value);
            }
        }
        new
    }

    /// One level: what the values lead to; gives the values behind it.
    fn level(&mut self, values: &[ValueBuf], depth: i64) -> Result<Vec<ValueBuf>> {
        let filter = equality_filter(&self.graph.to, values);
        let sub = &self.graph.sub;
        let mut run = sub.start(self.context, sub.scope(), Some(filter.as_doc()))?;
        let mut behind = Vec::new();
        while !run.is_done() {
            run.run(self.context.store, self.context.op, &mut |document| {
                let mut id = Vec::new();
                let value = document.get("_id").unwrap_or(RawValue::Null);
                keys::append_value(&mut id, &mut TypeBits::default(), value, false);
                self.bytes += id.len();
                if !self.found.insert(id) {
                    return Ok(Flow::More);
                }
                behind.extend(local_values(document, &self.graph.from));
                match &self.graph.depth_field {
                    None => self.results.push(document),
                    Some(path) => {
                        let depth = RawValue::Int64(depth);
                        self.results.push(&replaced(document, path, Some(depth)))
                    }
                };
                let most = self.context.settings.memory_bytes;
                if self.bytes + self.results.len() > most {
                    let text = "$graphLookup reached maximum memory consumption";
                    return Err(fault(40099, text));
                }
                Ok(Flow::More)
            })?;
        }
        Ok(behind)
    }

    fn run(&mut self, document: RawDoc<'_>) -> Result<()> {
        let metadata = self.context.metadata.get();
        let start = self.graph.start.evaluate(metadata.frame(document))?;
        let values = match start.as_raw() {
            None => Vec::new(),
            Some(RawValue::Array(items)) => {
                items.iter().map(|item| item.value().to_owned()).collect()
            }
            Some(value) => vec![value.to_owned()],
        };
        let mut values = self.new_values(values);
        let mut depth = 0;
        while !values.is_empty() && self.graph.max_depth.is_none_or(|most| depth <= most) {
            self.context.op.check()?;
            let behind = self.level(&values, depth)?;
            values = self.new_values(behind);
            depth += 1;
        }
        Ok(())
    }
}

struct RunningGraphLookup(GraphLookup);

impl Running for RunningGraphLookup {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let mut search = Search {
            graph: &self.0,
            context,
            found: HashSet::new(),
            asked: HashSet::new(),
            results: DocBuilder::new_array(),
            bytes: 0,
        };
        search.run(document)?;
        let results: DocBuf = search.results.finish();
        let out = replaced(document, &self.0.result, Some(RawValue::Array(results.as_doc())));
        next(out.as_doc())
    }
}

//! `$graphLookup`: goes from value to value through another collection, level by level.
//!
//! Which records were found, which values were asked for, and the values of the next level go into files when they do not fit memory.
//! The results stay there: they become one field of a document.

use mayfly_base::spill::{Operator, Spilled};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Expression;
use mayfly_runs::KeySet;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue, ValueBuf};

use super::lookup::{equality_filter, local_values};
use super::sub::SubPipeline;
use super::unwind::{parts, replaced};
use super::{Around, Effect, Inside, Next, Reads, Running, Stage, StageContext};
use crate::Flow;
use crate::memory::{Share, Spool, SpoolWriter};

/// Memory of a value beside its bytes, roughly.
const VALUE_BYTES: usize = 40;
/// Bytes of the values that one filter asks for.
const PART_BYTES: usize = 1 << 20;

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
    found: KeySet,
    asked: KeySet,
    /// Memory of both.
    share: Share,
    results: DocBuilder,
    /// Memory of the results.
    results_share: Share,
}

fn too_much(_: usize) -> Error {
    fault(40099, "$graphLookup reached maximum memory consumption")
}

impl<'s> Search<'s> {
    fn new(graph: &'s GraphLookup, context: &'s StageContext<'s>) -> Search<'s> {
        let share = || context.settings.budget.share(Operator::GraphLookup);
        Search {
            graph,
            context,
            found: KeySet::new(),
            asked: KeySet::new(),
            share: share(),
            results: DocBuilder::new_array(),
            results_share: share(),
        }
    }

    /// Takes the value when nobody asked for it yet.
    fn ask(&mut self, value: ValueBuf, values: &mut Frontier) -> Result<()> {
        let mut key = Vec::new();
        let collation = self.graph.sub.scope().collation().map(|it| &**it);
        keys::append_value_in(&mut key, &mut TypeBits::default(), value.as_raw(), false, collation);
        if self.asked.insert(&key)? {
            self.make_room()?;
            values.push(value, self.context)?;
        }
        Ok(())
    }

    /// Keeps the keys within memory.
    fn make_room(&mut self) -> Result<()> {
        if !self.share.is_over(self.found.memory_bytes() + self.asked.memory_bytes()) {
            return Ok(());
        }
        let Some(folder) = self.share.folder()? else { return Err(self.share.failure(too_much)) };
        let mut spilled = Spilled::default();
        for keys in [&mut self.found, &mut self.asked] {
            let before = keys.spilled();
            keys.spill(folder, &|| self.context.op.check())?;
            spilled.add(keys.spilled().since(before));
        }
        self.share.count(self.context.op, spilled);
        self.share.set(0);
        Ok(())
    }

    /// What the values lead to; the values behind it are of the next level.
    fn look(&mut self, values: &[ValueBuf], depth: i64, behind: &mut Frontier) -> Result<()> {
        let filter = equality_filter(&self.graph.to, values);
        let sub = &self.graph.sub;
        let mut run = sub.start(self.context, sub.scope(), Some(filter.as_doc()))?;
        while !run.is_done() {
            run.run(self.context.store, self.context.op, &mut |document| {
                let mut id = Vec::new();
                let value = document.get("_id").unwrap_or(RawValue::Null);
                keys::append_value(&mut id, &mut TypeBits::default(), value, false);
                if !self.found.insert(&id)? {
                    return Ok(Flow::More);
                }
                self.make_room()?;
                for value in local_values(document, &self.graph.from) {
                    self.ask(value, behind)?;
                }
                match &self.graph.depth_field {
                    None => self.results.push(document),
                    Some(path) => {
                        let depth = RawValue::Int64(depth);
                        self.results.push(&replaced(document, path, Some(depth)))
                    }
                };
                // They become one field of a document.
                if self.results_share.is_over(self.results.len()) {
                    return Err(self.results_share.failure(too_much));
                }
                Ok(Flow::More)
            })?;
        }
        Ok(())
    }

    fn run(&mut self, document: RawDoc<'_>) -> Result<()> {
        let metadata = self.context.metadata.get();
        let start = self.graph.start.evaluate(metadata.frame(document))?;
        let mut values = Frontier::new(self.context);
        match start.as_raw() {
            None => {}
            Some(RawValue::Array(items)) => {
                for item in items {
                    self.ask(item.value().to_owned(), &mut values)?;
                }
            }
            Some(value) => self.ask(value.to_owned(), &mut values)?,
        }
        let mut depth = 0;
        while !values.is_empty() && self.graph.max_depth.is_none_or(|most| depth <= most) {
            let mut behind = Frontier::new(self.context);
            let mut level = values.read()?;
            loop {
                self.context.op.check()?;
                let part = level.part()?;
                if part.is_empty() {
                    break;
                }
                self.look(&part, depth, &mut behind)?;
            }
            values = behind;
            depth += 1;
        }
        Ok(())
    }
}

/// Values of one level that are to be asked for: in memory, and in a file from where they do not fit.
struct Frontier {
    values: Vec<ValueBuf>,
    bytes: usize,
    share: Share,
    spool: Option<SpoolWriter>,
}

impl Frontier {
    fn new(context: &StageContext<'_>) -> Frontier {
        let share = context.settings.budget.share(Operator::GraphLookup);
        Frontier { values: Vec::new(), bytes: 0, share, spool: None }
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn push(&mut self, value: ValueBuf, context: &StageContext<'_>) -> Result<()> {
        let size = value.data().len() + VALUE_BYTES;
        if self.spool.is_none() && (!self.share.is_over(self.bytes + size) || self.is_empty()) {
            self.bytes += size;
            self.values.push(value);
            return Ok(());
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => {
                let folder = self.share.folder()?;
                let folder = folder.ok_or_else(|| self.share.failure(too_much))?;
                let spool = SpoolWriter::new(folder)?;
                self.share.count(context.op, spool.spilled());
                self.spool.insert(spool)
            }
        };
        let mut out = DocBuilder::new();
        out.append("v", &value);
        let before = spool.spilled();
        spool.push(out.finish().as_doc())?;
        self.share.count(context.op, spool.spilled().since(before));
        Ok(())
    }

    fn read(self) -> Result<Level> {
        let spool = self.spool.map(SpoolWriter::finish).transpose()?;
        Ok(Level { values: self.values.into_iter(), spool, _share: self.share })
    }
}

/// Gives the values of a level.
struct Level {
    values: std::vec::IntoIter<ValueBuf>,
    spool: Option<Spool>,
    _share: Share,
}

impl Level {
    /// The next of them, as many as one filter asks for; none at the end.
    fn part(&mut self) -> Result<Vec<ValueBuf>> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES {
            let value = match (self.values.next(), &mut self.spool) {
                (Some(value), _) => value,
                (None, None) => break,
                (None, Some(spool)) => match spool.next()?.and_then(|entry| entry.get("v")) {
                    Some(value) => value.to_owned(),
                    None => break,
                },
            };
            bytes += value.data().len() + VALUE_BYTES;
            part.push(value);
        }
        Ok(part)
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
        let mut search = Search::new(&self.0, context);
        search.run(document)?;
        let results: DocBuf = search.results.finish();
        let out = replaced(document, &self.0.result, Some(RawValue::Array(results.as_doc())));
        next(out.as_doc())
    }
}

//! `$lookup`: joins with another collection or view.
//!
//! 1. For each document the values at `localField` become a filter on `foreignField`, and the variables of `let` get values.
//! 2. Where an index serves the filter, it is asked each time.
//! 3. Otherwise the other collection is read once into a table by its values ([`super::join_table`]), as long as that fits memory.
//!    What the table finds is checked by the filter, so that both ways give the same.
//! 4. A pipeline that uses neither is run once and its results are kept; so are those of the stages at its front that name no
//!    variable, as long as they fit memory.
//!
//! What is kept is kept for one batch: the next one sees what has changed, and nothing that is due meanwhile.

use mayfly_base::spill::Operator;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::{Dependencies, Expression, Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_mql::matcher::{Expr, joined};
use mayfly_value::paths::{Hit, visit_path};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::join_table::JoinTable;
use super::sub::{From, SubPipeline, pipeline_argument};
use super::unwind::{Unwind, parts, replaced};
use super::{Around, Effect, Inside, Next, Reads, Running, Stage, StageContext};
use crate::Flow;
use crate::language::metadata::Metadata;
use crate::memory::{Share, Spool, SpoolWriter};
use crate::pipeline::PipelineRun;

/// A parsed `$lookup`.
#[derive(Debug)]
pub(crate) struct Lookup {
    sub: SubPipeline,
    fields: Option<JoinFields>,
    variables: Vec<(String, Expression)>,
    result: Vec<String>,
    /// The `$unwind` of the result that stands behind it: no array of it is made.
    unwind: Option<Unwind>,
    /// What a `$match` behind that asks of the documents that are joined.
    matching: Option<DocBuf>,
    /// The operand, to be shown.
    sent: DocBuf,
}

impl Lookup {
    /// Takes over the stage behind it; false when that is about something else.
    pub(crate) fn fold(&mut self, unwind: &Unwind) -> bool {
        let same = self.unwind.is_none() && unwind.path == self.result;
        if same {
            self.unwind = Some(unwind.clone());
        }
        same
    }

    /// Looks for such documents only as a filter behind its `$unwind` asks for; true when the filter asks for nothing else.
    pub(crate) fn absorb(&mut self, filter: &Expr) -> bool {
        let all = |unwind: &Unwind| unwind.keep_empty || unwind.index.is_some();
        if self.unwind.as_ref().is_none_or(all) || self.fields.is_none() || !self.sub.is_empty() {
            return false;
        }
        let (inside, whole) = below(filter, &self.result.join("."));
        let mut conditions: Vec<DocBuf> = inside.iter().flat_map(Expr::conditions).collect();
        conditions.extend(self.matching.take());
        self.matching = (!conditions.is_empty()).then(|| joined(&conditions));
        whole
    }

    /// With what it took over, as it is shown. Manual: "Aggregation Pipeline Optimization", "$lookup, $unwind, and $match
    /// Coalescence".
    pub(crate) fn written(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("$lookup");
        for option in self.sent.as_doc() {
            // It has none of its own when it takes a filter over.
            if self.matching.is_none() || !matches!(option.name(), "let" | "pipeline") {
                out.append_element(option);
            }
        }
        if let Some(matching) = &self.matching {
            out.append("let", RawDoc::EMPTY).start_array("pipeline");
            out.push_document().append("$match", matching).end().end();
        }
        if let Some(unwind) = &self.unwind {
            unwind.append_options(out.start_document("unwinding"));
            out.end();
        }
        out.end();
        out.finish()
    }
}

/// Of a filter on documents that have others in this field: what it asks of those, and whether it asks for nothing else.
fn below(filter: &Expr, field: &str) -> (Vec<Expr>, bool) {
    let (mut inside, mut whole) = (Vec::new(), true);
    let is_below =
        |path: &String| path.strip_prefix(field).and_then(|rest| rest.strip_prefix('.')).is_some();
    for condition in filter.conjuncts() {
        let reads = condition.reads();
        let fits = reads.is_some_and(|reads| !reads.computed && reads.paths.iter().all(is_below));
        match condition.renamed(field, "").filter(|_| fits) {
            Some(renamed) => inside.push(renamed),
            None => whole = false,
        }
    }
    (inside, whole)
}

/// `localField` and `foreignField`.
#[derive(Debug)]
struct JoinFields {
    local: Vec<String>,
    foreign: String,
}

fn text_of<'a>(name: &str, value: RawValue<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| {
        Error::failed_to_parse(format!(
            "$lookup argument '{name}: {}' must be a string, is type {}",
            ShellValue(value),
            value.type_name()
        ))
    })
}

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Box<dyn Stage>> {
    let fail = |text: &str| Err(Error::failed_to_parse(text));
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text = format!("the $lookup stage specification must be an object, but found {kind}");
        return Err(Error::failed_to_parse(text));
    };
    let (mut from, mut local, mut foreign, mut result) = (None, None, None, None);
    let (mut variables, mut pipeline) = (None, None);
    for option in spec {
        let (name, value) = (option.name(), option.value());
        match name {
            "from" => from = Some(text_of(name, value)?),
            "localField" => local = Some(text_of(name, value)?),
            "foreignField" => foreign = Some(text_of(name, value)?),
            "as" => result = Some(text_of(name, value)?),
            "pipeline" => pipeline = Some(pipeline_argument(value)?),
            "let" => match value {
                RawValue::Document(document) => variables = Some(document),
                other => {
                    return Err(Error::failed_to_parse(format!(
                        "$lookup argument 'let: {}' must be an object, is type {}",
                        ShellValue(other),
                        other.type_name()
                    )));
                }
            },
            other => {
                let text = format!("unknown argument to $lookup: {other}");
                return Err(Error::failed_to_parse(text));
            }
        }
    }
    let Some(result) = result else { return fail("must specify 'as' field for a $lookup") };
    let fields = match (local, foreign) {
        (Some(local), Some(foreign)) => {
            parts(foreign)?;
            Some(JoinFields { local: parts(local)?, foreign: foreign.to_owned() })
        }
        (None, None) if pipeline.is_none() => {
            return fail(
                "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
            );
        }
        (None, None) => None,
        _ => {
            return fail(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
            );
        }
    };
    if variables.is_some() && pipeline.is_none() {
        return fail("$lookup with a 'let' argument must also specify 'pipeline'");
    }
    if from.is_none() && pipeline.is_none() {
        return fail("must specify 'pipeline' when 'from' is empty");
    }
    let from: Option<Namespace> = from.map(|name| around.collection(name)).transpose()?;
    let names = variables.unwrap_or(RawDoc::EMPTY);
    let stages = pipeline.unwrap_or(RawDoc::EMPTY);
    let sub = SubPipeline::parse(from, stages, Inside::Lookup, names, around)?;
    let parse = |element: mayfly_value::RawElement<'_>| {
        let expression = Expression::parse_in(element.value(), around.scope)?;
        Ok((element.name().to_owned(), expression))
    };
    let variables = names.iter().map(parse).collect::<Result<_>>()?;
    let result = parts(result)?;
    Ok(Box::new(Lookup {
        sub,
        fields,
        variables,
        result,
        unwind: None,
        matching: None,
        sent: spec.to_owned(),
    }))
}

impl Stage for Lookup {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningLookup::new(*self))
    }

    fn reads(&self) -> Reads {
        let mut read = Dependencies::default();
        self.variables.iter().for_each(|(_, value)| read.add(value));
        let local = self.fields.as_ref().map(|fields| fields.local.join("."));
        Reads::some_of(read, local.into_iter().chain(self.result.first().cloned()))
    }

    fn effect(&self) -> Effect {
        Effect::changes(self.result.first().cloned())
    }

    fn is_one_for_one(&self) -> bool {
        self.unwind.is_none()
    }

    fn collections(&self) -> Vec<Namespace> {
        self.sub.collections()
    }
}

/// The values of a document that are joined by: the items of arrays; null where there is nothing.
pub(super) fn local_values(document: RawDoc<'_>, path: &[String]) -> Vec<ValueBuf> {
    let mut values = Vec::new();
    let _ = visit_path(document, path, &mut |hit| {
        match hit {
            Hit::Value(RawValue::Array(_), false) | Hit::Missing => {}
            Hit::Value(RawValue::Undefined, _) => values.push(RawValue::Null.to_owned()),
            Hit::Value(value, _) => values.push(value.to_owned()),
        }
        ControlFlow::Continue(())
    });
    values
}

/// `{ field: one of the values }`
pub(super) fn equality_filter(field: &str, values: &[ValueBuf]) -> DocBuf {
    let mut out = DocBuilder::new();
    let is_pattern = |value: &ValueBuf| matches!(value.as_raw(), RawValue::Regex { .. });
    if let [value] = values {
        out.start_document(field).append("$eq", value).end();
    } else if values.iter().any(is_pattern) {
        // In a list a pattern would mean what it matches.
        out.start_array("$or");
        for value in values {
            out.push_document().start_document(field).append("$eq", value).end().end();
        }
        out.end();
    } else {
        out.start_document(field).start_array("$in");
        for value in values {
            out.push(value);
        }
        out.end().end();
    }
    out.finish()
}

/// How the other collection is read.
enum Way {
    /// Not decided yet.
    Unknown,
    /// Asked for each document.
    Ask,
    /// From a table of it.
    Table(Box<JoinTable>),
    /// The results are the same for each document.
    Same(Vec<DocBuf>),
    /// So many stages at the front give these for each document.
    Front { count: usize, documents: Arc<Vec<DocBuf>>, _share: Share },
}

struct RunningLookup {
    lookup: Lookup,
    way: Way,
    /// What is left to show of a result that is unwound.
    rest: Option<Rest>,
    /// What is known about the document of the rest.
    rest_metadata: Metadata,
}

impl RunningLookup {
    fn new(lookup: Lookup) -> RunningLookup {
        RunningLookup { lookup, way: Way::Unknown, rest: None, rest_metadata: Metadata::NONE }
    }

    /// Shows a document for each one that was joined, until the next stage pauses.
    fn show_unwound(
        &mut self,
        unwind: &Unwind,
        mut rest: Rest,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let result = &self.lookup.result;
        let one = |document: &DocBuf, item: RawValue<'_>, at: u64| {
            let out = replaced(document.as_doc(), result, Some(item));
            match &unwind.index {
                Some(index) => replaced(out.as_doc(), index, Some(RawValue::Int64(at as i64))),
                None => out,
            }
        };
        let Rest { document, joined, shown } = &mut rest;
        let begun = *shown;
        match joined {
            Joined::Array(array) => {
                let array = array.as_doc();
                let count = array.iter().count() as u64;
                for item in array.iter().skip(begun as usize) {
                    let out = one(document, item.value(), *shown);
                    *shown += 1;
                    if next(out.as_doc())? != Flow::More {
                        self.rest = (*shown < count).then_some(rest);
                        return Ok(Flow::Pause);
                    }
                }
            }
            Joined::File(items) => {
                while let Some(item) = items.next()? {
                    let out = one(document, RawValue::Document(item), *shown);
                    *shown += 1;
                    if next(out.as_doc())? != Flow::More {
                        let over = items.is_over();
                        self.rest = (!over).then_some(rest);
                        return Ok(Flow::Pause);
                    }
                }
            }
        }
        if *shown > 0 || !unwind.keep_empty {
            return Ok(Flow::More);
        }
        let empty = RawValue::Array(RawDoc::EMPTY);
        let mut out = replaced(document.as_doc(), result, Some(empty));
        out = replaced(out.as_doc(), result, None);
        if let Some(index) = &unwind.index {
            out = replaced(out.as_doc(), index, Some(RawValue::Null));
        }
        next(out.as_doc())
    }

    fn scope(&self, frame: Frame<'_>) -> Result<Scope> {
        let mut scope = self.lookup.sub.scope().clone();
        let mut values = DocBuilder::new();
        for (name, expression) in &self.lookup.variables {
            let value = expression.evaluate(frame)?;
            match value.as_raw() {
                Some(value) => values.start_document(name).append("$literal", value).end(),
                None => values.append(name, "$$REMOVE"),
            };
        }
        scope.declare(values.finish().as_doc())?;
        Ok(scope)
    }

    fn filter(&self, document: RawDoc<'_>) -> Option<(DocBuf, Vec<ValueBuf>)> {
        let fields = self.lookup.fields.as_ref()?;
        let mut values = local_values(document, &fields.local);
        if values.is_empty() {
            values.push(RawValue::Null.to_owned());
        }
        let filter = equality_filter(&fields.foreign, &values);
        let filter = match &self.lookup.matching {
            Some(matching) => joined(&[filter, matching.clone()]),
            None => filter,
        };
        Some((filter, values))
    }

    /// Decides how to read, with the run for the first document.
    fn decide(&mut self, context: &StageContext<'_>, run: &PipelineRun) -> Result<()> {
        self.way = Way::Ask;
        let Some(fields) = &self.lookup.fields else { return Ok(()) };
        if !run.scans_everything() {
            return Ok(());
        }
        if let From::Collection(collection, None) = self.lookup.sub.source(context)? {
            let collation = self.lookup.sub.scope().collation().cloned();
            let table = JoinTable::build(context, collection, &fields.foreign, collation)?;
            self.way = table.map_or(Way::Ask, |table| Way::Table(Box::new(table)));
        }
        Ok(())
    }

    /// Runs the stages at the front that give the same for each document, when there are such and others behind them. Manual:
    /// "Aggregation Pipeline Optimization", "$lookup".
    fn keep_front(&mut self, context: &StageContext<'_>) -> Result<()> {
        let names = self.lookup.variables.iter().map(|(name, _)| name.as_str());
        let count = match self.lookup.variables.is_empty() {
            true => return Ok(()),
            false => self.lookup.sub.uncorrelated(names),
        };
        if count == 0 {
            self.way = Way::Ask;
            return Ok(());
        }
        let mut run = self.lookup.sub.start_front(context, count)?;
        let (mut documents, mut bytes) = (Vec::new(), 0);
        let mut share = context.settings.budget.share(Operator::LookupCache);
        let mut too_many = false;
        while !run.is_done() && !too_many {
            run.run(context.store, context.op, &mut |document| {
                bytes += document.as_bytes().len() + size_of::<DocBuf>();
                documents.push(document.to_owned());
                too_many = share.is_over(bytes);
                Ok(if too_many { Flow::Pause } else { Flow::More })
            })?;
        }
        self.way = match too_many {
            true => Way::Ask,
            false => Way::Front { count, documents: Arc::new(documents), _share: share },
        };
        Ok(())
    }

    /// The documents that are joined.
    fn joined(&mut self, context: &StageContext<'_>, document: RawDoc<'_>) -> Result<Joined> {
        if let Way::Same(results) = &self.way {
            let mut joining = Joining::new(context, &self.lookup);
            results.iter().try_for_each(|document| joining.push(document.as_doc()))?;
            return joining.finish();
        }
        let metadata = context.metadata.get();
        let scope = self.scope(metadata.frame(document))?;
        let filter = self.filter(document);
        if let (Way::Unknown, Some(fields), Some((_, values))) =
            (&self.way, &self.lookup.fields, &filter)
        {
            // Whether an index serves the join, not what else is asked: that one may serve would not make it short.
            let equality = equality_filter(&fields.foreign, values);
            let run = self.lookup.sub.start(context, &scope, Some(equality.as_doc()))?;
            self.decide(context, &run)?;
        }
        if let (Way::Table(table), Some((filter, values))) = (&mut self.way, &filter) {
            let matcher = Matcher::parse_in(filter.as_doc(), self.lookup.sub.scope())?;
            if self.lookup.sub.is_empty() {
                let mut joining = Joining::new(context, &self.lookup);
                table.find(values, &matcher, &mut |document| joining.push(document))?;
                return joining.finish();
            }
            let most = context.settings.budget.limits().of(Operator::HashLookup);
            let (mut found, mut bytes) = (Vec::new(), 0);
            table.find(values, &matcher, &mut |document| {
                bytes += document.as_bytes().len() + size_of::<DocBuf>();
                match bytes <= most {
                    true => found.push(document.to_owned()),
                    false => found.clear(),
                }
                Ok(())
            })?;
            let run = match bytes <= most {
                true => self.lookup.sub.start_over(context, &scope, found)?,
                // They are read once more, but one by one.
                false => self.lookup.sub.start(context, &scope, Some(filter.as_doc()))?,
            };
            return Joined::drain(run, context, &self.lookup);
        }
        if matches!(self.way, Way::Unknown) && self.lookup.fields.is_none() {
            self.keep_front(context)?;
        }
        if let Way::Front { count, documents, .. } = &self.way {
            let documents = documents.clone();
            let run = self.lookup.sub.start_behind(context, &scope, *count, documents)?;
            return Joined::drain(run, context, &self.lookup);
        }
        let filter = filter.as_ref().map(|(filter, _)| filter.as_doc());
        let run = self.lookup.sub.start(context, &scope, filter)?;
        let joined = Joined::drain(run, context, &self.lookup)?;
        let same = self.lookup.fields.is_none() && self.lookup.variables.is_empty();
        if let Joined::Array(array) = &joined
            && same
            && matches!(self.way, Way::Unknown)
            && self.lookup.sub.is_repeatable()
            && array.as_bytes().len() <= context.settings.budget.limits().of(Operator::LookupCache)
        {
            let documents = array.as_doc().iter();
            let documents = documents.filter_map(|it| Some(it.value().as_document()?.to_owned()));
            self.way = Way::Same(documents.collect());
        }
        Ok(joined)
    }
}

/// What was joined with one document.
enum Joined {
    /// As an array.
    Array(DocBuf),
    /// Too much for an array, which nobody needs when it is unwound.
    File(Spool),
}

/// What is left to show of a result that is unwound.
struct Rest {
    document: DocBuf,
    joined: Joined,
    /// So many were shown.
    shown: u64,
}

/// Collects what is joined with one document.
struct Joining<'j> {
    context: &'j StageContext<'j>,
    lookup: &'j Lookup,
    out: DocBuilder,
    spool: Option<SpoolWriter>,
}

impl<'j> Joining<'j> {
    fn new(context: &'j StageContext<'j>, lookup: &'j Lookup) -> Joining<'j> {
        Joining { context, lookup, out: DocBuilder::new_array(), spool: None }
    }

    fn push(&mut self, document: RawDoc<'_>) -> Result<()> {
        if let Some(spool) = &mut self.spool {
            return spool.push(document);
        }
        self.out.push(document);
        let budget = &self.context.settings.budget;
        let most = match self.lookup.unwind {
            None => budget.limits().lookup_array,
            Some(_) => budget.limits().of(Operator::HashLookup),
        };
        if self.out.len() <= most {
            return Ok(());
        }
        if let (Some(_), Some(folder)) = (&self.lookup.unwind, budget.folder()) {
            let mut spool = SpoolWriter::new(folder)?;
            let before = std::mem::replace(&mut self.out, DocBuilder::new_array()).finish();
            let documents = before.as_doc().iter().filter_map(|item| item.value().as_document());
            documents.into_iter().try_for_each(|document| spool.push(document))?;
            self.spool = Some(spool);
            return Ok(());
        }
        let name = self.lookup.sub.from.as_ref().map_or("", |from| from.collection());
        let text = format!(
            "Total size of documents in {name} matching pipeline's $lookup stage exceeds {most} bytes"
        );
        Err(Error::new(ErrorCode(4568), text))
    }

    fn finish(self) -> Result<Joined> {
        match self.spool {
            None => Ok(Joined::Array(self.out.finish())),
            Some(spool) => {
                let context = self.context;
                let spilled = spool.spilled();
                context.settings.budget.count(context.op, Operator::HashLookup, spilled);
                spool.finish().map(Joined::File)
            }
        }
    }
}

impl Joined {
    fn drain(mut run: PipelineRun, context: &StageContext<'_>, lookup: &Lookup) -> Result<Joined> {
        let mut joining = Joining::new(context, lookup);
        while !run.is_done() {
            run.run(context.store, context.op, &mut |document| {
                joining.push(document)?;
                Ok(Flow::More)
            })?;
        }
        joining.finish()
    }
}

impl Running for RunningLookup {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        context.op.check()?;
        let joined = self.joined(context, document)?;
        if let Some(unwind) = self.lookup.unwind.clone() {
            self.rest_metadata = context.metadata.get();
            let rest = Rest { document: document.to_owned(), joined, shown: 0 };
            return self.show_unwound(&unwind, rest, next);
        }
        // What is not unwound is an array.
        let Joined::Array(array) = joined else { return Ok(Flow::More) };
        let array = RawValue::Array(array.as_doc());
        next(replaced(document, &self.lookup.result, Some(array)).as_doc())
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if self.rest.is_some() {
            context.metadata.set(&self.rest_metadata);
        }
        match (self.rest.take(), self.lookup.unwind.clone()) {
            (Some(rest), Some(unwind)) => self.show_unwound(&unwind, rest, next),
            _ => Ok(Flow::More),
        }
    }

    fn holds_back(&self) -> bool {
        self.rest.is_some()
    }

    fn begin_batch(&mut self) {
        if matches!(self.way, Way::Table(_) | Way::Same(_) | Way::Front { .. }) {
            self.way = Way::Unknown;
        }
    }
}

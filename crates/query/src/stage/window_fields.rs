//! `$setWindowFields`: fields computed from a window of documents around each document.
//!
//! 1. All documents are sorted by partition, then by the given order.
//! 2. One partition at a time is collected ([`super::window_partition`]); each field of `output` is
//!    a function over it ([`mayfly_expr::window`]).

use mayfly_value::arguments::error::mistyped;
use mayfly_value::arguments::{Argument, Fields};
use std::collections::{HashSet, VecDeque};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::window::WindowFunction;
use mayfly_expr::{Dependencies, Expression, Frame, Order};
use mayfly_mql::SortPattern;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue, SortOrder};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;
use std::sync::Arc;

use super::unwind::parts;
use super::window_partition::{Collecting, Computed};
use super::{Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::metadata::Metadata;
use crate::memory::{Sorted, Sorter};

/// A parsed `$setWindowFields`.
#[derive(Clone, Debug)]
pub(crate) struct WindowFields {
    partition: Option<Expression>,
    order: Option<SortPattern>,
    output: Vec<(Vec<String>, WindowFunction)>,
    collation: Option<Arc<Collation>>,
}

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::document("output").required(),
    Argument::any("partitionBy"),
    Argument::document("sortBy"),
];

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        return Err(Error::failed_to_parse(format!(
            "the $setWindowFields stage specification must be an object, found {}",
            value.type_name()
        )));
    };
    let given = Fields::read(spec, "$setWindowFields", ARGUMENTS)?;
    let partition = spec.get("partitionBy");
    let partition =
        partition.map(|value| Expression::parse_in(value, context.scope)).transpose()?;
    // An empty order is none.
    let sort = given.document("sortBy")?.filter(|sort| !sort.is_empty());
    let output = given.document("output")?.unwrap_or(RawDoc::EMPTY);
    let by = sort.map(Order::parse_pattern).transpose()?;
    let collation = context.scope.collation().cloned();
    let order = sort.map(SortPattern::parse).transpose()?;
    let order = order.map(|order| order.collated(collation.clone()));
    let mut fields = Vec::new();
    for field in output {
        let path = parts(field.name())?;
        let RawValue::Document(function) = field.value() else {
            return Err(Error::failed_to_parse(format!(
                "The field '{}' must be an object",
                field.name()
            )));
        };
        // Window functions see the documents of a window without their metadata.
        let scope = context.scope.clone().without_metadata();
        fields.push((path, WindowFunction::parse(function, by.as_ref(), &scope)?));
    }
    check_conflicts(&fields)?;
    Ok(Box::new(WindowFields { partition, order, output: fields, collation }))
}

impl Stage for WindowFields {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningWindowFields::new(*self))
    }

    fn reads(&self) -> Reads {
        let mut read = Dependencies::default();
        self.partition.iter().for_each(|partition| read.add(partition));
        let mut paths: Vec<String> = self.output.iter().map(|(path, _)| path.join(".")).collect();
        for (_, function) in &self.output {
            read.extend(function.dependencies());
        }
        for field in self.order.iter().flat_map(|order| order.fields()) {
            paths.push(field.path.as_str().to_owned());
        }
        Reads::some_of(read, paths)
    }
}

/// Checks that no field of `output` is inside of another.
fn check_conflicts(fields: &[(Vec<String>, WindowFunction)]) -> Result<()> {
    let (mut whole, mut above) = (HashSet::new(), HashSet::new());
    for (path, _) in fields {
        let mut ways = (1..=path.len()).map(|len| &path[..len]);
        if ways.any(|way| whole.contains(way)) || above.contains(path.as_slice()) {
            let text = "$setWindowFields 'output' specification contains two conflicting paths";
            return Err(Error::new(ErrorCode(6307900), text));
        }
        whole.insert(path.as_slice());
        above.extend((1..path.len()).map(|len| &path[..len]));
    }
    Ok(())
}

struct RunningWindowFields {
    stage: WindowFields,
    sorter: Option<Sorter>,
    sorted: Sorted,
    /// The first document of the next partition, with the partition's key.
    ahead: Option<(Vec<u8>, DocBuf, Metadata)>,
    computed: Option<Computed>,
    /// Metadata of the documents of the current partition; empty as long as none has any.
    known: VecDeque<Metadata>,
}

impl RunningWindowFields {
    fn new(stage: WindowFields) -> RunningWindowFields {
        RunningWindowFields {
            stage,
            sorter: None,
            sorted: Sorted::default(),
            ahead: None,
            computed: None,
            known: VecDeque::new(),
        }
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, DocBuf, Metadata)>> {
        let Some((document, metadata)) = self.sorted.next()? else { return Ok(None) };
        let key = self.stage.partition_key(metadata.frame(document))?;
        Ok(Some((key, document.to_owned(), metadata)))
    }

    /// Stores the metadata of the document at index `place` of the partition, from the first one
    /// with metadata on.
    fn keep(&mut self, place: usize, metadata: Metadata) {
        if !(metadata.is_none() && self.known.is_empty()) {
            self.known.resize(place, Metadata::NONE);
            self.known.push_back(metadata);
        }
    }

    /// Reads a partition and computes its results; false if none is left.
    fn partition(&mut self, context: &StageContext<'_>) -> Result<bool> {
        let Some((key, first, metadata)) = self.ahead.take() else { return Ok(false) };
        let mut partition = Collecting::new(context);
        partition.push(first)?;
        self.known.clear();
        self.keep(0, metadata);
        let mut place = 0;
        while let Some((other, document, metadata)) = self.next()? {
            if other != key {
                self.ahead = Some((other, document, metadata));
                break;
            }
            partition.push(document)?;
            place += 1;
            self.keep(place, metadata);
        }
        self.computed = Some(partition.finish(context, &self.stage.output)?);
        Ok(true)
    }
}

impl WindowFields {
    fn partition_key(&self, frame: Frame<'_>) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        let Some(partition) = &self.partition else { return Ok(key) };
        let value = partition.evaluate(frame)?;
        let value = value.as_raw().unwrap_or(RawValue::Null);
        if matches!(value, RawValue::Array(_)) {
            let text = "An expression used to partition cannot evaluate to value of type array";
            return Err(mistyped(text));
        }
        let bits = &mut TypeBits::default();
        keys::append_value_in(
            &mut key,
            bits,
            value,
            SortOrder::Ascending,
            self.collation.as_deref(),
        );
        Ok(key)
    }
}

impl Running for RunningWindowFields {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        let mut key = self.stage.partition_key(metadata.frame(document))?;
        if let Some(order) = &self.stage.order {
            order.append_sort_key(document, &mut key);
        }
        context.sort(&mut self.sorter, (None, Operator::WindowFields), &key, document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = sorter.finish(context.session.op)?;
            self.ahead = self.next()?;
        }
        loop {
            if let Some(computed) = &mut self.computed {
                while let Some(result) = computed.pop(&self.stage.output)? {
                    context.metadata.set(&self.known.pop_front().unwrap_or_default());
                    let over = computed.is_over() && self.ahead.is_none();
                    if next(result.as_doc())? != Flow::More && !over {
                        return Ok(Flow::Pause);
                    }
                }
                self.computed = None;
            }
            if !self.partition(context)? {
                return Ok(Flow::More);
            }
        }
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.spill(op)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

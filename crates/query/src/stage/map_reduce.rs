//! The stage of the command `mapReduce`: three JavaScript functions over documents.
//!
//! 1. `map` is called for each document, as `this`, and emits pairs of a key and a value.
//! 2. The pairs are sorted by key; they spill where that is allowed. Pairs with equal keys keep
//!    their order.
//! 3. `reduce` makes one value of the values of a key, if there are several. It is called again
//!    with its own result after each [`MAX_VALUES`] values, so that memory is bounded.
//! 4. `finalize` changes the value of each key.
//!
//! The result has one document `{ _id: key, value }` for each key, in the order of the keys. The
//! command makes the stage; its operand is `{ map, reduce, finalize, scope }`, where all but the
//! last are code.

use std::mem;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_scripts::{Script, source_of};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{
    Collation, DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, ValueBuf, check_size,
};
use mayfly_work::spill::Operator;

use super::{Effect, Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::memory::{Sorted, Sorter};

/// The name of the stage.
pub const MAP_REDUCE_STAGE: &str = "$_internalMapReduce";

/// Limits of one call of `reduce`: values, and bytes.
const MAX_VALUES: usize = 1000;
const MAX_VALUE_BYTES: usize = 1 << 20;

/// Limit of the pairs that one document may emit, in bytes.
const MAX_EMITTED_BYTES: usize = 100 << 20;

/// Indexes of the functions in the script.
const MAP: usize = 0;
const REDUCE: usize = 1;
const FINALIZE: usize = 2;

/// The parsed stage.
#[derive(Debug)]
struct MapReduce {
    script: Arc<Script>,
    finalizes: bool,
    collation: Option<Arc<Collation>>,
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let source = |name: &str| spec.get(name).and_then(source_of).map(str::to_owned);
    let (Some(map), Some(reduce)) = (source("map"), source("reduce")) else {
        return Err(Error::bad_value("a map and a reduce function must be given"));
    };
    let finalize = source("finalize");
    let finalizes = finalize.is_some();
    let sources = vec![map, reduce, finalize.unwrap_or_default()];
    let globals = spec.get("scope").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    let script = Script::of(sources, context.scope.script_limits());
    let script = Arc::new(script.with_globals(globals.to_owned()));
    script.check_enabled()?;
    Ok(Box::new(MapReduce { script, finalizes, collation: context.scope.collation().cloned() }))
}

impl Stage for MapReduce {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningMapReduce { stage: *self, sorter: None, groups: None })
    }

    fn reads(&self) -> Reads {
        Reads::Anything
    }

    fn effect(&self) -> Effect {
        Effect::Unknown
    }
}

struct RunningMapReduce {
    stage: MapReduce,
    sorter: Option<Sorter>,
    groups: Option<Groups>,
}

/// The sorted pairs, while results are returned.
struct Groups {
    sorted: Sorted,
    /// The first pair of the next key, with its key in the sort.
    next: Option<Pair>,
}

/// An emitted pair.
struct Pair {
    sort_key: Vec<u8>,
    key: ValueBuf,
    value: ValueBuf,
}

impl MapReduce {
    fn sort_key(&self, key: RawValue<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let collation = self.collation.as_deref();
        let bits = &mut TypeBits::default();
        keys::append_value_in(&mut out, bits, key, SortOrder::Ascending, collation);
        out
    }

    /// The next pair in the order of the keys.
    fn next_pair(&self, sorted: &mut Sorted) -> Result<Option<Pair>> {
        let Some((document, _)) = sorted.next()? else { return Ok(None) };
        let part = |name: &str| document.get(name).unwrap_or(RawValue::Null).to_owned();
        let (key, value) = (part("k"), part("v"));
        Ok(Some(Pair { sort_key: self.sort_key(key.as_raw()), key, value }))
    }

    /// The result for the next key.
    fn next_result(
        &self,
        groups: &mut Groups,
        context: &StageContext<'_>,
    ) -> Result<Option<DocBuf>> {
        let Some(Pair { sort_key, key, value }) = groups.next.take() else { return Ok(None) };
        let mut bytes = value.heap_bytes();
        let mut values = vec![value];
        groups.next = self.next_pair(&mut groups.sorted)?;
        while let Some(pair) = groups.next.take_if(|pair| pair.sort_key == sort_key) {
            context.session.op.check()?;
            bytes += pair.value.heap_bytes();
            values.push(pair.value);
            if values.len() >= MAX_VALUES || bytes >= MAX_VALUE_BYTES {
                let reduced = self.reduced(&key, mem::take(&mut values))?;
                bytes = reduced.heap_bytes();
                values.push(reduced);
            }
            groups.next = self.next_pair(&mut groups.sorted)?;
        }
        let mut value = self.reduced(&key, values)?;
        if self.finalizes {
            let mut arguments = DocBuilder::new_array();
            arguments.push(&key).push(&value);
            value = self.script.call_at(FINALIZE, arguments.finish().as_doc())?;
        }
        let mut out = DocBuilder::new();
        out.append("_id", &key).append("value", &value);
        check_size(out.len())?;
        Ok(Some(out.finish()))
    }

    /// One value for several of a key.
    fn reduced(&self, key: &ValueBuf, mut values: Vec<ValueBuf>) -> Result<ValueBuf> {
        if values.len() == 1
            && let Some(only) = values.pop()
        {
            return Ok(only);
        }
        let mut arguments = DocBuilder::new_array();
        arguments.push(key).push_array();
        for value in &values {
            arguments.push(value);
        }
        arguments.end();
        self.script.call_at(REDUCE, arguments.finish().as_doc())
    }
}

impl Running for RunningMapReduce {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let Self { stage, sorter, .. } = self;
        let mut emitted_bytes = 0;
        stage.script.emitted(MAP, document, &mut |key, value| {
            let mut pair = DocBuilder::new();
            pair.append("k", &key).append("v", &value);
            let pair = pair.finish();
            emitted_bytes += pair.as_bytes().len();
            if emitted_bytes > MAX_EMITTED_BYTES {
                let text = format!(
                    "Size of emitted values exceeds the set size limit of {MAX_EMITTED_BYTES} bytes"
                );
                return Err(Error::new(ErrorCode(31292), text));
            }
            let sort_key = stage.sort_key(key.as_raw());
            context.sort(sorter, (None, Operator::Group), &sort_key, pair.as_doc())
        })?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            let mut sorted = sorter.finish(context.session.op)?;
            let next = self.stage.next_pair(&mut sorted)?;
            self.groups = Some(Groups { sorted, next });
        }
        let Some(groups) = &mut self.groups else { return Ok(Flow::More) };
        let mut flow = Flow::More;
        while flow == Flow::More
            && let Some(result) = self.stage.next_result(groups, context)?
        {
            flow = next(result.as_doc())?;
        }
        Ok(if groups.next.is_none() { Flow::More } else { Flow::Pause })
    }

    fn holds_back(&self) -> bool {
        true
    }
}

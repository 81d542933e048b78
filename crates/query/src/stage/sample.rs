//! `$sample`: a given number of random documents. Each document gets a random key, and those with
//! the smallest keys are returned.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::random_unit;
use mayfly_value::arguments::{Argument, Fields, OwnCodes};
use mayfly_value::{Number, RawDoc, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::{Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::memory::{Sorted, Sorter};

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

pub(crate) fn parse(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        return Err(fault(28745, "the $sample stage specification must be an object"));
    };
    let fields = Fields::read_with(spec, "$sample", ARGUMENTS, CODES)?;
    let size = Number::from_value(fields.required("size")?).and_then(Number::to_i64_truncated);
    match size.and_then(|size| u64::try_from(size).ok()) {
        Some(size) if size > 0 => Ok(Box::new(Sample(size))),
        _ => Err(fault(28747, "size argument to $sample must be a positive integer")),
    }
}

pub(crate) const ARGUMENTS: &[Argument] = &[Argument::number("size")
    .required()
    .null_is_value()
    .refused_with(28746, "size argument to $sample must be a number")];
pub(crate) const CODES: OwnCodes = OwnCodes {
    unknown: (28748, "unrecognized option to $sample: {}"),
    missing: Some((28749, "$sample stage must specify a size")),
};

/// A parsed `$sample`.
#[derive(Debug)]
struct Sample(u64);

impl Stage for Sample {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningSample { size: self.0, sorter: None, sorted: Sorted::default() })
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }
}

struct RunningSample {
    size: u64,
    sorter: Option<Sorter>,
    sorted: Sorted,
}

impl Running for RunningSample {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let key = random_unit().to_bits().to_be_bytes();
        context.sort(&mut self.sorter, (Some(self.size), Operator::Sort), &key, document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = sorter.finish(context.session.op)?;
        }
        while let Some((document, metadata)) = self.sorted.next()? {
            context.metadata.set(&metadata);
            if next(document)? != Flow::More && !self.sorted.is_empty() {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.spill(op)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

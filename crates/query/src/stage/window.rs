//! `$skip` and `$limit`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawDoc, RawValue};

use super::{Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;

fn whole_number(value: RawValue<'_>, stage: &str, code: i32) -> Result<i64> {
    Number::from_value(value).and_then(Number::to_i64_exact).ok_or_else(|| {
        let shown = ShellValue(value);
        let why = match value.is_number() {
            true => format!("Expected an integer: {stage}: {shown}"),
            false => format!("Expected a number in: {stage}: {shown}"),
        };
        Error::new(ErrorCode(code), format!("invalid argument to {stage} stage: {why}"))
    })
}

pub(crate) fn parse_skip(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    match whole_number(value, "$skip", 5107200)? {
        negative if negative < 0 => Err(Error::new(
            ErrorCode(5107200),
            format!(
                "invalid argument to $skip stage: Expected a non-negative number in: $skip: {negative}"
            ),
        )),
        count => Ok(Box::new(Skip(count as u64))),
    }
}

pub(crate) fn parse_limit(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    match whole_number(value, "$limit", 5107201)? {
        0 => Err(Error::new(ErrorCode(15958), "the limit must be positive")),
        negative if negative < 0 => Err(Error::new(
            ErrorCode(5107201),
            format!(
                "invalid argument to $limit stage: Expected a non-negative number in: $limit: {negative}"
            ),
        )),
        count => Ok(Box::new(Limit(count as u64))),
    }
}

/// A parsed `$skip`.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) u64);

impl Stage for Skip {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningSkip(self.0))
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }
}

/// A parsed `$limit`.
#[derive(Debug)]
pub(crate) struct Limit(pub(crate) u64);

impl Stage for Limit {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningLimit(self.0))
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }
}

struct RunningSkip(u64);

impl Running for RunningSkip {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        if self.0 == 0 {
            return next(document);
        }
        self.0 -= 1;
        Ok(Flow::More)
    }
}

struct RunningLimit(u64);

impl Running for RunningLimit {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        if self.0 == 0 {
            return Ok(Flow::Pause);
        }
        self.0 -= 1;
        next(document)
    }

    fn is_satisfied(&self) -> bool {
        self.0 == 0
    }
}

//! `$skip` and `$limit`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawDoc, RawValue};

use super::{Around, Next, Running, Stage, StageContext};
use crate::Flow;

fn whole_number(value: RawValue<'_>, stage: &str, code: i32) -> Result<i64> {
    Number::from_value(value).and_then(Number::to_i64_exact).ok_or_else(|| {
        Error::new(
            ErrorCode(code),
            format!("invalid argument to {stage} stage: Expected an integer: {stage}: {value:?}"),
        )
    })
}

pub(super) fn parse_skip(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match whole_number(value, "$skip", 5107200)? {
        negative if negative < 0 => Err(Error::new(
            ErrorCode(5107200),
            format!(
                "invalid argument to $skip stage: Expected a non-negative number in: $skip: {negative}"
            ),
        )),
        count => Ok(vec![Stage::Skip(count as u64)]),
    }
}

pub(super) fn parse_limit(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match whole_number(value, "$limit", 5107201)? {
        0 => Err(Error::new(ErrorCode(15958), "the limit must be positive")),
        negative if negative < 0 => Err(Error::new(
            ErrorCode(5107201),
            format!(
                "invalid argument to $limit stage: Expected a non-negative number in: $limit: {negative}"
            ),
        )),
        count => Ok(vec![Stage::Limit(count as u64)]),
    }
}

pub(super) struct RunningSkip(pub(super) u64);

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

pub(super) struct RunningLimit(pub(super) u64);

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

//! `$_internalUnpackBucket`: unpacks buckets into measurements. The view of a time series consists
//! of this stage.
//!
//! The stage uses the conditions of later stages ([`super::on_buckets`]): it unpacks only columns
//! that are read, and skips buckets whose smallest and largest values exclude a match.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::{BucketView, MeasurementFields};
use mayfly_expr::Scope;
use mayfly_value::{DocBuf, Number, RawDoc, RawValue};

use super::on_buckets::BoundTest;
use super::top_k::{BucketDecision, SharedTopKTimes};
use crate::exec::Flow;
use crate::stage::{Next, Running, Stage, StageContext};

/// The parsed stage.
#[derive(Debug)]
pub(crate) struct Unpack {
    pub(crate) fields: MeasurementFields,
    /// The longest span of a bucket, in milliseconds.
    pub(crate) span_ms: i64,
    /// The fields that later stages read; `None` for all.
    pub(crate) needed: Option<HashSet<String>>,
    /// Comparisons that a later `$match` requires of measurements.
    pub(crate) tests: Vec<BoundTest>,
    /// The first k measurements, if later stages need no others.
    pub(crate) top_k: Option<SharedTopKTimes>,
}

pub(crate) fn parse(value: RawValue<'_>, _: &Scope) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let text = format!(
            "$_internalUnpackBucket specification must be an object, got: {}",
            value.type_name()
        );
        return Err(Error::new(ErrorCode(5346500), text));
    };
    let (mut time, mut meta, mut span) = (None, None, None);
    for element in spec {
        let text = |code| match element.value() {
            RawValue::String(name) => Ok(Some(name.to_owned())),
            other => Err(Error::new(
                ErrorCode(code),
                format!("{} field must be a string, got: {}", element.name(), other.type_name()),
            )),
        };
        match element.name() {
            "timeField" => time = text(5346504)?,
            "metaField" => meta = text(5346505)?,
            "bucketMaxSpanSeconds" => span = Number::from_value(element.value()),
            other => {
                let text = format!("unrecognized parameter to unpack stage: {other}");
                return Err(Error::new(ErrorCode(5346506), text));
            }
        }
    }
    let Some(time) = time else {
        let text = "The $_internalUnpackBucket stage requires a timeField parameter";
        return Err(Error::new(ErrorCode(5346508), text));
    };
    let Some(span) = span.and_then(Number::to_i64_exact) else {
        let text = "The $_internalUnpackBucket stage requires a bucketMaxSpanSeconds parameter";
        return Err(Error::new(ErrorCode(5510402), text));
    };
    let fields = MeasurementFields { time, meta };
    let span_ms = span.saturating_mul(1000);
    let (needed, tests, top_k) = (None, Vec::new(), None);
    Ok(Box::new(Unpack { fields, span_ms, needed, tests, top_k }))
}

impl Stage for Unpack {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningUnpack { stage: *self, over: false, rest: VecDeque::new() })
    }
}

struct RunningUnpack {
    stage: Unpack,
    /// Whether no later bucket is needed.
    over: bool,
    /// Unpacked measurements that were left when the next stage paused.
    rest: VecDeque<DocBuf>,
}

impl Running for RunningUnpack {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let bucket = BucketView::new(document)?;
        let stage = &self.stage;
        let look = stage.top_k.as_ref().map(|it| it.lock().decide(bucket, &stage.fields.time));
        match look {
            None | Some(BucketDecision::Unpack) => {}
            Some(BucketDecision::PassOver) => return Ok(Flow::More),
            Some(BucketDecision::Over) => {
                self.over = true;
                return Ok(Flow::Pause);
            }
        }
        if !stage.tests.iter().all(|test| test.may_hold(bucket)) {
            return Ok(Flow::More);
        }
        let needed = |name: &str| stage.needed.as_ref().is_none_or(|all| all.contains(name));
        let (rest, mut flow) = (&mut self.rest, Flow::More);
        bucket.measurements(&stage.fields, &needed, &mut |_, measurement| {
            match flow {
                Flow::More => flow = next(measurement)?,
                Flow::Pause | Flow::Refused => rest.push_back(measurement.to_owned()),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(flow)
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        context.metadata.clear();
        while let Some(measurement) = self.rest.pop_front() {
            if next(measurement.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn is_satisfied(&self) -> bool {
        self.over
    }

    fn holds_back(&self) -> bool {
        !self.rest.is_empty()
    }
}

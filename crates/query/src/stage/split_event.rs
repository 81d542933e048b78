//! `$changeStreamSplitLargeEvent`: returns events that exceed the size of a document in fragments,
//! which `change::split` defines.

use std::collections::VecDeque;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::{Next, PipelineContext, Running, Stage, StageContext};
use crate::change::{Resumed, fragments};
use crate::exec::Flow;

pub(crate) fn parse(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    match value {
        RawValue::Document(spec) if spec.is_empty() => Ok(Box::new(SplitLargeEvent(None))),
        _ => Err(Error::new(
            ErrorCode(7182800),
            "$changeStreamSplitLargeEvent takes an empty object",
        )),
    }
}

/// The parsed stage, with the fragment after which the stream resumes.
#[derive(Debug)]
pub(crate) struct SplitLargeEvent(pub(crate) Option<Resumed>);

impl Stage for SplitLargeEvent {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningSplit { resumed: self.0, held: VecDeque::new() })
    }
}

struct RunningSplit {
    /// The fragment after which the stream resumes, until its event has arrived.
    resumed: Option<Resumed>,
    /// Fragments that a pause left over.
    held: VecDeque<DocBuf>,
}

impl RunningSplit {
    fn give(&mut self, next: &mut Next<'_>) -> Result<Flow> {
        while let Some(fragment) = self.held.pop_front() {
            if next(fragment.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }
}

impl Running for RunningSplit {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let mut fragments = fragments(document)?;
        let split = !fragments.is_empty();
        if let Some(resumed) = self.resumed.take() {
            resumed.rest(document, &mut fragments)?;
        }
        if !split {
            return next(document);
        }
        self.held = fragments.into();
        self.give(next)
    }

    fn resume(&mut self, _: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        self.give(next)
    }

    fn holds_back(&self) -> bool {
        !self.held.is_empty()
    }

    fn held(&self) -> Option<RawDoc<'_>> {
        self.held.front().map(DocBuf::as_doc)
    }
}

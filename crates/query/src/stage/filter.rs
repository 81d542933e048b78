//! `$match`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::Matcher;
use mayfly_value::{RawDoc, RawValue};

use super::{Effect, Next, PipelineContext, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::metadata;

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    match value {
        RawValue::Document(filter) => {
            let scope = context.scope.clone().with_text_index();
            Ok(Box::new(Match(Matcher::parse_in(filter, &scope)?)))
        }
        _ => {
            Err(Error::new(ErrorCode(15959), "the match filter must be an expression in an object"))
        }
    }
}

/// A parsed `$match`.
#[derive(Debug)]
pub(crate) struct Match(pub(crate) Matcher);

impl Stage for Match {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningMatch(self.0))
    }

    fn reads(&self) -> Reads {
        self.0.root().reads().map_or(Reads::Anything, |reads| Reads::Some(reads.paths))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        metadata::given_by(&self.0)
    }
}

struct RunningMatch(Matcher);

impl Running for RunningMatch {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        if self.0.matches(document)? { next(document) } else { Ok(Flow::More) }
    }
}

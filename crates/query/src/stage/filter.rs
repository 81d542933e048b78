//! `$match`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::Matcher;
use mayfly_value::{RawDoc, RawValue};

use super::{Around, Next, Running, Stage, StageContext};
use crate::Flow;

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(filter) => {
            let scope = around.scope.clone().with_text_index();
            Ok(vec![Stage::Match(Matcher::parse_in(filter, &scope)?)])
        }
        _ => {
            Err(Error::new(ErrorCode(15959), "the match filter must be an expression in an object"))
        }
    }
}

pub(super) struct RunningMatch(pub(super) Matcher);

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

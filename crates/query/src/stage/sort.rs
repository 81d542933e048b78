//! `$sort`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_mql::SortPattern;
use mayfly_value::{RawDoc, RawValue};

use super::{Next, Running, Stage, StageContext};
use crate::Flow;
use crate::memory::{Sorted, Sorter};

pub(super) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(pattern) if pattern.is_empty() => {
            Err(Error::new(ErrorCode(15976), "$sort stage must have at least one sort key"))
        }
        RawValue::Document(pattern) => {
            let pattern = SortPattern::parse_in(pattern, scope)?;
            Ok(vec![Stage::Sort(pattern.collated(scope.collation().cloned()), None)])
        }
        _ => Err(Error::new(ErrorCode(15973), "the $sort key specification must be an object")),
    }
}

pub(super) struct RunningSort {
    pattern: SortPattern,
    keep: Option<u64>,
    sorter: Option<Sorter>,
    sorted: Option<Sorted>,
}

impl RunningSort {
    pub(super) fn new(pattern: SortPattern, keep: Option<u64>) -> RunningSort {
        RunningSort { pattern, keep, sorter: None, sorted: None }
    }
}

impl Running for RunningSort {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let begin = || Sorter::new(self.pattern.clone(), self.keep, &context.settings.budget);
        self.sorter.get_or_insert_with(begin).push(
            document,
            &context.metadata.get(),
            context.op,
        )?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = Some(sorter.finish(context.op)?);
        }
        let Some(sorted) = &mut self.sorted else { return Ok(Flow::More) };
        let mut given = 0u64;
        while let Some((document, metadata)) = sorted.next()? {
            context.metadata.set(&metadata);
            given += 1;
            if given.is_multiple_of(256) {
                context.op.check()?;
            }
            if next(document)? != Flow::More && !sorted.is_empty() {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

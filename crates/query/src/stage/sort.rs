//! `$sort`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_mql::SortPattern;
use mayfly_value::{RawDoc, RawValue};

use super::{Next, Running, Stage};
use crate::Flow;
use crate::sorter::Sorter;

pub(super) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(pattern) if pattern.is_empty() => {
            Err(Error::new(ErrorCode(15976), "$sort stage must have at least one sort key"))
        }
        RawValue::Document(pattern) => {
            let pattern = SortPattern::parse(pattern)?;
            Ok(vec![Stage::Sort(pattern.collated(scope.collation().cloned()))])
        }
        _ => Err(Error::new(ErrorCode(15973), "the $sort key specification must be an object")),
    }
}

pub(super) struct RunningSort(Option<Sorter>);

impl RunningSort {
    pub(super) fn new(pattern: SortPattern) -> RunningSort {
        RunningSort(Some(Sorter::new(pattern, None)))
    }
}

impl Running for RunningSort {
    fn push(&mut self, document: RawDoc<'_>, _: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = &mut self.0 {
            sorter.push(document)?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, next: &mut Next<'_>) -> Result<()> {
        let sorted = self.0.take().map(Sorter::finish).unwrap_or_default();
        for document in sorted {
            next(document.as_doc())?;
        }
        Ok(())
    }
}

//! `SORT`: collects all rows, then returns them in order.

use std::ops::ControlFlow;

use mayfly_base::{Error, Result};
use mayfly_work::OpCtx;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::language::needed::Fields;
use crate::memory::{Sorted, Sorter};

pub(super) struct Sort {
    input: Box<dyn Node>,
    /// Number of results for a top-k sort.
    most: Option<u64>,
    /// The fields that are buffered; `None` for whole documents.
    keeps: Option<Fields>,
    /// The rows collected so far.
    begun: Option<Sorter>,
    sorted: Option<Sorted>,
    counters: Counters,
}

impl Sort {
    pub(super) fn new(input: Box<dyn Node>, most: Option<u64>, keeps: Option<Fields>) -> Sort {
        let counters = Counters::default();
        Sort { input, most, keeps, begun: None, sorted: None, counters }
    }

    /// Collects all rows; `None` if the works are spent, in which case the next batch continues.
    fn collect(&mut self, batch: &Batch<'_>) -> Result<Option<Sorted>> {
        let Some(pattern) = batch.query.sort.clone() else {
            return Err(Error::internal("a sort without an order"));
        };
        let new = || Sorter::new(pattern, self.most, batch.budget);
        let mut sorter = self.begun.take().unwrap_or_else(new);
        let (keeps, examined) = (&self.keeps, &mut self.counters.examined);
        batch.requested.set(Some(u64::MAX));
        let mut take = |row: &Row<'_>| {
            *examined += 1;
            if let Some(document) = row.document {
                let pushed =
                    sorter.push_fields(document, row.metadata, keeps.as_ref(), batch.session.op);
                pushed.map_err(|error| batch.failures.named(error))?;
            }
            Ok(ControlFlow::Continue(()))
        };
        while self.input.run(batch, &mut take)? == Progress::Stopped {
            if batch.works_left() == 0 {
                self.begun = Some(sorter);
                return Ok(None);
            }
        }
        sorter.finish(batch.session.op).map(Some)
    }
}

impl Node for Sort {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        if self.sorted.is_none() {
            self.sorted = self.collect(batch)?;
        }
        let Some(sorted) = &mut self.sorted else { return Ok(Progress::Stopped) };
        while let Some((document, metadata)) = sorted.next()? {
            self.counters.returned += 1;
            if rows(&Row::read(&[], document, &metadata))?.is_break() {
                return Ok(Progress::Stopped);
            }
        }
        self.counters.over = true;
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        let sort = self.sorted.as_ref().map(Sorted::stats).unwrap_or_default();
        Counters { sort, ..self.counters.clone() }
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.as_mut().map_or(Ok(()), |sorted| sorted.spill(op))
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        see(&*self.input);
    }
}

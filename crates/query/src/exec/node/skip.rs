//! `SKIP` and `LIMIT`.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_work::OpCtx;

use super::{Batch, Counters, Node, Progress, Rows, ScanPosition};

/// Drops the first rows. Over an exact index scan these are keys.
pub(super) struct Skip {
    input: Box<dyn Node>,
    left: u64,
    counters: Counters,
}

impl Skip {
    pub(super) fn new(input: Box<dyn Node>, count: u64) -> Skip {
        Skip { input, left: count, counters: Counters::default() }
    }
}

impl Node for Skip {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (left, counters) = (&mut self.left, &mut self.counters);
        batch.requested.set(batch.requested.get().map(|requested| requested.saturating_add(*left)));
        let progress = self.input.run(batch, &mut |row| {
            counters.examined += 1;
            if *left > 0 {
                if batch.is_known_result(row) || batch.read(row.record, &mut |_| Ok(()))? {
                    *left -= 1;
                }
                return Ok(ControlFlow::Continue(()));
            }
            counters.returned += 1;
            rows(row)
        })?;
        counters.over = progress == Progress::Over;
        Ok(progress)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        see(&*self.input);
    }

    fn collect_keys(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.input.collect_keys(batch)
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.input.release(op)
    }

    fn go_back(&mut self, place: ScanPosition<'_>, (rows, keys): (u64, u64)) {
        self.counters.take_back((rows, rows));
        self.input.go_back(place, (rows, keys));
    }
}

/// Passes on the first rows.
pub(super) struct Limit {
    input: Box<dyn Node>,
    left: u64,
    /// The state after the last row.
    at_end: Progress,
    counters: Counters,
}

impl Limit {
    pub(super) fn new(input: Box<dyn Node>, count: u64, at_end: Progress) -> Limit {
        Limit { input, left: count, at_end, counters: Counters::default() }
    }
}

impl Node for Limit {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (left, counters) = (&mut self.left, &mut self.counters);
        let mut progress = self.at_end;
        if *left > 0 {
            batch
                .requested
                .set(Some(batch.requested.get().map_or(*left, |requested| requested.min(*left))));
            progress = self.input.run(batch, &mut |row| {
                (*left, counters.examined) = (*left - 1, counters.examined + 1);
                counters.returned += 1;
                let flow = rows(row)?;
                Ok(if *left == 0 { ControlFlow::Break(()) } else { flow })
            })?;
        }
        if *left == 0 {
            progress = self.at_end;
        }
        counters.over = progress == Progress::Over;
        Ok(progress)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        see(&*self.input);
    }

    fn collect_keys(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.input.collect_keys(batch)
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.input.release(op)
    }
}

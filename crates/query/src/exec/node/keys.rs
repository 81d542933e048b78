//! Counts results for a caller that does not need documents. Records are read only where keys do
//! not suffice.

use mayfly_base::Result;
use mayfly_value::RawDoc;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::language::metadata::Metadata;

pub(super) struct Keys {
    input: Box<dyn Node>,
    counters: Counters,
}

impl Keys {
    pub(super) fn new(input: Box<dyn Node>) -> Keys {
        Keys { input, counters: Counters::default() }
    }
}

impl Node for Keys {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let counters = &mut self.counters;
        let progress = self.input.run(batch, &mut |row| {
            counters.examined += 1;
            if !batch.is_known_result(row) {
                counters.documents += 1;
                if !batch.read(row.record, &mut |_| Ok(()))? {
                    return Ok(std::ops::ControlFlow::Continue(()));
                }
            }
            counters.returned += 1;
            rows(&Row::read(row.record, RawDoc::EMPTY, &Metadata::NONE))
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
}

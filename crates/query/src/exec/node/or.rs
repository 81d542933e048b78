//! `OR`: the records of several inputs, one input after the other, without duplicates.

use std::ops::ControlFlow;

use mayfly_base::Result;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::memory::SeenRecords;

pub(super) struct Or {
    inputs: Vec<Box<dyn Node>>,
    /// The index of the current input.
    at: usize,
    seen: Option<SeenRecords>,
    counters: Counters,
}

impl Or {
    pub(super) fn new(inputs: Vec<Box<dyn Node>>) -> Or {
        Or { inputs, at: 0, seen: None, counters: Counters::default() }
    }
}

impl Node for Or {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let counters = &mut self.counters;
        let seen = self.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
        // Keys of duplicates, charged to the next row.
        let mut passed = 0;
        while let Some(input) = self.inputs.get_mut(self.at) {
            let progress = input.run(batch, &mut |row| {
                counters.examined += 1;
                counters.tested += 1;
                if !seen.insert(row.record, batch.session.op)? {
                    counters.dropped += 1;
                    passed += row.keys;
                    return Ok(ControlFlow::Continue(()));
                }
                counters.returned += 1;
                let keys = row.keys + std::mem::take(&mut passed);
                rows(&Row { keys, ..*row })
            })?;
            if progress != Progress::Over {
                return Ok(progress);
            }
            self.at += 1;
        }
        counters.over = true;
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        self.inputs.iter().for_each(|input| see(&**input));
    }
}

//! `AND_HASH`: the records that both inputs return, in the order of the second.

use std::ops::ControlFlow;

use mayfly_base::Result;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::memory::SeenRecords;

pub(super) struct AndHash {
    /// Each input returns a record at most once.
    inputs: [Box<dyn Node>; 2],
    /// Whether the first input is exhausted.
    collected: bool,
    /// The records of the first input.
    records: Option<SeenRecords>,
    counters: Counters,
}

impl AndHash {
    pub(super) fn new(inputs: [Box<dyn Node>; 2]) -> AndHash {
        AndHash { inputs, collected: false, records: None, counters: Counters::default() }
    }
}

impl Node for AndHash {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let counters = &mut self.counters;
        let records = self.records.get_or_insert_with(|| SeenRecords::new(batch.budget));
        let [first, second] = &mut self.inputs;
        if !self.collected {
            // The limit on results does not apply to the first input.
            let requested = batch.requested.take();
            let progress = first.run(batch, &mut |row| {
                counters.examined += 1;
                records.insert(row.record, batch.session.op)?;
                Ok(ControlFlow::Continue(()))
            })?;
            batch.requested.set(requested);
            counters.held_bytes = records.memory_bytes() as u64;
            if progress != Progress::Over {
                return Ok(progress);
            }
            self.collected = true;
        }
        // Keys of records that are not in the first input, charged to the next row.
        let mut passed = 0;
        let progress = second.run(batch, &mut |row| {
            counters.examined += 1;
            counters.tested += 1;
            // The second input returns each record once, so the insertion does no harm.
            if records.insert(row.record, batch.session.op)? {
                passed += row.keys;
                return Ok(ControlFlow::Continue(()));
            }
            counters.returned += 1;
            let keys = row.keys + std::mem::take(&mut passed);
            rows(&Row::key(row.record, keys))
        })?;
        counters.over = progress == Progress::Over;
        Ok(progress)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        self.inputs.iter().for_each(|input| see(&**input));
    }
}

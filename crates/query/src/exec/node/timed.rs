//! Wraps a node and measures its execution time with the nodes below it, for explain.

use mayfly_base::Result;

use super::{Batch, Counters, Node, Progress, Rows, ScanPosition};

pub(super) struct Timed {
    node: Box<dyn Node>,
    micros: u64,
}

impl Timed {
    pub(super) fn new(node: Box<dyn Node>) -> Timed {
        Timed { node, micros: 0 }
    }
}

impl Node for Timed {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let now = || batch.session.op.elapsed_micros().unsigned_abs();
        let (began, mut above) = (now(), 0);
        // The time of the consumer is not counted.
        let progress = self.node.run(batch, &mut |row| {
            let given = now();
            let flow = rows(row);
            above += now().saturating_sub(given);
            flow
        });
        self.micros += now().saturating_sub(began).saturating_sub(above);
        progress
    }

    fn counters(&self) -> Counters {
        Counters { micros: self.micros, ..self.node.counters() }
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        self.node.each_input(see);
    }

    fn go_back(&mut self, place: ScanPosition<'_>, back: (u64, u64)) {
        self.node.go_back(place, back);
    }

    fn collect_keys(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.node.collect_keys(batch)
    }

    fn check_alive(&self) -> Result<()> {
        self.node.check_alive()
    }
}

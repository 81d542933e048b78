//! `IDHACK`: one record by its `_id`, read without a snapshot.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::IdKey;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::language::metadata::Metadata;

pub(super) struct ById {
    key: IdKey,
    counters: Counters,
}

impl ById {
    pub(super) fn new(key: IdKey) -> ById {
        ById { key, counters: Counters::default() }
    }
}

impl Node for ById {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (mut result, counters) = (Ok(ControlFlow::Continue(())), &mut self.counters);
        batch.session.store.read_by_id(
            batch.session.view,
            batch.collection,
            &self.key,
            |key, document| {
                batch.count(1, 1);
                (counters.keys, counters.documents) = (1, 1);
                result = batch.matches(document).and_then(|matches| match matches {
                    true => {
                        counters.returned = 1;
                        rows(&Row::read(key, document, &Metadata::NONE))
                    }
                    false => Ok(ControlFlow::Continue(())),
                });
            },
        )?;
        counters.over = true;
        result.map(|_| Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }
}

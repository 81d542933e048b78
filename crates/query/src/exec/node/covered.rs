//! `PROJECTION_COVERED`: documents built from index entries.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::{Entry, IndexField};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::language::metadata::Metadata;

pub(super) struct Covered {
    input: Box<dyn Node>,
    fields: Vec<IndexField>,
    counters: Counters,
}

impl Covered {
    pub(super) fn new(input: Box<dyn Node>, fields: Vec<IndexField>) -> Covered {
        Covered { input, fields, counters: Counters::default() }
    }
}

impl Node for Covered {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (fields, counters) = (&self.fields, &mut self.counters);
        let progress = self.input.run(batch, &mut |row| {
            counters.examined += 1;
            let entry = row.entry.filter(|_| batch.is_known_result(row));
            if let Some(made) = entry.and_then(|entry| document(entry, fields)) {
                counters.returned += 1;
                return rows(&Row::read(row.record, made.as_doc(), &Metadata::NONE));
            }
            let mut flow = ControlFlow::Continue(());
            counters.documents += 1;
            batch.spend(1);
            batch.read(row.record, &mut |document| {
                counters.returned += 1;
                flow = rows(&Row::read(row.record, document, &Metadata::NONE))?;
                Ok(())
            })?;
            Ok(flow)
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

/// Builds a document from the fields of an entry; `None` if a value may stand for a missing field.
pub(super) fn document(entry: &Entry<'_>, fields: &[IndexField]) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    let mut bits = TypeBitsReader::new(entry.type_bits);
    let mut rest = entry.values;
    for field in fields {
        let (value, length) = keys::decode_value(rest, field.order, &mut bits)?;
        if matches!(value.as_raw(), RawValue::Null | RawValue::Undefined) {
            return None;
        }
        rest = rest.get(length..)?;
        let (last, around) = field.parts.split_last()?;
        for name in around {
            out.start_document(name);
        }
        out.append(last, &value);
        for _ in around {
            out.end();
        }
    }
    Some(out.finish())
}

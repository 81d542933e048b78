//! A collection in memory, by the values of one field: for joins that no index serves.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use mayfly_base::Result;
use mayfly_mql::Matcher;
use mayfly_storage::Collection;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::{Hit, visit_path};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue, ValueBuf};

use super::StageContext;
use crate::pipeline::everything;
use crate::{Executor, Flow};

/// Memory of a document and of a value beside their bytes, roughly.
const ENTRY_BYTES: usize = 64;

pub(super) struct JoinTable {
    documents: Vec<DocBuf>,
    places: HashMap<Vec<u8>, Vec<u32>>,
    collation: Option<Arc<Collation>>,
}

impl JoinTable {
    /// Reads the collection; nothing when it does not fit memory.
    ///
    /// # Errors
    /// Those of the store and of the operation's deadline.
    pub(super) fn build(
        context: &StageContext<'_>,
        collection: Arc<Collection>,
        field: &str,
        collation: Option<Arc<Collation>>,
    ) -> Result<Option<JoinTable>> {
        let parts: Vec<&str> = field.split('.').collect();
        let mut table = JoinTable { documents: Vec::new(), places: HashMap::new(), collation };
        let (mut bytes, most) = (0, context.settings.memory_bytes);
        let mut executor = Executor::new(collection, everything(None)?)?;
        while !executor.is_done() && bytes <= most {
            executor.run(context.store, context.op, &mut |_, document, _| {
                bytes += table.add(document, &parts);
                Ok(if bytes > most { Flow::Pause } else { Flow::More })
            })?;
        }
        Ok((bytes <= most).then_some(table))
    }

    fn add(&mut self, document: RawDoc<'_>, parts: &[&str]) -> usize {
        let place = self.documents.len() as u32;
        let mut bytes = document.as_bytes().len() + ENTRY_BYTES;
        let mut keys = BTreeSet::new();
        let _ = visit_path(document, parts, &mut |hit| {
            keys.insert(match hit {
                Hit::Value(value, _) => self.key(value),
                Hit::Missing => self.key(RawValue::Null),
            });
            ControlFlow::Continue(())
        });
        if keys.is_empty() {
            keys.insert(self.key(RawValue::Null));
        }
        for key in keys {
            bytes += key.len() + ENTRY_BYTES;
            self.places.entry(key).or_default().push(place);
        }
        self.documents.push(document.to_owned());
        bytes
    }

    fn key(&self, value: RawValue<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        let value = if value == RawValue::Undefined { RawValue::Null } else { value };
        let collation = self.collation.as_deref();
        keys::append_value_in(&mut key, &mut TypeBits::default(), value, false, collation);
        key
    }

    /// Documents that have one of the values and satisfy the filter, in their order.
    ///
    /// # Errors
    /// Those of the filter.
    pub(super) fn find(&self, values: &[ValueBuf], matcher: &Matcher) -> Result<Vec<&DocBuf>> {
        let mut places: BTreeSet<u32> = BTreeSet::new();
        for value in values {
            places.extend(self.places.get(&self.key(value.as_raw())).into_iter().flatten());
        }
        let mut found = Vec::new();
        for place in places {
            let document = &self.documents[place as usize];
            if matcher.matches(document.as_doc())? {
                found.push(document);
            }
        }
        Ok(found)
    }
}

//! Collections of values: lists, sets, and the fields of merged documents.

use std::collections::VecDeque;

use foldhash::HashMap;
use mayfly_value::keys::{TypeBits, append_value_in};
use mayfly_value::{Collation, DocBuilder, RawDoc, RawValue, SortOrder, ValueBuf};

/// Approximate memory of a value without its bytes.
pub(crate) const VALUE_BYTES: usize = 40;

/// Values in the order of insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) values: VecDeque<ValueBuf>,
    pub(crate) bytes: usize,
}

impl List {
    /// Memory of a value.
    pub(crate) fn value_bytes(value: &ValueBuf) -> usize {
        value.data().len() + VALUE_BYTES
    }

    pub(crate) fn push(&mut self, value: RawValue<'_>) {
        let value = value.to_owned();
        self.bytes += List::value_bytes(&value);
        self.values.push_back(value);
    }

    /// Removes the first value.
    pub(crate) fn pop_front(&mut self) {
        if let Some(gone) = self.values.pop_front() {
            self.bytes -= List::value_bytes(&gone);
        }
    }
}

/// A set of values; equal numbers of different types are the same value.
#[derive(Clone, Debug, Default)]
pub(super) struct Distinct {
    places: HashMap<Vec<u8>, usize>,
    pub(super) list: List,
    key_bytes: usize,
}

impl Distinct {
    pub(super) fn put(&mut self, value: RawValue<'_>, collation: Option<&Collation>) {
        let key = encoded(value, SortOrder::Ascending, collation);
        if let std::collections::hash_map::Entry::Vacant(place) = self.places.entry(key) {
            self.key_bytes += place.key().len() + VALUE_BYTES;
            place.insert(self.list.values.len());
            self.list.push(value);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.key_bytes + self.list.bytes
    }
}

/// Encodes a value as bytes with the order of values.
pub(crate) fn encoded(
    value: RawValue<'_>,
    order: SortOrder,
    collation: Option<&Collation>,
) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    append_value_in(&mut key, &mut TypeBits::default(), value, order, collation);
    key
}

/// Fields in the order of their first occurrence, each with its last value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merged {
    fields: Vec<(String, ValueBuf)>,
    places: HashMap<String, usize>,
    pub(super) bytes: usize,
    /// Encoded length of all fields: type, name and value.
    fields_len: usize,
}

impl Merged {
    pub(crate) fn set_all(&mut self, document: RawDoc<'_>) {
        for element in document {
            let value = element.value().to_owned();
            self.bytes += value.data().len();
            self.fields_len += element.encoded_len();
            match self.places.get(element.name()) {
                Some(at) => {
                    let old = std::mem::replace(&mut self.fields[*at].1, value);
                    self.bytes -= old.data().len();
                    self.fields_len -= 2 + element.name_bytes().len() + old.data().len();
                }
                None => {
                    let name = element.name().to_owned();
                    self.bytes += 2 * name.len() + VALUE_BYTES;
                    self.places.insert(name.clone(), self.fields.len());
                    self.fields.push((name, value));
                }
            }
        }
    }

    /// Encoded length of the document.
    pub(crate) fn encoded_len(&self) -> usize {
        self.fields_len + RawDoc::EMPTY.as_bytes().len()
    }

    pub(crate) fn build(&self) -> DocBuilder {
        let mut out = DocBuilder::new();
        for (name, value) in &self.fields {
            out.append(name, value);
        }
        out
    }
}

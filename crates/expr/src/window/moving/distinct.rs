//! Distinct values of a window: `$addToSet`, `$setUnion`, and `$mergeObjects`, whose result has
//! distinct names.
//!
//! Each document has items: a value, the members of an array, or the fields of a document. The
//! result is in the order of the first items with the same key. When such an item leaves the
//! window, the next one with its key takes its place.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foldhash::HashMap;
use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, RawValue, SortOrder, ValueBuf, check_size, ty};

use super::super::WindowFunction;
use super::WindowState;
use crate::accum::{
    Accumulator, AccumulatorKind, SET_ENTRY_BYTES, StateLimit, array, encoded, not_an_array,
};
use crate::op::merge_fault;

struct Item {
    /// The encoded value, or the name of the field.
    key: Arc<[u8]>,
    value: ValueBuf,
    /// The number of the next item with the same key.
    next: Option<u64>,
}

pub(super) struct DistinctItems {
    kind: AccumulatorKind,
    limit: StateLimit,
    items: VecDeque<Item>,
    /// The number of the first item.
    start: u64,
    /// The number of items of each document.
    counts: VecDeque<usize>,
    /// The number of the last item with a key.
    last: HashMap<Arc<[u8]>, u64>,
    /// The numbers of the first items with their keys.
    firsts: BTreeSet<u64>,
    bytes: usize,
}

fn entry_bytes(item: &Item) -> usize {
    item.key.len() + item.value.data().len() + 2 * SET_ENTRY_BYTES
}

impl DistinctItems {
    pub(super) fn new(accumulator: &Accumulator) -> DistinctItems {
        DistinctItems {
            kind: accumulator.kind(),
            limit: accumulator.limit(),
            items: VecDeque::new(),
            start: 0,
            counts: VecDeque::new(),
            last: HashMap::default(),
            firsts: BTreeSet::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, key: &[u8], value: RawValue<'_>) {
        let number = self.start + self.items.len() as u64;
        let before = self.last.get(key).and_then(|last| self.place(*last));
        let key = match before.and_then(|at| self.items.get_mut(at)) {
            Some(before) => {
                before.next = Some(number);
                Arc::clone(&before.key)
            }
            None => {
                self.firsts.insert(number);
                Arc::from(key)
            }
        };
        self.last.insert(Arc::clone(&key), number);
        let item = Item { key, value: value.to_owned(), next: None };
        self.bytes += size_of::<Item>() + entry_bytes(&item);
        self.items.push_back(item);
    }

    fn pop(&mut self) {
        let Some(item) = self.items.pop_front() else { return };
        self.bytes -= size_of::<Item>() + entry_bytes(&item);
        self.firsts.remove(&self.start);
        match item.next {
            Some(next) => drop(self.firsts.insert(next)),
            None => drop(self.last.remove(&item.key)),
        }
        self.start += 1;
    }

    /// The position of an item with this number.
    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.start)?).ok()
    }

    fn item(&self, number: u64) -> Option<&Item> {
        self.items.get(self.place(number)?)
    }

    /// The first items with their keys.
    fn first_items(&self) -> impl Iterator<Item = &Item> + Clone {
        self.firsts.iter().filter_map(|number| self.item(*number))
    }

    /// Names in the order of their first items, with the values of their last ones.
    fn merged(&self) -> Result<ValueBuf> {
        let mut out = DocBuilder::new();
        for first in self.first_items() {
            let last = self.last.get(&first.key).and_then(|last| self.item(*last));
            let name = str::from_utf8(&first.key).unwrap_or_default();
            out.append(name, &last.unwrap_or(first).value);
        }
        check_size(out.len())?;
        Ok(ValueBuf::from_parts(ty::DOCUMENT, out.finish().into_bytes()))
    }
}

impl WindowState for DistinctItems {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let value = function.value(document)?;
        let collation = function.collation.as_deref();
        let before = self.items.len();
        let key = |value| encoded(value, SortOrder::Ascending, collation);
        match (self.kind, value.as_raw()) {
            (AccumulatorKind::MergeObjects, None | Some(RawValue::Null | RawValue::Undefined))
            | (_, None) => {}
            (AccumulatorKind::AddToSet, Some(value)) => self.push(&key(value), value),
            (AccumulatorKind::SetUnion, Some(RawValue::Array(items))) => {
                items.iter().for_each(|item| self.push(&key(item.value()), item.value()));
            }
            (AccumulatorKind::SetUnion, Some(other)) => {
                return Err(not_an_array("$setUnion", other));
            }
            (_, Some(RawValue::Document(document))) => {
                document.iter().for_each(|field| self.push(field.name_bytes(), field.value()));
            }
            (_, Some(other)) => return Err(merge_fault(5_911_200, other)),
        }
        self.counts.push_back(self.items.len() - before);
        Ok(())
    }

    fn remove(&mut self) {
        let gone = self.counts.pop_front().unwrap_or(0);
        (0..gone).for_each(|_| self.pop());
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        self.limit.check(self.first_items().map(entry_bytes).sum())?;
        match self.kind {
            AccumulatorKind::MergeObjects => self.merged(),
            _ => array(self.first_items().map(|item| &item.value)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes + self.counts.len() * size_of::<usize>()
    }
}

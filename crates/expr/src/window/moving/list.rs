//! The values of a window in the order of its documents: `$push`, `$concatArrays`, `$first`,
//! `$firstN`, `$last`, `$lastN`, `$shift`.

use std::collections::VecDeque;

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawValue, ValueBuf};

use super::super::{WindowFunction, null};
use super::WindowState;
use crate::accum::{Accumulator, AccumulatorKind, List, StateLimit, array, not_an_array};

/// The values that a document adds, and those that the result has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    /// The value of each document that has one.
    All,
    /// The members of the arrays of all documents.
    Concatenated,
    /// The first values, at most this many; null for a missing one.
    First(usize),
    /// The last values, at most this many; null for a missing one.
    Last(usize),
}

pub(super) struct ValueList {
    kind: ListKind,
    /// The result of an empty window; `None` if the result is an array.
    single: Option<ValueBuf>,
    limit: Option<StateLimit>,
    list: List,
    /// The number of values of each document.
    counts: VecDeque<usize>,
}

impl ValueList {
    pub(super) fn new(accumulator: &Accumulator) -> Result<ValueList> {
        let n = accumulator.start_n(None)?;
        let (kind, single) = match accumulator.kind() {
            AccumulatorKind::First => (ListKind::First(1), Some(null())),
            AccumulatorKind::Last => (ListKind::Last(1), Some(null())),
            AccumulatorKind::FirstN => (ListKind::First(n), None),
            AccumulatorKind::LastN => (ListKind::Last(n), None),
            AccumulatorKind::ConcatArrays => (ListKind::Concatenated, None),
            _ => (ListKind::All, None),
        };
        let limit = Some(accumulator.limit());
        Ok(ValueList { kind, single, limit, list: List::default(), counts: VecDeque::new() })
    }

    /// The value of the only document of a window, or a default.
    pub(super) fn shifted(default: ValueBuf) -> ValueList {
        ValueList {
            kind: ListKind::First(1),
            single: Some(default),
            limit: None,
            list: List::default(),
            counts: VecDeque::new(),
        }
    }
}

impl WindowState for ValueList {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let value = function.value(document)?;
        let before = self.list.values.len();
        match (self.kind, value.as_raw()) {
            (ListKind::First(_), value) => self.list.push(value.unwrap_or(RawValue::Null)),
            (ListKind::Last(n), value) => {
                self.list.push(value.unwrap_or(RawValue::Null));
                if before == n {
                    self.list.pop_front();
                }
                self.counts.push_back(1);
                return Ok(());
            }
            (_, None) => {}
            (ListKind::All, Some(value)) => self.list.push(value),
            (ListKind::Concatenated, Some(RawValue::Array(items))) => {
                items.iter().for_each(|item| self.list.push(item.value()));
            }
            (ListKind::Concatenated, Some(other)) => {
                return Err(not_an_array("$concatArrays", other));
            }
        }
        self.counts.push_back(self.list.values.len() - before);
        Ok(())
    }

    fn remove(&mut self) {
        let count = self.counts.pop_front().unwrap_or(0);
        let gone = match self.kind {
            // The values before the last ones are gone already.
            ListKind::Last(_) => self.list.values.len().saturating_sub(self.counts.len()),
            _ => count,
        };
        (0..gone).for_each(|_| self.list.pop_front());
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let values = &self.list.values;
        if let Some(otherwise) = &self.single {
            return Ok(values.front().unwrap_or(otherwise).clone());
        }
        let count = match self.kind {
            ListKind::First(n) => n.min(values.len()),
            _ => values.len(),
        };
        if let Some(limit) = self.limit {
            limit.check(match self.kind {
                ListKind::First(_) => values.range(..count).map(List::value_bytes).sum(),
                _ => self.list.bytes,
            })?;
        }
        array(values.range(..count))
    }

    fn bytes(&self) -> usize {
        self.list.bytes + self.counts.len() * size_of::<usize>()
    }
}

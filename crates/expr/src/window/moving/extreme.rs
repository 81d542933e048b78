//! `$min` and `$max`: a value is removed when a better one follows, or when it leaves the window.

use std::cmp::Ordering;
use std::collections::VecDeque;

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawValue, ValueBuf, compare_values_in};

use super::super::{WindowFunction, null};
use super::WindowState;
use crate::accum::AccumulatorKind;

pub(super) struct ExtremeValue {
    /// How a better value compares.
    preferred: Ordering,
    /// Candidates with the numbers of their documents, the best one first.
    candidates: VecDeque<(u64, ValueBuf)>,
    bytes: usize,
    /// Numbers of the first document, and of the next one.
    first: u64,
    next: u64,
}

fn entry_bytes(value: &ValueBuf) -> usize {
    size_of::<(u64, ValueBuf)>() + value.heap_bytes()
}

impl ExtremeValue {
    pub(super) fn new(kind: AccumulatorKind) -> ExtremeValue {
        let preferred = match kind {
            AccumulatorKind::Min => Ordering::Less,
            _ => Ordering::Greater,
        };
        ExtremeValue { preferred, candidates: VecDeque::new(), bytes: 0, first: 0, next: 0 }
    }
}

impl WindowState for ExtremeValue {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let value = function.value(document)?;
        let present = |value: &RawValue<'_>| !matches!(value, RawValue::Null | RawValue::Undefined);
        let Some(value) = value.as_raw().filter(present) else { return Ok(()) };
        let collation = function.collation.as_deref();
        while let Some((_, have)) = self.candidates.back() {
            if compare_values_in(value, have.as_raw(), collation) != self.preferred {
                break;
            }
            self.bytes -= entry_bytes(have);
            self.candidates.pop_back();
        }
        let value = value.to_owned();
        self.bytes += entry_bytes(&value);
        self.candidates.push_back((number, value));
        Ok(())
    }

    fn remove(&mut self) {
        if let Some((number, value)) = self.candidates.front()
            && *number == self.first
        {
            self.bytes -= entry_bytes(value);
            self.candidates.pop_front();
        }
        self.first += 1;
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        Ok(self.candidates.front().map_or_else(null, |(_, value)| value.clone()))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

//! `$median` and `$percentile` over a window: the numbers in order, and a cursor for each quantile.
//!
//! A document moves the place of a quantile by at most one number, so that a cursor makes few steps
//! from one result to the next.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, Number, RawValue, ValueBuf, ty};

use super::super::WindowFunction;
use super::super::bounds::Motion;
use super::WindowState;
use crate::accum::{Accumulator, AccumulatorKind, StateLimit, percentile_index};

/// Approximate memory of a number in the ordered map.
const ENTRY_BYTES: usize = 40;

pub(super) struct Quantiles {
    median: bool,
    limit: StateLimit,
    cursors: Vec<Cursor>,
    /// How often each number is in the window. The keys are [`ordered`].
    counts: BTreeMap<i64, usize>,
    /// Number of numbers in the window.
    total: usize,
    /// The number of each document; `None` if the windows only grow.
    documents: Option<VecDeque<Option<i64>>>,
}

/// A place in the ordered numbers.
struct Cursor {
    share: f64,
    key: i64,
    /// Number of lesser numbers.
    before: usize,
}

/// Maps doubles to integers of the same order, that of [`f64::total_cmp`], and back.
fn ordered(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

impl Quantiles {
    pub(super) fn new(accumulator: &Accumulator, motion: Motion) -> Quantiles {
        let cursor = |share: &f64| Cursor { share: *share, key: i64::MIN, before: 0 };
        Quantiles {
            median: accumulator.kind() == AccumulatorKind::Median,
            limit: accumulator.limit(),
            cursors: accumulator.shares().iter().map(cursor).collect(),
            counts: BTreeMap::new(),
            total: 0,
            documents: (motion == Motion::Slides).then(VecDeque::new),
        }
    }
}

impl Cursor {
    /// Moves to the number with this index.
    fn seek(&mut self, counts: &BTreeMap<i64, usize>, index: usize) {
        while self.before > index {
            let Some((key, count)) = counts.range(..self.key).next_back() else { return };
            (self.key, self.before) = (*key, self.before - count);
        }
        loop {
            let here = counts.get(&self.key).copied().unwrap_or(0);
            if index < self.before + here {
                return;
            }
            let after = (Bound::Excluded(self.key), Bound::Unbounded);
            let Some((key, _)) = counts.range(after).next() else { return };
            (self.key, self.before) = (*key, self.before + here);
        }
    }
}

impl WindowState for Quantiles {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let number = function.number(document)?.map(Number::to_f64);
        let key = number.filter(|number| !number.is_nan());
        let key = key.map(|number| ordered(number.to_bits() as i64));
        if let Some(key) = key {
            *self.counts.entry(key).or_default() += 1;
            self.total += 1;
            for cursor in self.cursors.iter_mut().filter(|cursor| key < cursor.key) {
                cursor.before += 1;
            }
        }
        if let Some(documents) = &mut self.documents {
            documents.push_back(key);
        }
        self.limit.check(self.total * size_of::<f64>())
    }

    fn remove(&mut self) {
        let Some(key) = self.documents.as_mut().and_then(VecDeque::pop_front).flatten() else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
        self.total -= 1;
        for cursor in self.cursors.iter_mut().filter(|cursor| key < cursor.key) {
            cursor.before -= 1;
        }
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let (counts, total) = (&self.counts, self.total);
        let mut values = self.cursors.iter_mut().map(|cursor| {
            if total == 0 {
                return RawValue::Null;
            }
            cursor.seek(counts, percentile_index(total, cursor.share));
            RawValue::Double(f64::from_bits(ordered(cursor.key) as u64))
        });
        if self.median {
            return Ok(values.next().unwrap_or(RawValue::Null).to_owned());
        }
        let mut out = DocBuilder::new_array();
        values.for_each(|value| {
            out.push(value);
        });
        Ok(ValueBuf::from_parts(ty::ARRAY, out.finish().into_bytes()))
    }

    fn bytes(&self) -> usize {
        let documents = self.documents.as_ref().map_or(0, VecDeque::len);
        self.counts.len() * ENTRY_BYTES + documents * size_of::<Option<i64>>()
    }
}

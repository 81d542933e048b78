//! Top-k by a key over a window: `$minN`, `$maxN`, `$top`, `$topN`, `$bottom`, `$bottomN`.
//!
//! The documents of the window are in an ordered set, by key and by number. Of documents with equal
//! keys the result has those that a group would have.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{DocBuf, ValueBuf};

use super::super::{WindowFunction, null};
use super::WindowState;
use crate::accum::{Accumulator, AccumulatorKind, RANKED_ENTRY_BYTES, StateLimit, array};

/// A key, and the number of its document.
type Place = (Arc<[u8]>, u64);

pub(super) struct RankedValues {
    kind: AccumulatorKind,
    n: usize,
    limit: StateLimit,
    /// The key and the value of each document; `None` for a document that does not count.
    entries: VecDeque<Option<(Arc<[u8]>, ValueBuf)>>,
    places: BTreeSet<Place>,
    /// The number of the first document.
    first: u64,
    bytes: usize,
}

fn entry_bytes(key: &[u8], value: &ValueBuf) -> usize {
    key.len() + value.data().len() + RANKED_ENTRY_BYTES
}

impl RankedValues {
    pub(super) fn new(accumulator: &Accumulator) -> Result<RankedValues> {
        Ok(RankedValues {
            kind: accumulator.kind(),
            n: accumulator.start_n(None)?,
            limit: accumulator.limit(),
            entries: VecDeque::new(),
            places: BTreeSet::new(),
            first: 0,
            bytes: 0,
        })
    }

    fn entry(&self, number: u64) -> Option<&(Arc<[u8]>, ValueBuf)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(at)?.as_ref()
    }

    /// The documents of the result, in the order of their keys.
    fn chosen(&self) -> Vec<u64> {
        match self.kind {
            AccumulatorKind::Bottom | AccumulatorKind::BottomN => self.last(),
            _ => self.places.iter().take(self.n).map(|(_, number)| *number).collect(),
        }
    }

    /// The documents with the greatest keys. A group refuses a document whose key is not greater
    /// than the least of the `n` that it has, and drops the earliest with the least key for another
    /// one. Of those with the least key of the result, it therefore has the last ones among the
    /// first `n` documents with this key or a greater one.
    fn last(&self) -> Vec<u64> {
        let mut best: Vec<&Place> = self.places.iter().rev().take(self.n).collect();
        best.reverse();
        let mut numbers: Vec<u64> = best.iter().map(|(_, number)| *number).collect();
        let Some((least, _)) = best.first() else { return numbers };
        if self.places.len() <= self.n {
            return numbers;
        }
        let tied = best.iter().take_while(|(key, _)| key == least).count();
        let mut greater = numbers[tied..].to_vec();
        greater.sort_unstable();
        let (mut before, mut accepted) = (0, Vec::with_capacity(self.n));
        for (key, number) in self.places.range((Arc::clone(least), 0)..) {
            while greater.get(before).is_some_and(|greater| greater < number) {
                before += 1;
            }
            if key != least || accepted.len() + before >= self.n {
                break;
            }
            accepted.push(*number);
        }
        let dropped = accepted.len().saturating_sub(tied);
        numbers[..tied].copy_from_slice(&accepted[dropped..]);
        numbers
    }
}

impl WindowState for RankedValues {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let entry = function.accumulator()?.ranked(function.frame(document))?;
        let entry = entry.map(|(key, value)| (Arc::<[u8]>::from(key), value));
        if let Some((key, value)) = &entry {
            self.bytes += entry_bytes(key, value);
            self.places.insert((Arc::clone(key), self.first + self.entries.len() as u64));
        }
        self.bytes += size_of::<Option<(Arc<[u8]>, ValueBuf)>>();
        self.entries.push_back(entry);
        Ok(())
    }

    fn remove(&mut self) {
        if let Some((key, value)) = self.entries.pop_front().flatten() {
            self.bytes -= entry_bytes(&key, &value);
            self.places.remove(&(key, self.first));
        }
        self.bytes -= size_of::<Option<(Arc<[u8]>, ValueBuf)>>();
        self.first += 1;
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let chosen = self.chosen();
        let mut entries = chosen.iter().filter_map(|number| self.entry(*number));
        self.limit.check(entries.clone().map(|(key, value)| entry_bytes(key, value)).sum())?;
        match self.kind {
            AccumulatorKind::Top | AccumulatorKind::Bottom => {
                Ok(entries.next().map_or_else(null, |(_, value)| value.clone()))
            }
            _ => array(entries.map(|(_, value)| value)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

//! `SORT_MERGE`: merges the records of several scans that have one order, and removes duplicates
//! where there may be some.
//!
//! Each scan reads a few entries ahead. Record keys that were read ahead are kept for the next
//! batch, so a document that changes meanwhile stays at its old position.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::RecordKey;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::memory::SeenRecords;
use crate::plan::SortKeys;

/// Entries that a scan reads ahead at first; each later read-ahead is [`GROWTH`] times as long.
const FIRST_ROWS: usize = 4;
const GROWTH: usize = 4;
/// Approximate limit on the entries that all scans together read ahead.
const MOST_ROWS: usize = 4096;

struct ReadAheadRow {
    /// The sort key.
    place: Vec<u8>,
    record: RecordKey,
    keys: u64,
}

struct Input {
    node: Box<dyn Node>,
    keys: SortKeys,
    read: VecDeque<ReadAheadRow>,
    over: bool,
    ahead: usize,
    /// Whether the index became multikey since the query was planned, so that keys have no sort
    /// key.
    changed: bool,
}

impl Input {
    /// Reads ahead if no row is waiting. Returns false if the input is exhausted or the works are
    /// spent.
    fn fill(&mut self, batch: &Batch<'_>, most: usize) -> Result<bool> {
        while self.read.is_empty() && !self.over && batch.works_left() > 0 {
            let (read, keys, ahead) = (&mut self.read, &self.keys, self.ahead);
            let (mut examined, changed) = (0, &mut self.changed);
            let progress = self.node.run(batch, &mut |row| {
                let mut place = Vec::new();
                // A row without a sort key comes first.
                let known = row.entry.and_then(|entry| keys.append(entry.values, &mut place));
                *changed |= known.is_none();
                examined += row.keys;
                read.push_back(ReadAheadRow { place, record: row.record.to_vec(), keys: row.keys });
                let full = read.len() >= ahead;
                Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            // Keys are charged when their row is returned.
            batch.give_back(examined);
            self.over = progress == Progress::Over;
            self.ahead = (self.ahead * GROWTH).min(most);
        }
        Ok(!self.read.is_empty())
    }
}

pub(super) struct Merge {
    inputs: Vec<Input>,
    /// The sort key of each input's next row, with the number of the input.
    next: BTreeSet<(Vec<u8>, usize)>,
    /// Inputs whose next row is not known.
    open: Vec<usize>,
    /// Whether a record may occur several times.
    repeats: bool,
    seen: Option<SeenRecords>,
    counters: Counters,
}

impl Merge {
    pub(super) fn new(inputs: Vec<(Box<dyn Node>, SortKeys)>, repeats: bool) -> Merge {
        let input = |(node, keys)| Input {
            node,
            keys,
            read: VecDeque::new(),
            over: false,
            ahead: FIRST_ROWS,
            changed: false,
        };
        let inputs: Vec<Input> = inputs.into_iter().map(input).collect();
        let (next, counters) = (BTreeSet::new(), Counters::default());
        let open = (0..inputs.len()).collect();
        Merge { inputs, next, open, repeats, seen: None, counters }
    }

    /// Reads the next row of each open input. Returns false if the works are spent.
    fn line_up(&mut self, batch: &Batch<'_>) -> Result<bool> {
        let most = (MOST_ROWS / self.inputs.len().max(1)).max(FIRST_ROWS);
        while let Some(at) = self.open.last().copied() {
            let Some(input) = self.inputs.get_mut(at) else { break };
            if input.fill(batch, most)?
                && let Some(row) = input.read.front()
            {
                self.next.insert((row.place.clone(), at));
            } else if !input.over {
                return Ok(false);
            }
            self.open.pop();
        }
        Ok(true)
    }
}

impl Merge {
    fn is_new(&mut self, record: &[u8], batch: &Batch<'_>) -> Result<bool> {
        let seen = self.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
        let new = seen.insert(record, batch.session.op)?;
        self.counters.tested += 1;
        self.counters.dropped += u64::from(!new);
        Ok(new)
    }
}

impl Node for Merge {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let mut passed = 0;
        loop {
            if !self.line_up(batch)? {
                return Ok(Progress::Stopped);
            }
            let Some((_, at)) = self.next.pop_first() else { break };
            self.open.push(at);
            let Some(row) = self.inputs[at].read.pop_front() else { continue };
            self.repeats |= self.inputs[at].changed;
            batch.count(row.keys, 0);
            self.counters.examined += 1;
            if self.repeats && !self.is_new(&row.record, batch)? {
                passed += row.keys;
                continue;
            }
            self.counters.returned += 1;
            let keys = row.keys + std::mem::take(&mut passed);
            if rows(&Row::key(&row.record, keys))?.is_break() {
                return Ok(Progress::Stopped);
            }
        }
        self.counters.over = true;
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        self.inputs.iter().for_each(|input| see(&*input.node));
    }
}

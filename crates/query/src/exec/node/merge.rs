//! `SORT_MERGE`: the records of several scans that have one order, in that order, each once where one may come several times.
//!
//! Each scan reads a few entries ahead. What was read and not given yet stays for the next batch as the keys of records: a document
//! that changes meanwhile comes where it stood.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::RecordKey;

use super::{Batch, Counters, Node, Progress, Row, Rows};
use crate::memory::SeenRecords;
use crate::plan::SortKeys;

/// Entries that a scan reads ahead at first; each further time it is four times as many.
const FIRST_ROWS: usize = 4;
const GROWTH: usize = 4;
/// Most of them, of all scans together, about.
const MOST_ROWS: usize = 4096;

struct Waiting {
    /// By what it is compared.
    place: Vec<u8>,
    record: RecordKey,
    keys: u64,
}

struct Input {
    node: Box<dyn Node>,
    keys: SortKeys,
    read: VecDeque<Waiting>,
    over: bool,
    ahead: usize,
    /// Keys do not say any more what they said when the plan was made.
    changed: bool,
}

impl Input {
    /// Reads on where nothing waits; false when nothing is left, or may be spent.
    fn fill(&mut self, batch: &Batch<'_>, most: usize) -> Result<bool> {
        while self.read.is_empty() && !self.over && batch.works_left() > 0 {
            let (read, keys, ahead) = (&mut self.read, &self.keys, self.ahead);
            let (mut looked, changed) = (0, &mut self.changed);
            let progress = self.node.run(batch, &mut |row| {
                let mut place = Vec::new();
                // Without a place of its own it comes first.
                let known = row.entry.and_then(|entry| keys.append(entry.values, &mut place));
                *changed |= known.is_none();
                looked += row.keys;
                read.push_back(Waiting { place, record: row.record.to_vec(), keys: row.keys });
                let full = read.len() >= ahead;
                Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            // They count when they are taken.
            batch.give_back(looked);
            self.over = progress == Progress::Over;
            self.ahead = (self.ahead * GROWTH).min(most);
        }
        Ok(!self.read.is_empty())
    }
}

pub(super) struct Merge {
    inputs: Vec<Input>,
    /// The places of the inputs' next rows, and which inputs those are.
    next: BTreeSet<(Vec<u8>, usize)>,
    /// Inputs that have not said what is next.
    open: Vec<usize>,
    /// A record may come several times.
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

    /// Lets open inputs take part with their next rows; false when no more may be spent.
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
            self.counters.looked += 1;
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

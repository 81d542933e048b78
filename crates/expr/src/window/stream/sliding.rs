//! Functions whose windows move through the partition: the documents in the windows of a batch of
//! documents are buffered, and the function runs over the buffer as over a partition.

use std::collections::VecDeque;
use std::ops::Range;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, ValueBuf, compare_values};

use super::super::bounds::{Bound, Bounds, check_kind, range_end};
use super::super::{Function, WindowFunction, slide};
use super::{DocumentReader, StreamMemory, document_bytes};
use crate::accum::Accumulator;

/// The least number of documents computed together, for a function that is updated as its window
/// moves.
const BATCH_DOCUMENTS: usize = 1024;

pub(super) struct Sliding {
    input: Box<dyn DocumentReader>,
    /// The documents from index `first` on.
    buffer: VecDeque<DocBuf>,
    bytes: usize,
    first: usize,
    /// The input is exhausted.
    read: bool,
    /// Index of the document whose result is next.
    here: usize,
    /// Documents before this index have their whole window in the buffer.
    complete: usize,
    ready: VecDeque<Option<ValueBuf>>,
}

/// The extent of a window on both sides of its document, in documents.
fn sides(function: &WindowFunction) -> (usize, Option<usize>) {
    let size = |by: i64| usize::try_from(by).unwrap_or(0);
    let offset = |bound: Bound| match bound {
        Bound::Offset(by) => by.to_i64_exact().unwrap_or(0),
        Bound::Current | Bound::Unbounded => 0,
    };
    match (&function.function, function.bounds) {
        (Function::Shift { by, .. }, _) => (size(by.saturating_neg()), Some(size(*by))),
        (_, Bounds::Documents(lower, Bound::Unbounded)) => (size(-offset(lower)), None),
        (_, Bounds::Documents(lower, upper)) => (size(-offset(lower)), Some(size(offset(upper)))),
        (_, Bounds::Range { .. }) => (0, Some(0)),
    }
}

/// The accumulator, if it is recomputed for every window.
fn recomputed_accumulator(function: &WindowFunction) -> Option<&Accumulator> {
    match &function.function {
        Function::Accumulate(accumulator) if !slide::moves(accumulator.kind()) => Some(accumulator),
        _ => None,
    }
}

impl Sliding {
    pub(super) fn new(input: Box<dyn DocumentReader>) -> Sliding {
        Sliding {
            input,
            buffer: VecDeque::new(),
            bytes: 0,
            first: 0,
            read: false,
            here: 0,
            complete: 0,
            ready: VecDeque::new(),
        }
    }

    pub(super) fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        if let Some(ready) = self.ready.pop_front() {
            self.here += 1;
            return Ok(ready);
        }
        let anew = recomputed_accumulator(function);
        if self.here >= self.complete {
            self.fill(function, memory, if anew.is_some() { 1 } else { BATCH_DOCUMENTS })?;
            if self.here >= self.complete {
                return Ok(None);
            }
        }
        if let Some(accumulator) = anew {
            let result = self.add_up(function, accumulator, memory)?;
            self.here += 1;
            return Ok(result);
        }
        self.run(function, memory)?;
        self.here += 1;
        Ok(self.ready.pop_front().flatten())
    }

    fn value(&self, function: &WindowFunction, at: usize) -> Result<ValueBuf> {
        let document = at.checked_sub(self.first).and_then(|at| self.buffer.get(at));
        let document = document.ok_or_else(|| Error::internal("a document outside the buffer"))?;
        Ok(function.sort_value(document))
    }

    /// Drops the documents before the window of the next document and of all later ones. Returns
    /// false when that document must be read first, because its value determines the window.
    fn drop_passed(&mut self, function: &WindowFunction) -> Result<bool> {
        let low = match function.bounds {
            Bounds::Range { .. } if self.here >= self.first + self.buffer.len() => {
                return Ok(false);
            }
            Bounds::Range { lower, unit, .. } => {
                let value = self.value(function, self.here)?;
                range_end(lower, value.as_raw(), unit)?
            }
            Bounds::Documents(..) => None,
        };
        let by_documents = !matches!(function.bounds, Bounds::Range { .. })
            || matches!(function.function, Function::Shift { .. });
        let before = self.here.saturating_sub(sides(function).0);
        while self.first < self.here {
            let Some(front) = self.buffer.front() else { break };
            let passed = match &low {
                _ if by_documents => self.first < before,
                Some(low) => {
                    compare_values(function.sort_value(front).as_raw(), low.as_raw()).is_lt()
                }
                None => false,
            };
            if !passed {
                break;
            }
            self.bytes -= document_bytes(front);
            self.buffer.pop_front();
            self.first += 1;
        }
        Ok(true)
    }

    /// Reads until the windows of `least` documents are complete, or memory is full.
    fn fill(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
        least: usize,
    ) -> Result<()> {
        let (before, after) = sides(function);
        let mut dropped = self.drop_passed(function)?;
        loop {
            self.note_complete(function, after)?;
            // A wide window is computed for many documents at once, because each run processes all
            // of it.
            let stretch = match least {
                1 => 1,
                least => {
                    least.max(2 * (before + after.unwrap_or(0))).max(2 * (self.here - self.first))
                }
            };
            if self.read || self.complete >= self.here + stretch {
                return Ok(());
            }
            let Some(document) = self.input.next()? else {
                self.read = true;
                continue;
            };
            self.bytes += document_bytes(&document);
            self.buffer.push_back(document);
            if !dropped {
                dropped = self.drop_passed(function)?;
            }
            let fits = memory.holds(self.bytes);
            if fits && memory.has_room(self.bytes) {
                continue;
            }
            self.note_complete(function, after)?;
            if self.complete > self.here {
                return Ok(());
            }
            if !fits {
                return Err(memory.failure());
            }
        }
    }

    /// Counts the documents whose windows are in the buffer.
    fn note_complete(&mut self, function: &WindowFunction, after: Option<usize>) -> Result<()> {
        let end = self.first + self.buffer.len();
        if self.read {
            self.complete = end;
            return Ok(());
        }
        match function.bounds {
            Bounds::Range { upper, unit, .. }
                if !matches!(function.function, Function::Shift { .. }) =>
            {
                let Some(last) = self.buffer.back() else { return Ok(()) };
                let last = function.sort_value(last);
                self.complete = self.complete.max(self.here);
                while self.complete < end {
                    let value = self.value(function, self.complete)?;
                    check_kind(value.as_raw(), unit)?;
                    match range_end(upper, value.as_raw(), unit)? {
                        Some(high) if compare_values(last.as_raw(), high.as_raw()).is_gt() => {
                            self.complete += 1;
                        }
                        _ => break,
                    }
                }
            }
            _ => {
                let complete = after.map_or(0, |after| end.saturating_sub(after));
                self.complete = self.complete.max(complete);
            }
        }
        Ok(())
    }

    /// Computes the results of all documents whose windows are complete, or as many as fit into
    /// memory.
    fn run(&mut self, function: &WindowFunction, memory: &mut dyn StreamMemory) -> Result<()> {
        let (from, to) = (self.here - self.first, self.complete - self.first);
        let ready = &mut self.ready;
        let (mut at, mut held, mut full) = (0, 0, false);
        let ran = function.run_each(self.buffer.make_contiguous(), &mut |result| {
            let is_in_range = (from..to).contains(&at);
            at += 1;
            if !is_in_range {
                return Ok(());
            }
            held += size_of::<Option<ValueBuf>>() + result.as_ref().map_or(0, ValueBuf::heap_bytes);
            full = !ready.is_empty() && !memory.has_room(held);
            if full {
                return Err(memory.failure());
            }
            ready.push_back(result);
            Ok(())
        });
        match ran {
            // The remaining ones are computed again later.
            Err(_) if full => {
                self.complete = self.here + self.ready.len();
                Ok(())
            }
            ran => ran,
        }
    }

    /// Computes the result of the next document from all documents of its window.
    fn add_up(
        &self,
        function: &WindowFunction,
        accumulator: &Accumulator,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        let mut state = accumulator.start(None)?;
        for document in self.buffer.range(self.window(function)?) {
            accumulator.add_in(&mut state, function.frame(document))?;
        }
        if !memory.holds(self.bytes + state.bytes()) && state.bytes() > self.bytes {
            return Err(memory.failure());
        }
        Ok(Some(slide::finished(function, accumulator, &state)?))
    }

    /// The window of the next document, as a range of the buffer.
    fn window(&self, function: &WindowFunction) -> Result<Range<usize>> {
        let count = self.buffer.len();
        let here = self.here - self.first;
        let range = match function.bounds {
            Bounds::Documents(lower, upper) => {
                let at = |bound: Bound, after: i64, end: usize| match bound {
                    Bound::Unbounded => end,
                    Bound::Current => here + after as usize,
                    Bound::Offset(by) => {
                        let at = here as i64 + by.to_i64_exact().unwrap_or(0) + after;
                        usize::try_from(at).unwrap_or(0)
                    }
                };
                (at(lower, 0, 0), at(upper, 1, count))
            }
            Bounds::Range { lower, upper, unit } => {
                let value = self.value(function, self.here)?;
                check_kind(value.as_raw(), unit)?;
                let order = |document: &DocBuf, end: &ValueBuf| {
                    compare_values(function.sort_value(document).as_raw(), end.as_raw())
                };
                let low = range_end(lower, value.as_raw(), unit)?;
                let high = range_end(upper, value.as_raw(), unit)?;
                let from = match low {
                    _ if lower == Bound::Current => here,
                    None => 0,
                    Some(low) => {
                        self.buffer.partition_point(|document| order(document, &low).is_lt())
                    }
                };
                let to = match high {
                    _ if upper == Bound::Current => here + 1,
                    None => count,
                    Some(high) => {
                        self.buffer.partition_point(|document| order(document, &high).is_le())
                    }
                };
                (from, to)
            }
        };
        let to = range.1.min(count);
        Ok(range.0.min(to)..to)
    }
}

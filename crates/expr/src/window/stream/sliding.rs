//! Functions whose windows move through the partition: the documents of the current window are
//! buffered, because their sort values determine when they leave it.

use std::collections::VecDeque;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, ValueBuf, compare_values};

use super::super::WindowFunction;
use super::super::bounds::{Bound, Bounds, check_kind, range_end};
use super::super::moving::Window;
use super::{DocumentReader, StreamMemory, document_bytes};

pub(super) struct Sliding {
    window: Window,
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
}

/// The extent of a window on both sides of its document, in documents.
fn sides(function: &WindowFunction) -> (usize, Option<usize>) {
    let size = |by: i64| usize::try_from(by).unwrap_or(0);
    let offset = |bound: Bound| match bound {
        Bound::Offset(by) => by.to_i64_exact().unwrap_or(0),
        Bound::Current | Bound::Unbounded => 0,
    };
    match function.bounds {
        Bounds::Documents(lower, Bound::Unbounded) => (size(-offset(lower)), None),
        Bounds::Documents(lower, upper) => (size(-offset(lower)), Some(size(offset(upper)))),
        Bounds::Range { .. } => (0, Some(0)),
    }
}

impl Sliding {
    pub(super) fn new(
        function: &WindowFunction,
        input: Box<dyn DocumentReader>,
    ) -> Result<Sliding> {
        Ok(Sliding {
            window: Window::start(function)?,
            input,
            buffer: VecDeque::new(),
            bytes: 0,
            first: 0,
            read: false,
            here: 0,
            complete: 0,
        })
    }

    pub(super) fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        if self.here >= self.complete {
            self.fill(function, memory)?;
        }
        let Some(current) = self.here.checked_sub(self.first).and_then(|at| self.buffer.get(at))
        else {
            return Ok(None);
        };
        let reach = self.reach(function)?;
        let (first, buffer) = (self.first, &self.buffer);
        self.window.move_to(function, reach, |at| buffer.get(at.checked_sub(first)?))?;
        let bytes = self.window.bytes();
        if !memory.holds(self.bytes + bytes) && bytes > self.bytes {
            return Err(memory.failure());
        }
        self.here += 1;
        self.window.result(function, current).map(Some)
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
        let by_documents = matches!(function.bounds, Bounds::Documents(..));
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

    /// Reads until the window of the next document is complete.
    fn fill(&mut self, function: &WindowFunction, memory: &mut dyn StreamMemory) -> Result<()> {
        let (_, after) = sides(function);
        let mut dropped = self.drop_passed(function)?;
        loop {
            self.note_complete(function, after)?;
            if self.read || self.complete > self.here {
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
            if !memory.holds(self.bytes) {
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
            Bounds::Range { upper, unit, .. } => {
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
            Bounds::Documents(..) => {
                let complete = after.map_or(0, |after| end.saturating_sub(after));
                self.complete = self.complete.max(complete);
            }
        }
        Ok(())
    }

    /// The window of the next document.
    fn reach(&self, function: &WindowFunction) -> Result<(usize, usize)> {
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
        Ok((self.first + range.0.min(to), self.first + to))
    }
}

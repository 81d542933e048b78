//! Merges sorted runs and entries in memory into one ordered sequence.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use mayfly_base::Result;

use crate::arena::{Arena, HEADER};
use crate::file::{ScratchFile, failed, reader};
use crate::sorter::Run;
use crate::{Check, Spilled};

/// The next entry of a run. The order is reversed, because the heap returns the greatest.
#[derive(Debug)]
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    run: usize,
    rest: BufReader<ScratchFile>,
}

impl Head {
    /// Moves to the next entry; returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        let mut lengths = [0; HEADER];
        match self.rest.read_exact(&mut lengths) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(failed("read", &error)),
        }
        let [a, b, c, d, e, f, g, h] = lengths;
        for (into, length) in [(&mut self.key, [a, b, c, d]), (&mut self.value, [e, f, g, h])] {
            into.resize(u32::from_le_bytes(length) as usize, 0);
            self.rest.read_exact(into).map_err(|error| failed("read", &error))?;
        }
        Ok(true)
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        (&other.key, other.run).cmp(&(&self.key, self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// Returns entries in order.
#[derive(Debug, Default)]
pub struct Merge {
    heads: BinaryHeap<Head>,
    /// The entry returned last, whose buffers are swapped with those of the next one.
    returned: Option<(Vec<u8>, Vec<u8>)>,
    memory: Arena,
    /// Number of entries in memory that were returned.
    consumed: usize,
}

impl Merge {
    /// A merge of runs, oldest first, and of the entries in memory, which are the newest.
    pub(crate) fn of(runs: Vec<ScratchFile>, mut memory: Arena) -> Result<Merge> {
        memory.sort();
        let together = runs.len();
        let mut heads = BinaryHeap::with_capacity(together);
        for (run, file) in runs.into_iter().enumerate() {
            let rest = reader(file, together);
            let mut head = Head { key: Vec::new(), value: Vec::new(), run, rest };
            if head.advance()? {
                heads.push(head);
            }
        }
        Ok(Merge { heads, returned: None, memory, consumed: 0 })
    }

    /// Whether all entries were returned.
    pub fn is_over(&self) -> bool {
        self.heads.is_empty() && self.consumed >= self.memory.len()
    }

    /// Memory of its entries in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.memory_bytes()
    }

    /// Writes the entries in memory that were not returned yet to a run in this folder, and frees
    /// their memory.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed, errors of the check. The entries then stay in
    /// memory.
    pub fn spill(&mut self, folder: &Path, check: &Check<'_>) -> Result<Spilled> {
        if self.consumed >= self.memory.len() {
            self.memory = Arena::default();
            self.consumed = 0;
            return Ok(Spilled::default());
        }
        let mut run = Run::new(folder)?;
        for number in self.consumed..self.memory.len() {
            if let Some((key, value)) = self.memory.entry(number) {
                run.push(key, value, check)?;
            }
        }
        let (file, spilled) = run.finish()?;
        // Entries in memory are newer than those of all runs.
        let rest = reader(file, self.heads.len() + 1);
        let mut head = Head { key: Vec::new(), value: Vec::new(), run: usize::MAX, rest };
        if head.advance()? {
            self.heads.push(head);
        }
        self.memory = Arena::default();
        self.consumed = 0;
        Ok(spilled)
    }

    /// The next entry: key and value.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator could not lend the bytes that it goes on from"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let in_memory = self.memory.entry(self.consumed);
        if let Some(mut head) = self.heads.peek_mut() {
            // Of equal keys, those in memory are the newest.
            if in_memory.is_none_or(|(key, _)| *head.key <= *key) {
                let (key, value) = self.returned.get_or_insert_default();
                std::mem::swap(key, &mut head.key);
                std::mem::swap(value, &mut head.value);
                if !head.advance()? {
                    PeekMut::pop(head);
                }
                return Ok(self.returned.as_ref().map(|(key, value)| (&key[..], &value[..])));
            }
        }
        self.consumed += usize::from(in_memory.is_some());
        Ok(in_memory)
    }
}

//! Entries of several runs, and of what stayed in memory, in one order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{BufReader, ErrorKind, Read};

use mayfly_base::Result;

use crate::arena::{Arena, HEADER};
use crate::file::{ScratchFile, failed, reader};

/// The first entry of a run that is left; the heap gives the greatest, so the order is turned around.
#[derive(Debug)]
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    run: usize,
    rest: BufReader<ScratchFile>,
}

impl Head {
    /// Goes on to the next entry; false at the end.
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

/// Entries in order.
#[derive(Debug, Default)]
pub struct Merge {
    heads: BinaryHeap<Head>,
    /// The one of them that was shown last, in the heap's place for it.
    shown: Option<(Vec<u8>, Vec<u8>)>,
    memory: Arena,
    /// How many entries of the memory were shown.
    taken: usize,
}

impl Merge {
    /// Of runs, the older ones first, and of what came after them.
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
        Ok(Merge { heads, shown: None, memory, taken: 0 })
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.heads.is_empty() && self.taken >= self.memory.len()
    }

    /// Memory that its entries take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.memory_bytes()
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
        let in_memory = self.memory.entry(self.taken);
        if let Some(mut head) = self.heads.peek_mut() {
            // What is in memory came last.
            if in_memory.is_none_or(|(key, _)| *head.key <= *key) {
                let (key, value) = self.shown.get_or_insert_default();
                std::mem::swap(key, &mut head.key);
                std::mem::swap(value, &mut head.value);
                if !head.advance()? {
                    PeekMut::pop(head);
                }
                return Ok(self.shown.as_ref().map(|(key, value)| (&key[..], &value[..])));
            }
        }
        self.taken += usize::from(in_memory.is_some());
        Ok(in_memory)
    }
}

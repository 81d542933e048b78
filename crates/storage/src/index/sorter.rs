//! Sorting more entries than fit into memory.
//!
//! ```text
//! in memory:  slots, 24 bytes each: first 16 bytes of the key | length of the key up to 255, place in the arena |
//!             arena: length of the key (u32), of the value (u32), key, value; one behind the other as they came
//! run, file:  the same as the arena, in the order of the keys
//! ```
//!
//! When the budget is used up, what is in memory is sorted and becomes a run. In the end all runs and the rest in memory are merged.
//! Equal keys stay in the order in which they came. A file loses its name as soon as it is open, so that nothing is left of it.
//!
//! Where there is no folder for files everything stays in memory.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};

use mayfly_base::{Error, ErrorCode, Result};

/// Runs that are merged into one before there are more: each is an open file.
const MAX_RUNS: usize = 64;
/// Bytes of a run that are read or written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes before the key of an entry in the arena.
const HEADER: usize = 8;
const SLOT_BYTES: usize = size_of::<Slot>();
/// So many bytes of a key are in its slot.
const PREFIX: usize = 16;
const PLACE_BITS: u32 = 56;

/// Gives the folder in which there is room for so many bytes of temporary files; nothing where they stay in memory.
pub(crate) type Scratch = dyn Fn(u64) -> Result<Option<PathBuf>> + Send + Sync;

/// Takes entries in any order.
pub(crate) struct Sorter {
    budget: usize,
    scratch: Arc<Scratch>,
    memory: Memory,
    runs: Vec<File>,
    /// Entries so far.
    len: u64,
}

/// Entries that are in memory.
#[derive(Default)]
struct Memory {
    slots: Vec<Slot>,
    arena: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Slot {
    prefix: [u64; 2],
    place: u64,
}

impl Slot {
    fn at(self) -> usize {
        (self.place & ((1 << PLACE_BITS) - 1)) as usize
    }

    /// Whether the whole key is in the slot.
    fn is_short(self) -> bool {
        (self.place >> PLACE_BITS) as usize <= PREFIX
    }
}

impl Memory {
    fn bytes(&self) -> usize {
        self.arena.len() + self.slots.len() * SLOT_BYTES
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let mut prefix = [0; PREFIX];
        let len = key.len().min(PREFIX);
        prefix[..len].copy_from_slice(&key[..len]);
        let [high, low] =
            [&prefix[..8], &prefix[8..]].map(|half| half.try_into().map_or(0, u64::from_be_bytes));
        let place = self.arena.len() as u64 | (key.len().min(255) as u64) << PLACE_BITS;
        self.slots.push(Slot { prefix: [high, low], place });
        self.arena.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
    }

    fn sort(&mut self) {
        let arena = &self.arena;
        self.slots.sort_unstable_by(|a, b| {
            let by_prefix = a.prefix.cmp(&b.prefix);
            by_prefix
                .then_with(|| match a.is_short() && b.is_short() {
                    // One may end in zeros.
                    true => (a.place >> PLACE_BITS).cmp(&(b.place >> PLACE_BITS)),
                    false => entry_at(arena, a.at()).0.cmp(entry_at(arena, b.at()).0),
                })
                .then_with(|| a.at().cmp(&b.at()))
        });
    }
}

/// Key and value of an entry in an arena.
fn entry_at(arena: &[u8], at: usize) -> (&[u8], &[u8]) {
    let number = |at: usize| {
        let bytes = arena.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes) as usize
    };
    let (key, value) = (number(at), number(at + 4));
    arena[at + HEADER..at + HEADER + key + value].split_at(key)
}

impl Sorter {
    /// An empty one, which takes about so much memory.
    pub(crate) fn new(budget: usize, scratch: Arc<Scratch>) -> Sorter {
        Sorter { budget, scratch, memory: Memory::default(), runs: Vec::new(), len: 0 }
    }

    /// Entries so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes that it takes, if all of it is in memory.
    pub(crate) fn bytes_in_memory(&self) -> Option<usize> {
        self.runs.is_empty().then(|| self.memory.bytes())
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.len += 1;
        self.memory.push(key, value);
        if self.memory.bytes() < self.budget { Ok(()) } else { self.spill() }
    }

    fn spill(&mut self) -> Result<()> {
        let Some(folder) = (self.scratch)(self.memory.bytes() as u64)? else {
            return Ok(());
        };
        if self.runs.len() == MAX_RUNS {
            let runs = std::mem::take(&mut self.runs);
            let mut merge = Merge::of(runs, Memory::default())?;
            let mut out = RunWriter::open(&folder)?;
            while let Some((key, value)) = merge.next()? {
                out.write(key, value)?;
            }
            self.runs.push(out.finish()?);
        }
        self.memory.sort();
        let mut out = RunWriter::open(&folder)?;
        for slot in &self.memory.slots {
            let (key, value) = entry_at(&self.memory.arena, slot.at());
            out.write(key, value)?;
        }
        self.runs.push(out.finish()?);
        self.memory.slots.clear();
        self.memory.arena.clear();
        Ok(())
    }

    /// All entries in order.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn merge(self) -> Result<Merge> {
        Merge::of(self.runs, self.memory)
    }
}

/// What went wrong with a temporary file.
fn failed(what: &str, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::OutOfDiskSpace,
        _ => ErrorCode::FileStreamFailed,
    };
    Error::new(code, format!("cannot {what} a temporary file: {error}"))
}

struct RunWriter(BufWriter<File>);

impl RunWriter {
    fn open(folder: &Path) -> Result<RunWriter> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, AtomicOrdering::Relaxed);
        let path = folder.join(format!("sort-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).map_err(|error| failed("open", &error))?;
        std::fs::remove_file(&path).map_err(|error| failed("unlink", &error))?;
        Ok(RunWriter(BufWriter::with_capacity(BUFFER_BYTES, file)))
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let lengths = [key.len() as u32, value.len() as u32];
        let mut write = || {
            self.0.write_all(&lengths[0].to_le_bytes())?;
            self.0.write_all(&lengths[1].to_le_bytes())?;
            self.0.write_all(key)?;
            self.0.write_all(value)
        };
        write().map_err(|error| failed("write", &error))
    }

    fn finish(self) -> Result<File> {
        let mut file = self.0.into_inner().map_err(|error| failed("write", error.error()))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| failed("read", &error))?;
        Ok(file)
    }
}

/// The first entry of a run that is left; the heap gives the greatest, so the order is turned around.
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    run: usize,
    rest: BufReader<File>,
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
pub(crate) struct Merge {
    heads: BinaryHeap<Head>,
    /// The one of them that was shown last, in the heap's place for it.
    shown: Option<(Vec<u8>, Vec<u8>)>,
    memory: Memory,
    /// How many slots of the memory were shown.
    taken: usize,
}

impl Merge {
    fn of(runs: Vec<File>, mut memory: Memory) -> Result<Merge> {
        memory.sort();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, file) in runs.into_iter().enumerate() {
            let rest = BufReader::with_capacity(BUFFER_BYTES, file);
            let mut head = Head { key: Vec::new(), value: Vec::new(), run, rest };
            if head.advance()? {
                heads.push(head);
            }
        }
        Ok(Merge { heads, shown: None, memory, taken: 0 })
    }

    /// The next entry: key and value.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator could not lend the bytes that it goes on from"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let slot = self.memory.slots.get(self.taken);
        let in_memory = slot.map(|slot| entry_at(&self.memory.arena, slot.at()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(
        budget: usize,
        folder: Option<&Path>,
        entries: &[(Vec<u8>, u32)],
    ) -> Vec<(Vec<u8>, u32)> {
        let folder = folder.map(Path::to_owned);
        let mut sorter = Sorter::new(budget, Arc::new(move |_| Ok(folder.clone())));
        for (key, value) in entries {
            sorter.push(key, &value.to_le_bytes()).unwrap();
        }
        assert_eq!(sorter.len(), entries.len() as u64);
        let mut merge = sorter.merge().unwrap();
        let mut out = Vec::new();
        while let Some((key, value)) = merge.next().unwrap() {
            out.push((key.to_vec(), u32::from_le_bytes(value.try_into().unwrap())));
        }
        out
    }

    proptest! {
        #[test]
        fn entries_come_in_order_and_equal_ones_as_they_came(
            keys in prop::collection::vec(prop::collection::vec(0..3u8, 0..20), 0..300),
            budget in 1..20_000usize,
        ) {
            let entries: Vec<_> = keys.into_iter().zip(0..).collect();
            let mut expected = entries.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            let folder = std::env::temp_dir();
            prop_assert_eq!(&sorted(budget, Some(&folder), &entries), &expected);
            prop_assert_eq!(&sorted(budget, None, &entries), &expected);
        }
    }

    #[test]
    fn a_disk_that_is_full_says_so() {
        let full = |_| Err(Error::new(ErrorCode::OutOfDiskSpace, "the disk is full"));
        let mut sorter = Sorter::new(10, Arc::new(full));
        let error = sorter.push(b"key", b"value").unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
    }
}

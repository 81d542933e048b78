//! Notes of writers for the build of an index: which records changed, and which keys they had.
//!
//! While an index is built, only the build writes its entries. A write unit instead notes each
//! record that it changes and whose keys differ afterwards, with the keys of the document before
//! the change. At any time the index therefore has, for each record, no entries other than
//!
//! * the keys that the record has now, and
//! * keys that are noted and not yet applied.
//!
//! For a record without notes its entries are exactly its keys. To apply a note, the build removes
//! the noted keys that the record no longer has, and adds the keys that it has.
//!
//! Notes are made before their commit, with the collection's state held shared. A thread that takes
//! the state exclusively thus sees the notes of every commit. Notes of a commit that failed are
//! harmless.
//!
//! ```text
//! note: record key -> number of the index (u16, big-endian) | 0, or 1 and the ordered values of a key before the change |
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, Result};
use parking_lot::Mutex;

use super::sorter::{Scratch, Sorter};

/// The link of one index to its build.
pub(crate) struct Building {
    pub(crate) notes: Arc<BuildNotes>,
    /// The number of the index among those that are built together.
    pub(crate) number: u16,
}

/// A note that a transaction makes at its commit.
pub(crate) struct Note {
    notes: Arc<BuildNotes>,
    record_key: Vec<u8>,
    what: Vec<u8>,
}

/// The notes of one build.
pub(crate) struct BuildNotes {
    budget: usize,
    scratch: Arc<Scratch>,
    noted: Mutex<NoteStore>,
    /// How long a writer waits for each note, in nanoseconds; zero unless writers are faster than
    /// the build.
    delay_nanos: AtomicU64,
}

struct NoteStore {
    sorter: Sorter,
    failed: Option<Error>,
}

impl Building {
    /// A note that the record's keys have changed.
    pub(crate) fn touched(&self, record_key: &[u8]) -> Note {
        self.note(record_key, None)
    }

    /// A note that the record had this key.
    pub(crate) fn had(&self, record_key: &[u8], values: &[u8]) -> Note {
        self.note(record_key, Some(values))
    }

    fn note(&self, record_key: &[u8], values: Option<&[u8]>) -> Note {
        let mut what = self.number.to_be_bytes().to_vec();
        what.push(u8::from(values.is_some()));
        what.extend_from_slice(values.unwrap_or_default());
        Note { notes: self.notes.clone(), record_key: record_key.to_vec(), what }
    }
}

impl Note {
    /// Makes the note; returns the nanoseconds that the writer should wait.
    pub(crate) fn make(&self) -> u64 {
        let notes = &self.notes;
        let mut noted = notes.noted.lock();
        if let Err(error) = noted.sorter.push(&self.record_key, &self.what, &|| Ok(())) {
            // The error ends the build, not the write.
            noted.failed.get_or_insert(error);
        }
        notes.delay_nanos.load(Ordering::Relaxed)
    }
}

impl BuildNotes {
    /// An empty set of notes that takes about `budget` bytes of memory.
    pub(crate) fn new(budget: usize, scratch: Arc<Scratch>) -> BuildNotes {
        let sorter = Sorter::new(budget, scratch.clone());
        let noted = Mutex::new(NoteStore { sorter, failed: None });
        BuildNotes { budget, scratch, noted, delay_nanos: AtomicU64::new(0) }
    }

    /// The number of notes.
    pub(crate) fn len(&self) -> u64 {
        self.noted.lock().sorter.len()
    }

    /// Checks that no note was lost.
    ///
    /// # Errors
    /// The first error of storing a note.
    pub(crate) fn check(&self) -> Result<()> {
        self.noted.lock().failed.take().map_or(Ok(()), Err)
    }

    /// Takes the notes out.
    ///
    /// # Errors
    /// The first error of storing a note.
    pub(crate) fn take(&self) -> Result<Sorter> {
        let mut noted = self.noted.lock();
        let empty = Sorter::new(self.budget, self.scratch.clone());
        let taken = std::mem::replace(&mut noted.sorter, empty);
        noted.failed.take().map_or(Ok(taken), Err)
    }

    /// Sets how long writers wait for each note.
    pub(crate) fn delay(&self, nanos: u64) {
        self.delay_nanos.store(nanos, Ordering::Relaxed);
    }
}

/// Parses a note: the number of the index, and the key that the record had.
pub(crate) fn parse_note(what: &[u8]) -> (u16, Option<&[u8]>) {
    let number =
        what.get(..2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes);
    (number, what.get(3..).filter(|_| what[2] == 1))
}

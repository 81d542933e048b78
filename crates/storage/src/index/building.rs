//! What writers leave to the build of an index: which records changed, and which keys they had.
//!
//! While an index is built nobody but the build writes its entries. A write unit notes instead, for each record that it changes
//! and whose keys differ afterwards, the record and the keys of its document before the change. So for each record, whatever the
//! build has come across of it, the index has no other entries than
//!
//! * the keys that it has now, and
//! * keys that are noted and not yet caught up with;
//!
//! and where nothing is noted of a record, its entries are exactly its keys. Catching up with a note is to remove the noted keys
//! that the record does not have now, and to add those that it has.
//!
//! Notes are made before the commit that they are about, with the collection's state held: who takes that exclusively has the
//! notes of every commit. Those about something that was not committed after all do no harm.
//!
//! ```text
//! note: record key -> number of the index (u16, big-endian) | 0, or 1 and the ordered values of a key before the change |
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, Result};
use parking_lot::Mutex;

use super::sorter::{Scratch, Sorter};

/// The part of one index in a build.
pub(crate) struct Building {
    pub(crate) notes: Arc<BuildNotes>,
    /// Its number among those that are built together.
    pub(crate) number: u16,
}

/// A note that its transaction makes when it commits.
pub(crate) struct Note {
    notes: Arc<BuildNotes>,
    record_key: Vec<u8>,
    what: Vec<u8>,
}

/// The notes of one build.
pub(crate) struct BuildNotes {
    budget: usize,
    scratch: Arc<Scratch>,
    noted: Mutex<Noted>,
    /// How long a writer waits for each note, in nanoseconds: none unless writers are faster than the build.
    delay_nanos: AtomicU64,
}

struct Noted {
    sorter: Sorter,
    failed: Option<Error>,
}

impl Building {
    /// The record has other keys than before.
    pub(crate) fn touched(&self, record_key: &[u8]) -> Note {
        self.note(record_key, None)
    }

    /// The record had this key.
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
    /// Makes the note; gives the nanoseconds that the writer should wait.
    pub(crate) fn make(&self) -> u64 {
        let notes = &self.notes;
        let mut noted = notes.noted.lock();
        if let Err(error) = noted.sorter.push(&self.record_key, &self.what, &|| Ok(())) {
            // That ends the build, not the write.
            noted.failed.get_or_insert(error);
        }
        notes.delay_nanos.load(Ordering::Relaxed)
    }
}

impl BuildNotes {
    /// None yet; they take about so much memory.
    pub(crate) fn new(budget: usize, scratch: Arc<Scratch>) -> BuildNotes {
        let sorter = Sorter::new(budget, scratch.clone());
        let noted = Mutex::new(Noted { sorter, failed: None });
        BuildNotes { budget, scratch, noted, delay_nanos: AtomicU64::new(0) }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.noted.lock().sorter.len()
    }

    /// That all of them could be kept.
    ///
    /// # Errors
    /// Why one could not.
    pub(crate) fn check(&self) -> Result<()> {
        self.noted.lock().failed.take().map_or(Ok(()), Err)
    }

    /// Takes those that there are.
    ///
    /// # Errors
    /// Why one could not be kept.
    pub(crate) fn take(&self) -> Result<Sorter> {
        let mut noted = self.noted.lock();
        let empty = Sorter::new(self.budget, self.scratch.clone());
        let taken = std::mem::replace(&mut noted.sorter, empty);
        noted.failed.take().map_or(Ok(taken), Err)
    }

    /// From here on writers wait so long for each note.
    pub(crate) fn delay(&self, nanos: u64) {
        self.delay_nanos.store(nanos, Ordering::Relaxed);
    }
}

/// Takes a note apart: the number of the index, and the key that the record had.
pub(crate) fn parse_note(what: &[u8]) -> (u16, Option<&[u8]>) {
    let number =
        what.get(..2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes);
    (number, what.get(3..).filter(|_| what[2] == 1))
}

//! An index: a part in memory, segments in a folder, and the file that names them.
//!
//! ```text
//!  apply --> memory (newest documents) --commit--> segment --merge--> larger segment
//!              |                                      |
//!              +--------------> search <--------------+
//! ```
//!
//! Locks: `commit` takes [`Index::work`] for its whole time, `merge` when it begins and when it
//! ends, and both take [`Index::state`] for the moments in which they take what they write and put
//! what they wrote. `apply` takes `state` for writing. A search takes `state` for reading, compares
//! the vectors in memory, and keeps references to the segments.

mod best;
mod commit_file;
mod contents;
mod explain;
mod extract;
mod facets;
mod file;
mod folder;
mod fresh;
mod highlight;
mod memory;
mod merge;
mod plan;
mod ranked;
mod score_details;
mod search;
mod search_text;
mod search_vectors;
mod segment;
mod sorted;
mod stored;
#[cfg(test)]
mod tests;
mod top;
mod view;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::Error;
use mayfly_value::RawDoc;
use parking_lot::{Mutex, RwLock};

pub use contents::Contents;
pub use highlight::{Highlight, HighlightText, TextKind};
pub use score_details::ScoreDetails;
pub use search::{Cursor, Hit, Page};

use crate::SharedCheck;
use crate::fields::{FieldTable, GrowingTable};
use crate::filter::BitSet;
use crate::limits::{
    MAX_BYTES_IN_MEMORY, MAX_DOCUMENTS_IN_MEMORY, MAX_DOCUMENTS_OF_FILLING, MIN_VECTORS_OF_GRAPH,
};
use crate::{Definition, IndexKind};
use commit_file::{CommitFile, SegmentEntry};
use folder::Folder;
use fresh::Fresh;
use memory::{Document, Memory, RecordKey, Taken};
use segment::Segment;

/// A change of a collection, in the order of its log.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The document with this record key is now this one.
    Put {
        /// The key of the record, by which the caller reads the document.
        record_key: &'a [u8],
        /// The time of the document's version, which hits return.
        version_ms: i64,
        /// The document.
        document: RawDoc<'a>,
    },
    /// There is no document with this record key.
    Delete {
        /// The key of the record.
        record_key: &'a [u8],
    },
}

/// Why an index cannot be used.
#[derive(Debug)]
pub enum IndexError {
    /// The files are damaged, or of another format or definition: the index must be built again.
    Rebuild(String),
    /// A file cannot be read or written.
    Io(std::io::Error),
    /// The caller's [`Control`] ended the work.
    Ended(Error),
}

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IndexError::Rebuild(reason) => write!(f, "the search index must be rebuilt: {reason}"),
            IndexError::Io(error) => write!(f, "a file of a search index: {error}"),
            IndexError::Ended(error) => write!(f, "{}", error.message()),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<std::io::Error> for IndexError {
    fn from(error: std::io::Error) -> IndexError {
        IndexError::Io(error)
    }
}

/// What the caller of a search or a merge decides while it runs.
pub trait Control {
    /// Called between blocks of work.
    ///
    /// # Errors
    /// The error that ends the work: a deadline, `killOp`.
    fn check(&self) -> mayfly_base::Result<()>;

    /// The same check for work that cannot hold a reference to the caller: the loops inside of
    /// scorers.
    fn shared_check(&self) -> SharedCheck;

    /// Whether a document does not exist for queries, because it has expired.
    fn is_hidden(&self, record_key: &[u8]) -> bool;
}

/// Never ends the work, and hides nothing.
pub struct Unlimited;

impl Control for Unlimited {
    fn check(&self) -> mayfly_base::Result<()> {
        Ok(())
    }

    fn shared_check(&self) -> SharedCheck {
        Arc::new(|| Ok(()))
    }

    fn is_hidden(&self, _record_key: &[u8]) -> bool {
        false
    }
}

/// The size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Documents that searches see.
    pub documents: u64,
    /// Documents in segments that were deleted or replaced, and that a merge removes.
    pub deleted: u64,
    /// Documents that are only in memory.
    pub uncommitted: u64,
    /// Segments in files.
    pub segments: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of the part in memory.
    pub memory_bytes: u64,
}

/// A segment with the documents of it that were deleted.
#[derive(Clone)]
struct Part {
    segment: Arc<Segment>,
    deleted: Arc<BitSet>,
    /// The number in the name of the file of deletions; 0: there is none.
    generation: u64,
    /// Whether `deleted` has changed since that file was written.
    is_changed: bool,
}

struct State {
    parts: Vec<Part>,
    memory: Memory,
    /// Segments in memory, see [`fresh`]. Only a `search` index has them.
    fresh: Option<Fresh>,
    position: Option<u64>,
}

impl State {
    fn new(kind: IndexKind) -> State {
        let fresh = (kind == IndexKind::Search).then(Fresh::default);
        State { parts: Vec::new(), memory: Memory::new(), fresh, position: None }
    }

    /// Applies a change.
    fn put(&mut self, key: RecordKey, document: Option<Document>) {
        self.parts.iter_mut().for_each(|part| part.delete(&key));
        match (&mut self.fresh, &document) {
            (Some(fresh), Some(_)) => fresh.put(key.clone()),
            (Some(fresh), None) => fresh.delete(&key),
            (None, _) => {}
        }
        self.memory.put(key, document);
    }

    /// Removes documents that are now in a segment of the folder.
    fn remove_taken<'t>(&mut self, taken: &'t Taken) -> Vec<&'t [u8]> {
        let outdated = self.memory.remove_taken(taken);
        let State { fresh, memory, .. } = self;
        if let Some(fresh) = fresh {
            fresh.retain(memory);
        }
        outdated
    }
}

/// The numbers of files.
struct Work {
    /// The number of the next file.
    next: u64,
    /// The number of the segment that a merge is writing.
    merging: Option<u64>,
}

impl Work {
    /// A number for a new file.
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A number for the segment of a merge.
    fn begin_merge(&mut self) -> u64 {
        let number = self.take();
        self.merging = Some(number);
        number
    }
}

/// An index of one collection.
pub struct Index {
    definition: Arc<Definition>,
    folder: Option<Folder>,
    state: RwLock<State>,
    /// The fields of the index. No other lock is taken while this one is held.
    table: Mutex<Arc<FieldTable>>,
    /// Held by a commit for its whole time, and by a merge when it begins and when it ends.
    work: Mutex<Work>,
    /// Held by the one merge that runs.
    merging: Mutex<()>,
    /// The fewest vectors of a segment that get a graph.
    graph_from: usize,
    /// Whether searches may read the part in memory. Until then it may be larger: no search waits
    /// until its documents are a segment.
    is_searched: AtomicBool,
    /// The searcher of the last search, and the fields that it knows.
    searcher: Mutex<Option<(Arc<FieldTable>, tantivy::Searcher)>>,
}

impl Index {
    /// Opens the index in a folder, or an empty one if the folder is empty. The folder is created
    /// if it does not exist.
    ///
    /// # Errors
    /// [`IndexError::Rebuild`] for files that are damaged, foreign or of another definition.
    pub fn open(path: &Path, definition: Arc<Definition>) -> Result<Index, IndexError> {
        let folder = Folder::open(path)?;
        let mut state = State::new(definition.kind);
        let mut table = FieldTable::of(&definition);
        let mut next = 1;
        if let Some(file) = CommitFile::read(&folder, definition.fingerprint)? {
            for entry in &file.segments {
                let part = Part::open(&folder, entry, &definition)?;
                if !part.segment.table().is_related(&table) {
                    let reason = "the segments have different fields";
                    return Err(IndexError::Rebuild(reason.to_owned()));
                }
                if part.segment.table().len() > table.len() {
                    table = part.segment.table().clone();
                }
                state.parts.push(part);
            }
            state.position = Some(file.position);
            next = file.next;
            folder.remove_others(&file.names())?;
        } else {
            folder.remove_others(&[])?;
        }
        let (folder, state) = (Some(folder), RwLock::new(state));
        let table = Mutex::new(Arc::new(table));
        Ok(Index::new(definition, folder, state, table, next))
    }

    /// An index without a folder. `commit` keeps its documents in memory.
    pub fn in_memory(definition: Arc<Definition>) -> Index {
        let table = Mutex::new(Arc::new(FieldTable::of(&definition)));
        let state = RwLock::new(State::new(definition.kind));
        Index::new(definition, None, state, table, 1)
    }

    fn new(
        definition: Arc<Definition>,
        folder: Option<Folder>,
        state: RwLock<State>,
        table: Mutex<Arc<FieldTable>>,
        next: u64,
    ) -> Index {
        let work = Mutex::new(Work { next, merging: None });
        let (merging, graph_from) = (Mutex::new(()), MIN_VECTORS_OF_GRAPH);
        let (is_searched, searcher) = (AtomicBool::new(false), Mutex::new(None));
        Index { definition, folder, state, table, work, merging, graph_from, is_searched, searcher }
    }

    /// The fields that the index has now.
    fn table(&self) -> Arc<FieldTable> {
        self.table.lock().clone()
    }

    /// The definition with which it was opened.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The position of the last commit. `None`: nothing was committed.
    pub fn position(&self) -> Option<u64> {
        self.state.read().position
    }

    /// Applies changes in their order. Searches that begin later see all of them.
    ///
    /// Returns whether the part in memory has reached its limit, so that the caller should commit.
    pub fn apply(&self, changes: &[Change<'_>]) -> bool {
        // Documents are read before the lock is taken.
        let mut table = GrowingTable::new(&self.table);
        let read = |change: &Change<'_>| match *change {
            Change::Put { record_key, version_ms, document } => {
                let read = memory::read(&self.definition, &mut table, version_ms, document);
                (RecordKey::from(record_key), read)
            }
            Change::Delete { record_key } => (RecordKey::from(record_key), None),
        };
        let read: Vec<_> = changes.iter().map(read).collect();
        let mut state = self.state.write();
        for (key, document) in read {
            state.put(key, document);
        }
        let memory = &state.memory;
        memory.len() >= self.most_in_memory() || memory.bytes() >= MAX_BYTES_IN_MEMORY
    }

    /// The most documents in memory. Large segments need fewer merges, but the first search after
    /// many writes makes a segment of them.
    fn most_in_memory(&self) -> usize {
        let is_searched = self.is_searched.load(Ordering::Relaxed);
        match is_searched || self.definition.kind == IndexKind::VectorSearch {
            true => MAX_DOCUMENTS_IN_MEMORY,
            false => MAX_DOCUMENTS_OF_FILLING,
        }
    }

    /// Declares that the index is complete, so that searches may read it from now on.
    pub fn expect_searches(&self) {
        self.is_searched.store(true, Ordering::Relaxed);
    }

    /// The sizes of the index.
    pub fn sizes(&self) -> Sizes {
        let state = self.state.read();
        let mut sizes = Sizes {
            documents: state.memory.len() as u64,
            uncommitted: state.memory.len() as u64,
            memory_bytes: state.memory.bytes() as u64,
            segments: state.parts.len() as u64,
            ..Sizes::default()
        };
        for part in &state.parts {
            let deleted = part.deleted.count() as u64;
            sizes.documents += part.segment.len() as u64 - deleted;
            sizes.deleted += deleted;
            sizes.file_bytes += part.segment.file_bytes() as u64;
        }
        sizes
    }
}

impl Part {
    fn new(segment: Segment) -> Part {
        let deleted = Arc::new(BitSet::new(segment.len()));
        Part { segment: Arc::new(segment), deleted, generation: 0, is_changed: false }
    }

    fn open(
        folder: &Folder,
        entry: &SegmentEntry,
        definition: &Definition,
    ) -> Result<Part, IndexError> {
        let segment = Segment::open(folder, entry.number, definition)?;
        let deleted = match entry.generation {
            0 => BitSet::new(segment.len()),
            generation => folder.read_deletions(entry.number, generation, segment.len())?,
        };
        Ok(Part {
            segment: Arc::new(segment),
            deleted: Arc::new(deleted),
            generation: entry.generation,
            is_changed: false,
        })
    }

    fn delete(&mut self, record_key: &[u8]) {
        if let Some(ordinal) = self.segment.find(record_key)
            && !self.deleted.contains(ordinal)
        {
            Arc::make_mut(&mut self.deleted).insert(ordinal);
            self.is_changed = true;
        }
    }

    /// The ordinal of the document with this record key, unless it was deleted.
    fn find(&self, record_key: &[u8]) -> Option<usize> {
        self.segment.find(record_key).filter(|ordinal| !self.deleted.contains(*ordinal))
    }

    fn entry(&self) -> SegmentEntry {
        SegmentEntry { number: self.segment.number(), generation: self.generation }
    }

    /// The number of documents that were not deleted.
    fn live(&self) -> usize {
        self.segment.len() - self.deleted.count()
    }
}

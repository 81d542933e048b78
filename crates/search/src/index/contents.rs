//! The documents of an index at one moment, to compare them with a collection.

use std::collections::BTreeMap;

use mayfly_value::RawDoc;

use super::memory::{has_vectors, vectors_of};
use super::{Index, Part};
use crate::IndexKind;

/// The documents of an index at one moment. Later changes and merges do not affect it.
pub struct Contents {
    /// The times of the versions of documents that are only in memory, by record key.
    memory: BTreeMap<Vec<u8>, i64>,
    parts: Vec<Part>,
}

impl Index {
    /// The documents of the index now.
    pub fn contents(&self) -> Contents {
        let state = self.state.read();
        let memory = state.memory.iter();
        let memory = memory.map(|(key, document)| (key.to_vec(), document.version_ms)).collect();
        Contents { memory, parts: state.parts.clone() }
    }

    /// Whether the index contains such a document: a `vectorSearch` index has only those with a
    /// vector that fits one of its fields.
    pub fn contains(&self, document: RawDoc<'_>) -> bool {
        match self.definition.kind {
            IndexKind::Search => true,
            IndexKind::VectorSearch => has_vectors(&vectors_of(&self.definition, document)),
        }
    }
}

impl Contents {
    /// The number of documents.
    pub fn len(&self) -> usize {
        self.memory.len() + self.parts.iter().map(Part::live).sum::<usize>()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The times of the versions of the document with this record key. A sound index has one
    /// version of each document.
    pub fn versions<'c>(&'c self, record_key: &'c [u8]) -> impl Iterator<Item = i64> + 'c {
        let in_files = self.parts.iter().filter_map(move |part| {
            part.find(record_key).map(|ordinal| part.segment.version(ordinal))
        });
        self.memory.get(record_key).copied().into_iter().chain(in_files)
    }
}

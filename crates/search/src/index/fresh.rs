//! Segments in memory, so that a search finds the newest documents of a `search` index in the same
//! way as all others, and scores them with the statistics of all.
//!
//! A search first writes the documents that were applied since the last one as a segment. Before it
//! does, it adds the documents of the newest segments that are not much larger, so that there are
//! few segments and each document is written few times. [`Index::prepare`](super::Index::prepare)
//! does the same before a search.

use std::collections::BTreeSet;
use std::sync::Arc;

use tantivy::directory::OwnedBytes;

use super::memory::{Memory, RecordKey, Taken};
use super::segment::Segment;
use super::write::{Shape, Source, write_segment};
use super::{IndexError, Part};
use crate::Definition;
use crate::fields::FieldTable;

/// The segments in memory, and the keys of documents that are in none of them.
#[derive(Default)]
pub(super) struct Fresh {
    parts: Vec<Part>,
    pending: BTreeSet<RecordKey>,
}

impl Fresh {
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The document with this key was replaced.
    pub(super) fn put(&mut self, key: RecordKey) {
        self.parts.iter_mut().for_each(|part| part.delete(&key));
        self.pending.insert(key);
    }

    /// The document with this key was deleted.
    pub(super) fn delete(&mut self, key: &[u8]) {
        self.parts.iter_mut().for_each(|part| part.delete(key));
        self.pending.remove(key);
    }

    /// Removes the documents that are not in memory any more.
    pub(super) fn retain(&mut self, memory: &Memory) {
        if memory.len() == 0 {
            return *self = Fresh::default();
        }
        self.pending.retain(|key| memory.get(key).is_some());
        for part in &mut self.parts {
            let segment = part.segment.clone();
            for ordinal in 0..segment.len() {
                if !part.deleted.contains(ordinal) && memory.get(segment.key(ordinal)).is_none() {
                    part.delete(segment.key(ordinal));
                }
            }
        }
        self.parts.retain(|part| part.live() > 0);
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number of documents that are in no segment.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Writes a segment with all documents that are in none.
    pub(super) fn write(
        &mut self,
        memory: &Memory,
        definition: &Definition,
        table: &FieldTable,
    ) -> Result<(), IndexError> {
        let mut keys = self.pending.clone();
        self.parts.retain(|part| part.live() > 0);
        let mut kept = self.parts.len();
        while let Some(last) = self.parts[..kept].last()
            && last.live() <= 2 * keys.len()
        {
            let live = (0..last.segment.len()).filter(|ordinal| !last.deleted.contains(*ordinal));
            keys.extend(live.map(|ordinal| RecordKey::from(last.segment.key(ordinal))));
            kept -= 1;
        }
        let document = |key: RecordKey| memory.get(&key).cloned().map(|document| (key, document));
        let taken: Taken = keys.into_iter().filter_map(document).collect();
        if taken.is_empty() {
            self.pending.clear();
            return Ok(());
        }
        let shape = Shape { definition, table, scratch: None, graph_from: usize::MAX };
        let bytes = write_segment(Vec::new(), &shape, &[Source::Memory(&taken)], &|| Ok(()))?;
        let segment = Segment::read(0, OwnedBytes::new(bytes), definition)?;
        self.parts.truncate(kept);
        self.pending.clear();
        self.parts.push(Part {
            deleted: Arc::new(crate::filter::BitSet::new(segment.len())),
            segment: Arc::new(segment),
            generation: 0,
            is_changed: false,
        });
        Ok(())
    }
}

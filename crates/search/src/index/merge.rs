//! Commits and merges: both write a segment while changes and searches go on.
//!
//! 1. Under the lock of the state, take references to what is written.
//! 2. Without it, write the new segment. A merge, which may take minutes, holds no lock that a
//!    commit needs.
//! 3. Write the files of deletions, and the file `commit`. One commit or merge at a time does this.
//! 4. Under the lock of the state, put the new segment in the place of what it contains, and delete
//!    in it the documents that were deleted or replaced since step 1.
//!
//! Only merges build graphs, so that a commit takes little time.

use std::sync::Arc;

use super::commit_file::CommitFile;
use super::folder::{Folder, scratch_name, segment_name};
use super::memory::Taken;
use super::segment::Segment;
use super::write::{Check, Shape, Source, write_segment};
use super::{Control, Index, IndexError, Part, Work};
use crate::definition::IndexingMethod;
use crate::vector::ElementType;

/// Most segments that merges leave.
const MAX_SEGMENTS: usize = 10;

/// Fewest segments of about the same size that are merged.
const TIER: usize = 4;

impl Index {
    /// Makes all applied changes durable, with the position of the last of them in the log.
    ///
    /// # Errors
    /// [`IndexError::Io`]. The index is then as before, and a later commit may succeed.
    pub fn commit(&self, position: u64) -> Result<(), IndexError> {
        let mut work = self.work.lock();
        let Some(folder) = &self.folder else {
            self.state.write().position = Some(position);
            return Ok(());
        };
        let (taken, mut parts) = {
            let state = self.state.read();
            (state.memory.take(), state.parts.clone())
        };
        let seen: Vec<Part> = parts.clone();
        let added = match taken.is_empty() {
            true => None,
            false => {
                let sources = [Source::Memory(&taken)];
                let place = (work.take(), usize::MAX);
                Some(self.write_part(folder, place, &sources, &|| Ok(()))?)
            }
        };
        parts.extend(added);
        self.write_commit(folder, &mut work, &mut parts, position)?;
        self.publish_commit(&seen, parts, &taken, position);
        self.remove_others(folder, &work)
    }

    /// Writes the live documents of the sources as a segment with this number, with graphs over so
    /// many vectors or more.
    fn write_part(
        &self,
        folder: &Folder,
        (number, graph_from): (u64, usize),
        sources: &[Source<'_>],
        check: Check<'_>,
    ) -> Result<Part, IndexError> {
        let table = self.table();
        let scratch = folder.scratch(number)?;
        let shape = Shape {
            definition: &self.definition,
            table: &table,
            scratch: Some(&scratch),
            graph_from,
        };
        let mut failure = None;
        let written = folder.write(&segment_name(number), |file| {
            write_segment(file, &shape, sources, check).map_err(|error| match error {
                IndexError::Io(error) => error,
                error => {
                    failure = Some(error);
                    std::io::Error::other("the writing of a segment was ended")
                }
            })
        });
        std::fs::remove_dir_all(&scratch)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        written?;
        Ok(Part::new(Segment::open(folder, number, &self.definition)?))
    }

    /// Writes the deletions that have no file yet, then the file `commit`.
    fn write_commit(
        &self,
        folder: &Folder,
        work: &mut Work,
        parts: &mut Vec<Part>,
        position: u64,
    ) -> Result<(), IndexError> {
        parts.retain(|part| part.live() > 0);
        for part in parts.iter_mut().filter(|part| part.is_changed) {
            part.generation = work.take();
            folder.write_deletions(part.segment.number(), part.generation, &part.deleted)?;
            part.is_changed = false;
        }
        let segments = parts.iter().map(Part::entry).collect();
        let fingerprint = self.definition.fingerprint;
        CommitFile { fingerprint, position, next: work.next, segments }.write(folder)?;
        Ok(())
    }

    /// Puts the committed parts in the place of those that were seen when the commit began.
    fn publish_commit(&self, seen: &[Part], parts: Vec<Part>, taken: &Taken, position: u64) {
        let mut state = self.state.write();
        let outdated = state.remove_taken(taken);
        let mut published = Vec::new();
        for mut part in parts {
            let is_it = |other: &&Part| other.segment.number() == part.segment.number();
            match (state.parts.iter().find(is_it), seen.iter().find(is_it)) {
                (Some(current), Some(seen)) => {
                    // Deletions since then copied the set, since `seen` has a reference to it.
                    part.is_changed = !Arc::ptr_eq(&current.deleted, &seen.deleted);
                    part.deleted = current.deleted.clone();
                }
                _ => outdated.iter().for_each(|key| part.delete(key)),
            }
            published.push(part);
        }
        state.parts = published;
        state.position = Some(position);
    }

    /// Removes files to which the last commit does not refer, and which no merge is writing.
    fn remove_others(&self, folder: &Folder, work: &Work) -> Result<(), IndexError> {
        if let Some(file) = CommitFile::read(folder, self.definition.fingerprint)? {
            let mut names = file.names();
            names.extend(work.merging.into_iter().flat_map(names_of_writing));
            folder.remove_others(&names)?;
        }
        Ok(())
    }

    /// Merges segments of about the same size, or one with many deleted documents or without a
    /// graph that it should have. Returns whether it merged, in which case another merge may be
    /// due.
    ///
    /// # Errors
    /// [`IndexError::Io`], [`IndexError::Ended`] with the error of [`Control::check`]. The index is
    /// then as before.
    pub fn merge(&self, control: &dyn Control) -> Result<bool, IndexError> {
        let _one_merge = self.merging.lock();
        let Some(folder) = &self.folder else { return Ok(false) };
        let parts = self.state.read().parts.clone();
        let sizes: Vec<_> = parts.iter().map(|part| (part.live(), part.segment.len())).collect();
        let mut chosen = choose(&sizes);
        if chosen.is_empty() {
            chosen.extend(parts.iter().position(|part| self.lacks_graph(part)));
        }
        if chosen.is_empty() || self.position().is_none() {
            return Ok(false);
        }
        let mut merged: Vec<&Part> = chosen.iter().map(|at| &parts[*at]).collect();
        // The graph of the first segment is used again, so the largest one is first.
        merged.sort_by_key(|part| std::cmp::Reverse(part.live()));
        let number = self.work.lock().begin_merge();
        let written = self.write_merged(folder, number, &merged, control);
        let mut work = self.work.lock();
        work.merging = None;
        let added = match written {
            Ok(added) => added,
            Err(error) => {
                // The file of the merge is removed by the next commit at the latest.
                let _ = self.remove_others(folder, &work);
                return Err(error);
            }
        };
        self.finish_merge(folder, &mut work, &merged, added)?;
        Ok(true)
    }

    fn write_merged(
        &self,
        folder: &Folder,
        number: u64,
        merged: &[&Part],
        control: &dyn Control,
    ) -> Result<Option<Part>, IndexError> {
        if merged.iter().all(|part| part.live() == 0) {
            return Ok(None);
        }
        let sources: Vec<Source<'_>> = merged.iter().map(|part| Source::Segment(part)).collect();
        let check = || control.check().map_err(IndexError::Ended);
        self.write_part(folder, (number, self.graph_from), &sources, &check).map(Some)
    }

    /// Puts a merged segment in the place of its sources, in the file `commit` and in the state.
    /// Meanwhile no commit is under way, but there may have been some since the sources were read.
    fn finish_merge(
        &self,
        folder: &Folder,
        work: &mut Work,
        merged: &[&Part],
        added: Option<Part>,
    ) -> Result<(), IndexError> {
        let (seen, position) = {
            let state = self.state.read();
            (state.parts.clone(), state.position)
        };
        let is_kept = |part: &&Part| {
            merged.iter().all(|source| source.segment.number() != part.segment.number())
        };
        let mut kept: Vec<Part> = seen.iter().filter(is_kept).cloned().collect();
        kept.extend(added.map(|mut part| {
            // What was deleted by these commits must be deleted in the file, too.
            delete_since(&seen, merged, &mut part);
            part
        }));
        self.write_commit(folder, work, &mut kept, position.unwrap_or(0))?;
        self.publish_merge(&seen, merged, kept);
        self.remove_others(folder, work)
    }

    /// Whether a segment has a field with so many vectors that it should have a graph.
    pub(super) fn lacks_graph(&self, part: &Part) -> bool {
        let fields = self.definition.vectors.iter().enumerate();
        let mut hnsw = fields.filter(|(_, field)| field.method == IndexingMethod::Hnsw);
        hnsw.any(|(at, field)| {
            [ElementType::Float, ElementType::Byte].into_iter().any(|element| {
                let vectors = part.segment.vectors(at, field, element);
                vectors.is_some_and(|it| it.graph.is_none() && it.len() >= self.graph_from)
            })
        })
    }

    fn publish_merge(&self, seen: &[Part], merged: &[&Part], kept: Vec<Part>) {
        let mut state = self.state.write();
        let number_of = |part: &Part| part.segment.number();
        let mut published = Vec::new();
        for mut part in kept {
            let is_it = |other: &&Part| number_of(other) == number_of(&part);
            match (state.parts.iter().find(is_it), seen.iter().find(is_it)) {
                (Some(current), Some(seen)) => {
                    part.is_changed = !Arc::ptr_eq(&current.deleted, &seen.deleted);
                    part.deleted = current.deleted.clone();
                }
                _ => delete_since(&state.parts, merged, &mut part),
            }
            published.push(part);
        }
        state.parts = published;
    }
}

/// The names of the files and folders in which a segment is written.
fn names_of_writing(number: u64) -> [String; 3] {
    let segment = segment_name(number);
    [format!("{segment}.tmp"), scratch_name(number), segment]
}

/// Deletes in a merged segment what was deleted in its sources since they were read.
fn delete_since(current: &[Part], merged: &[&Part], part: &mut Part) {
    for seen in merged {
        let is_it = |other: &&Part| other.segment.number() == seen.segment.number();
        let Some(current) = current.iter().find(is_it) else { continue };
        if Arc::ptr_eq(&current.deleted, &seen.deleted) {
            continue;
        }
        for ordinal in 0..seen.segment.len() {
            if current.deleted.contains(ordinal) && !seen.deleted.contains(ordinal) {
                part.delete(seen.segment.key(ordinal));
            }
        }
    }
}

/// The segments that a merge takes, by their live documents and their documents.
pub(super) fn choose(sizes: &[(usize, usize)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|at| sizes[*at].0);
    // The smallest segments, as long as the next one is not much larger than all of them together.
    let (mut total, mut count) = (0, 0);
    for at in &order {
        if count > 0 && sizes[*at].0 > 2 * total.max(1) {
            break;
        }
        total += sizes[*at].0;
        count += 1;
    }
    if count >= TIER {
        return order[..count].to_vec();
    }
    if sizes.len() > MAX_SEGMENTS {
        return order[..=sizes.len() - MAX_SEGMENTS].to_vec();
    }
    let is_sparse = |at: &usize| (sizes[*at].1 - sizes[*at].0) * 3 > sizes[*at].1;
    order.into_iter().filter(is_sparse).take(1).collect()
}

//! Commits and merges: both write a segment while changes and searches go on.
//!
//! 1. Under the lock of the state, take references to what is written.
//! 2. Without it, write the new segment, the files of deletions, and the file `commit`.
//! 3. Under the lock, put the new segment in the place of what it contains, and delete in it the
//!    documents that were deleted or replaced since step 1.

use std::sync::Arc;

use super::commit_file::CommitFile;
use super::folder::{Folder, segment_name};
use super::memory::Taken;
use super::segment::Segment;
use super::write::{Check, Shape, Source, write_segment};
use super::{Control, Index, IndexError, Part};

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
        let mut next = self.work.lock();
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
                Some(self.write_part(folder, &mut next, &sources, &|| Ok(()))?)
            }
        };
        parts.extend(added);
        self.write_commit(folder, &mut next, &mut parts, position)?;
        self.publish_commit(&seen, parts, &taken, position);
        self.remove_others(folder)
    }

    /// Writes the live documents of the sources as a segment.
    fn write_part(
        &self,
        folder: &Folder,
        next: &mut u64,
        sources: &[Source<'_>],
        check: Check<'_>,
    ) -> Result<Part, IndexError> {
        let number = *next;
        *next += 1;
        let table = self.table();
        let scratch = folder.scratch(number)?;
        let shape = Shape {
            definition: &self.definition,
            table: &table,
            scratch: Some(&scratch),
            graph_from: self.graph_from,
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
        next: &mut u64,
        parts: &mut Vec<Part>,
        position: u64,
    ) -> Result<(), IndexError> {
        parts.retain(|part| part.live() > 0);
        for part in parts.iter_mut().filter(|part| part.is_changed) {
            part.generation = *next;
            *next += 1;
            folder.write_deletions(part.segment.number(), part.generation, &part.deleted)?;
            part.is_changed = false;
        }
        let segments = parts.iter().map(Part::entry).collect();
        let fingerprint = self.definition.fingerprint;
        CommitFile { fingerprint, position, next: *next, segments }.write(folder)?;
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

    /// Removes files to which the last commit does not refer.
    fn remove_others(&self, folder: &Folder) -> Result<(), IndexError> {
        if let Some(file) = CommitFile::read(folder, self.definition.fingerprint)? {
            folder.remove_others(&file.names())?;
        }
        Ok(())
    }

    /// Merges segments of about the same size, or one with many deleted documents. Returns whether
    /// it merged, in which case another merge may be due.
    ///
    /// # Errors
    /// [`IndexError::Io`], [`IndexError::Ended`] with the error of [`Control::check`]. The index is
    /// then as before.
    pub fn merge(&self, control: &dyn Control) -> Result<bool, IndexError> {
        let mut next = self.work.lock();
        let Some(folder) = &self.folder else { return Ok(false) };
        let (parts, position) = {
            let state = self.state.read();
            (state.parts.clone(), state.position)
        };
        let sizes: Vec<_> = parts.iter().map(|part| (part.live(), part.segment.len())).collect();
        let chosen = choose(&sizes);
        let Some(position) = position.filter(|_| !chosen.is_empty()) else { return Ok(false) };
        let mut merged: Vec<&Part> = chosen.iter().map(|at| &parts[*at]).collect();
        // The graph of the first segment is used again, so the largest one is first.
        merged.sort_by_key(|part| std::cmp::Reverse(part.live()));
        let sources: Vec<Source<'_>> = merged.iter().map(|part| Source::Segment(part)).collect();
        let check = || control.check().map_err(IndexError::Ended);
        let added = match merged.iter().any(|part| part.live() > 0) {
            true => Some(self.write_part(folder, &mut next, &sources, &check)?),
            false => None,
        };
        let is_kept = |number| merged.iter().all(|part| part.segment.number() != number);
        let mut kept: Vec<Part> =
            parts.iter().filter(|part| is_kept(part.segment.number())).cloned().collect();
        kept.extend(added);
        self.write_commit(folder, &mut next, &mut kept, position)?;
        self.publish_merge(&parts, &merged, kept);
        self.remove_others(folder)?;
        Ok(true)
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

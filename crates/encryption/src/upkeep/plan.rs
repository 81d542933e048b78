//! The changes of the collection of counts that a compaction and a cleanup make.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use foldhash::fast::RandomState;
use mayfly_base::Result;
use mayfly_value::DocBuf;

use crate::cipher::RandomIv;
use crate::state::{EscId, EscReader, Positions, StateTokens, anchor_document, find_positions};
use crate::tokens::{AnchorPaddingToken, EscContentionToken};

/// Changes of the collection of counts.
#[derive(Debug, Default)]
pub struct StateChange {
    /// Documents to insert.
    pub inserted: Vec<DocBuf>,
    /// Documents that replace those with the same `_id`.
    pub replaced: Vec<DocBuf>,
    /// Deleted documents, as ranges: a value that was inserted a million times has as many.
    deleted: Vec<(StateTokens, Kind, RangeInclusive<u64>)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Anchor,
    NonAnchor,
}

impl std::fmt::Debug for StateTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateTokens(..)")
    }
}

impl StateChange {
    /// The ids of the documents to delete. Some may not exist, if an earlier deletion was cut
    /// short.
    pub fn deleted(&self) -> impl Iterator<Item = EscId> + '_ {
        self.deleted.iter().flat_map(|(tokens, kind, positions)| {
            positions.clone().map(move |position| match kind {
                Kind::Anchor => tokens.anchor(position),
                Kind::NonAnchor => tokens.non_anchor(position),
            })
        })
    }

    /// The number of documents to delete.
    pub fn deleted_count(&self) -> u64 {
        self.deleted.iter().map(|(_, _, positions)| positions.end() - positions.start() + 1).sum()
    }

    fn delete(&mut self, tokens: &StateTokens, kind: Kind, positions: RangeInclusive<u64>) {
        if !positions.is_empty() {
            self.deleted.push((*tokens, kind, positions));
        }
    }
}

/// Plans the compaction of values: each that was inserted since its last anchor gets an anchor with
/// its newest count, and the non-anchors up to it are deleted.
///
/// The reference deletes the non-anchors that it has read from the collection before it began. Here
/// their ids are computed, because those of counts up to the last anchor are already deleted.
///
/// # Errors
/// Errors of the reader, and 1 InternalError for malformed state.
pub fn plan_compaction(
    tokens: &[EscContentionToken],
    reader: &mut dyn EscReader,
    iv: RandomIv<'_>,
) -> Result<StateChange> {
    let mut change = StateChange::default();
    for (state, found) in states_of(tokens, reader)? {
        if found.count > found.anchored {
            let position = found.anchor + 1;
            let id = state.anchor(position);
            change.inserted.push(anchor_document(&state, &id, (0, found.count), &mut *iv));
            change.delete(&state, Kind::NonAnchor, found.anchored + 1..=found.count);
        }
    }
    Ok(change)
}

/// Plans the cleanup of values: the null anchor gets the newest count and the position of the
/// newest anchor, and all anchors and non-anchors are deleted.
///
/// # Errors
/// Errors of the reader, and 1 InternalError for malformed state.
pub fn plan_cleanup(
    tokens: &[EscContentionToken],
    reader: &mut dyn EscReader,
    iv: RandomIv<'_>,
) -> Result<StateChange> {
    let mut change = StateChange::default();
    for (state, found) in states_of(tokens, reader)? {
        clean(&state, &found, &mut change, &mut *iv);
    }
    Ok(change)
}

/// Plans the insertion of this many padding anchors for a field. They look like anchors to readers
/// without tokens, and hide from them how many different values were inserted.
///
/// How many anchors the reference inserts depends on a parameter (`compactAnchorPaddingFactor`), on
/// the leaves and on the edges of the range. The formula is not in the public specification of
/// drivers, so the caller decides. No query depends on padding.
///
/// # Errors
/// Errors of the reader, and 1 InternalError for malformed state.
pub fn plan_padding(
    token: &AnchorPaddingToken,
    anchors: u64,
    reader: &mut dyn EscReader,
    iv: RandomIv<'_>,
) -> Result<StateChange> {
    let state = StateTokens::of_padding(token);
    let mut change = StateChange::default();
    for found in find_positions(&[state], reader)? {
        for position in found.anchor + 1..=found.anchor.saturating_add(anchors) {
            let id = state.anchor(position);
            change.inserted.push(anchor_document(&state, &id, (0, 0), &mut *iv));
        }
    }
    Ok(change)
}

/// Plans the cleanup of the padding anchors of a field: a null anchor replaces them.
///
/// # Errors
/// Errors of the reader, and 1 InternalError for malformed state.
pub fn plan_padding_cleanup(
    token: &AnchorPaddingToken,
    reader: &mut dyn EscReader,
    iv: RandomIv<'_>,
) -> Result<StateChange> {
    let state = StateTokens::of_padding(token);
    let mut change = StateChange::default();
    for found in find_positions(&[state], reader)? {
        clean(&state, &found, &mut change, &mut *iv);
    }
    Ok(change)
}

/// The state of each token; repeated tokens are skipped.
fn states_of(
    tokens: &[EscContentionToken],
    reader: &mut dyn EscReader,
) -> Result<Vec<(StateTokens, Positions)>> {
    // Two fields with one data key have the same tokens.
    let mut known: HashSet<&EscContentionToken, RandomState> = HashSet::default();
    let distinct = tokens.iter().filter(|token| known.insert(token));
    let states: Vec<StateTokens> = distinct.map(StateTokens::of_value).collect();
    let found = find_positions(&states, reader)?;
    Ok(states.into_iter().zip(found).collect())
}

fn clean(state: &StateTokens, found: &Positions, change: &mut StateChange, iv: RandomIv<'_>) {
    let cleaned = found.null.map_or(0, |null| null.position);
    if found.anchor == cleaned && found.count == found.anchored {
        return;
    }
    let id = state.anchor(0);
    let document = anchor_document(state, &id, (found.anchor, found.count), iv);
    match found.null {
        None => change.inserted.push(document),
        Some(_) => change.replaced.push(document),
    }
    change.delete(state, Kind::Anchor, cleaned + 1..=found.anchor);
    change.delete(state, Kind::NonAnchor, found.anchored + 1..=found.count);
}

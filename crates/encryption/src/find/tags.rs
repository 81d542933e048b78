//! The tags of all documents that contain a value or a value in a range.
//!
//! The value was inserted with contention factors from 0 to the field's greatest one. For each of
//! them the state has a count, and the tags are those of the numbers from 1 to the count. Some of
//! them are stale, because their document was deleted or changed: the answer of a query for all of
//! them is exact nevertheless.

use mayfly_base::Result;

use crate::payload::{FindPayload, FindTokens};
use crate::state::{EscReader, StateTokens, find_positions};
use crate::tokens::Tag;

/// The most tags of a query, unless the caller has another limit. A tag takes 40 to 44 bytes of a
/// filter, so that they take at most 720 kB.
pub const DEFAULT_MAX_TAGS: usize = 16_384;

/// The result of [`find_tags`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagSearch {
    /// All tags. A document matches if its `__safeContent__` contains one of them.
    Tags(Vec<Tag>),
    /// There are more tags than the limit. The caller can apply a
    /// [`ValuePredicate`](crate::ValuePredicate) to each document instead.
    TooMany,
}

/// Looks for the tags of a query. The limit also bounds the look-ups: a payload with more pairs of
/// an edge and a contention factor than `max_tags` has too many. A stub of a range has no tags of
/// its own and yields none.
///
/// # Errors
/// Errors of the reader, and 1 InternalError for malformed state.
pub fn find_tags(
    payload: &FindPayload,
    reader: &mut dyn EscReader,
    max_tags: usize,
) -> Result<TagSearch> {
    let (sets, max_contention) = match payload {
        FindPayload::Equality(find) => (std::slice::from_ref(&find.tokens), find.max_contention),
        FindPayload::Range(find) => match &find.edges {
            None => return Ok(TagSearch::Tags(Vec::new())),
            Some((edges, max_contention)) => (&edges[..], *max_contention),
        },
    };
    let factors = usize::try_from(max_contention).ok().and_then(|max| max.checked_add(1));
    let searches = factors.and_then(|factors| factors.checked_mul(sets.len()));
    if searches.is_none_or(|searches| searches > max_tags) {
        return Ok(TagSearch::TooMany);
    }
    let pairs: Vec<(&FindTokens, u64)> =
        sets.iter().flat_map(|set| (0..=max_contention).map(move |factor| (set, factor))).collect();
    let state = |(set, factor): &(&FindTokens, u64)| {
        StateTokens::of_value(&set.esc.with_contention(*factor))
    };
    let states: Vec<StateTokens> = pairs.iter().map(state).collect();
    let counts: Vec<u64> =
        find_positions(&states, reader)?.iter().map(|positions| positions.count).collect();
    let total = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    if total.is_none_or(|total| total > max_tags as u64) {
        return Ok(TagSearch::TooMany);
    }
    let mut tags = Vec::new();
    for ((set, factor), count) in pairs.into_iter().zip(counts) {
        let token = set.edc.with_contention(factor).tag_token();
        tags.extend((1..=count).map(|count| token.tag(count)));
    }
    Ok(TagSearch::Tags(tags))
}

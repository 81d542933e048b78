//! The first hits of a search with a sort.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Part;
use super::best::{BestKey, NO_PLACE};
use super::search::{Cursor, Hit};
use crate::fields::{FieldKind, FieldTable};
use crate::query::{SortField, SortKey};

/// The order of hits with equal ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOrder {
    Ascending,
    /// The order of `searchBefore`, which is the opposite of that of `searchAfter`.
    Descending,
}

impl KeyOrder {
    fn compare(self, left: (&[u8], &[u8]), right: (&[u8], &[u8])) -> Ordering {
        let keys = match self {
            KeyOrder::Ascending => left.1.cmp(right.1),
            KeyOrder::Descending => right.1.cmp(left.1),
        };
        left.0.cmp(right.0).then(keys)
    }
}

/// A hit whose order in a heap is that of its rank: the last one is the greatest.
struct Ranked(Hit, KeyOrder);

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        let (left, right) = (&self.0, &other.0);
        self.1.compare((&left.rank, &left.record_key), (&right.rank, &right.record_key))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Ranked {}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

/// The first hits after a cursor.
pub(super) struct SortedTop<'c> {
    size: usize,
    after: Option<&'c Cursor>,
    order: KeyOrder,
    heap: BinaryHeap<Ranked>,
}

impl<'c> SortedTop<'c> {
    pub(super) fn new(size: usize, after: Option<&'c Cursor>, order: KeyOrder) -> SortedTop<'c> {
        SortedTop { size, after, order, heap: BinaryHeap::new() }
    }

    /// Whether a document with this rank can be among the first ones.
    pub(super) fn may_add(&self, rank: &[u8]) -> bool {
        let is_first = || self.heap.peek().is_none_or(|last| rank <= last.0.rank.as_slice());
        self.after.is_none_or(|after| rank >= after.rank.as_slice())
            && (self.heap.len() < self.size || is_first())
    }

    /// Adds a hit, if it is after the cursor and among the first ones.
    pub(super) fn add(&mut self, hit: Hit) {
        let place = (hit.rank.as_slice(), hit.record_key.as_slice());
        let is_after = |after: &Cursor| {
            self.order.compare((&after.rank, &after.record_key), place) == Ordering::Less
        };
        if self.size == 0 || self.after.is_some_and(|after| !is_after(after)) {
            return;
        }
        self.heap.push(Ranked(hit, self.order));
        if self.heap.len() > self.size {
            self.heap.pop();
        }
    }

    pub(super) fn into_hits(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.0).collect()
    }
}

/// Makes the ranks of a segment's documents.
pub(super) struct Ranker<'r> {
    part: &'r Part,
    fields: Vec<RankField<'r>>,
}

/// A sort field, its number, and the place of each document's key.
type RankField<'r> = (&'r SortField, Option<(u16, Arc<Vec<u32>>)>);

impl<'r> Ranker<'r> {
    pub(super) fn new(part: &'r Part, sort: &'r [SortField], table: &FieldTable) -> Ranker<'r> {
        let field = |field: &'r SortField| {
            let SortKey::Path(path, choice) = &field.by else { return (field, None) };
            let number = table.find(FieldKind::Values, path, "");
            let key = BestKey::Sort(*choice);
            (field, number.map(|number| (number, part.segment.best_places(number, key))))
        };
        Ranker { part, fields: sort.iter().map(field).collect() }
    }

    /// Writes the rank of a document.
    pub(super) fn rank(&self, document: u32, score: f32, rank: &mut Vec<u8>) {
        rank.clear();
        for (field, places) in &self.fields {
            if field.by == SortKey::Score {
                field.append_score(rank, score);
                continue;
            }
            let key = places.as_ref().and_then(|(number, places)| {
                let place = *places.get(document as usize).filter(|place| **place != NO_PLACE)?;
                Some(self.part.segment.column(usize::from(*number))?.key(place as usize))
            });
            field.append_value(rank, key);
        }
    }
}

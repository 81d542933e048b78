//! The first hits of a search with a sort.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use mayfly_base::Result;

use super::best::{BestKey, NO_PLACE, Places};
use super::ranked::{HitOrder, Ranked};
use super::search::{Cursor, Hit};
use super::{Control, Part};
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
    fn compare_ranks(self, left: (&[u8], &[u8]), right: (&[u8], &[u8])) -> Ordering {
        let keys = match self {
            KeyOrder::Ascending => left.1.cmp(right.1),
            KeyOrder::Descending => right.1.cmp(left.1),
        };
        left.0.cmp(right.0).then(keys)
    }
}

impl HitOrder for KeyOrder {
    fn compare(&self, left: &Hit, right: &Hit) -> Ordering {
        self.compare_ranks((&left.rank, &left.record_key), (&right.rank, &right.record_key))
    }
}

/// The first hits after a cursor.
pub(super) struct SortedTop<'c> {
    size: usize,
    after: Option<&'c Cursor>,
    order: KeyOrder,
    heap: BinaryHeap<Ranked<KeyOrder>>,
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

    /// The rank of the last of the first hits; `None`: there are fewer hits than wanted.
    pub(super) fn last_rank(&self) -> Option<&[u8]> {
        let last = self.heap.peek().filter(|_| self.heap.len() == self.size)?;
        Some(&last.0.rank)
    }

    /// Adds a hit, if it is after the cursor and among the first ones.
    pub(super) fn add(&mut self, hit: Hit) {
        let place = (hit.rank.as_slice(), hit.record_key.as_slice());
        let is_after = |after: &Cursor| {
            self.order.compare_ranks((&after.rank, &after.record_key), place) == Ordering::Less
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
type RankField<'r> = (&'r SortField, Option<(u16, Places)>);

impl<'r> Ranker<'r> {
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub(super) fn new(
        part: &'r Part,
        sort: &'r [SortField],
        table: &FieldTable,
        control: &dyn Control,
    ) -> Result<Ranker<'r>> {
        let field = |field: &'r SortField| {
            let SortKey::Path(path, choice) = &field.by else { return Ok((field, None)) };
            let number = table.find(FieldKind::Values, path, "");
            let key = BestKey::Sort(*choice);
            let Some(number) = number else { return Ok((field, None)) };
            let places = part.segment.best_places(number, key, control)?;
            Ok((field, Some((number, places))))
        };
        Ok(Ranker { part, fields: sort.iter().map(field).collect::<Result<_>>()? })
    }

    /// Whether the first sort field has values in this part.
    pub(super) fn has_places(&self) -> bool {
        matches!(self.fields.first(), Some((_, Some(_))))
    }

    /// The documents in the order of the first sort field, as far as it decides: the number is less
    /// for a document that is before another one.
    pub(super) fn position(&self, document: u32) -> u32 {
        let Some((field, Some((_, places)))) = self.fields.first() else { return 0 };
        let place = places.get(document as usize).copied().unwrap_or(NO_PLACE);
        match place {
            NO_PLACE if field.missing_is_first() => 0,
            NO_PLACE => u32::MAX,
            place if field.is_descending => u32::MAX - 1 - place,
            place => place + 1,
        }
    }

    /// How the key of a document's first sort field compares with that of a rank.
    pub(super) fn compare_first(&self, document: u32, rank: &[u8]) -> Ordering {
        let mut key = Vec::new();
        if let Some((field, places)) = self.fields.first() {
            field.append_value(&mut key, self.key(places.as_ref(), document));
        }
        // No key is the beginning of another one, so this is the order of the keys.
        if rank.starts_with(&key) { Ordering::Equal } else { key.as_slice().cmp(rank) }
    }

    /// The positions that are not before that of a rank.
    pub(super) fn positions_from(&self, rank: &[u8]) -> std::ops::RangeFrom<u32> {
        let Some((field, Some((number, _)))) = self.fields.first() else { return 0.. };
        let Some(column) = self.part.segment.column(usize::from(*number)) else { return 0.. };
        let mut key = Vec::new();
        field.append_value(&mut key, None);
        if key.as_slice() >= rank || rank.starts_with(&key) {
            // The rank is that of a document without a value, or before those.
            if field.missing_is_first() {
                return 0..;
            }
        }
        let is_before = |bytes: &[u8]| {
            key.clear();
            field.append_value(&mut key, Some(bytes));
            key.as_slice() < rank && !rank.starts_with(&key)
        };
        match field.is_descending {
            false => column.partition_point(is_before) as u32 + 1..,
            true => {
                let mut is_before = is_before;
                let from = column.partition_point(|bytes| !is_before(bytes)) as u32;
                // The keys from this place on are before the rank.
                u32::MAX - from..
            }
        }
    }

    /// The key of a document.
    fn key(&self, places: Option<&(u16, Places)>, document: u32) -> Option<&[u8]> {
        let (number, places) = places?;
        let place = *places.get(document as usize).filter(|place| **place != NO_PLACE)?;
        Some(self.part.segment.column(usize::from(*number))?.key(place as usize))
    }

    /// Writes the rank of a document.
    pub(super) fn rank(&self, document: u32, score: f32, rank: &mut Vec<u8>) {
        rank.clear();
        for (field, places) in &self.fields {
            if field.by == SortKey::Score {
                field.append_score(rank, score);
                continue;
            }
            field.append_value(rank, self.key(places.as_ref(), document));
        }
    }
}

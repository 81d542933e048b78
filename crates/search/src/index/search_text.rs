//! Searches of a `search` index: the best documents of each segment, or the first ones of a sort.

use std::ops::ControlFlow;

use mayfly_base::Result;
use tantivy::query::Weight;

use super::plan::{Planner, failed};
use super::search::{Cursor, Hit, Page};
use super::search_vectors::stored_in;
use super::sorted::{KeyOrder, Ranker, SortedTop};
use super::top::Top;
use super::view::{BLOCK, View};
use super::{Control, Index, Part};
use crate::query::{Kind, Pagination, Place, Query, SearchQuery, SortField, checksum, invert};

/// The order in which a search returns its hits.
struct Order {
    /// Empty: by score, the greatest first.
    sort: Vec<SortField>,
    keys: KeyOrder,
    /// The start, if the query has a token.
    start: Option<Cursor>,
}

impl Order {
    fn of(search: &SearchQuery) -> Order {
        let cursor = |place: &Place, rank: Vec<u8>| {
            let score = SortField::greatest_score(&place.rank).unwrap_or(0.0);
            Cursor { score, rank, record_key: place.record_key.clone(), seen: 0 }
        };
        match &search.pagination {
            None => Order { sort: search.sort.clone(), keys: KeyOrder::Ascending, start: None },
            Some(Pagination::After(place)) => {
                let rank = if search.sort.is_empty() { Vec::new() } else { place.rank.clone() };
                let start = Some(cursor(place, rank));
                Order { sort: search.sort.clone(), keys: KeyOrder::Ascending, start }
            }
            Some(Pagination::Before(place)) => {
                let sort = match search.sort.as_slice() {
                    [] => vec![SortField::LEAST_SCORE],
                    sort => invert(sort),
                };
                // The rank of the opposite order has the opposite bytes.
                let rank = place.rank.iter().map(|byte| !byte).collect();
                Order { sort, keys: KeyOrder::Descending, start: Some(cursor(place, rank)) }
            }
        }
    }
}

impl Index {
    pub(super) fn search_text(
        &self,
        query: &Query,
        search: &SearchQuery,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        let view = self.view()?;
        let planner = view.planner(&self.definition, &search.node, control)?;
        let order = Order::of(search);
        let after = after.or(order.start.as_ref());
        let mut hits = match order.sort.as_slice() {
            [] => best(&view, &planner, search, after, size)?,
            _ => first(&view, &planner, search, &order, after, size)?,
        };
        let checksum = checksum(&search.sort);
        for hit in &mut hits {
            hit.order = checksum;
            if query.returns_stored_source() {
                hit.stored_source = stored_in(&view.parts, &hit.record_key);
            }
            if search.explains_scores {
                hit.score_details = Some(view.score_details(&planner, &search.node, hit)?);
            }
        }
        let mut page = Page::new(hits, after, size);
        if order.keys == KeyOrder::Descending {
            page.hits.iter_mut().for_each(|hit| hit.turn_rank(&search.sort));
        }
        Ok(page)
    }

    /// The number of documents that a query of `$search` finds, without hidden ones, and at most
    /// `most`.
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub fn count(&self, query: &Query, most: usize, control: &dyn Control) -> Result<usize> {
        let Kind::Search(search) = &query.kind else { return Ok(0) };
        let view = self.view()?;
        let planner = view.planner(&self.definition, &search.node, control)?;
        view.each_visible(&planner, &search.node, most, |_, _| {})
    }
}

/// The hits with the greatest scores.
fn best(
    view: &View,
    planner: &Planner<'_>,
    search: &SearchQuery,
    after: Option<&Cursor>,
    size: usize,
) -> Result<Vec<Hit>> {
    let mut top = Top::new(size, after);
    for part in &view.parts {
        planner.control.check()?;
        planner.slack.set(1.0);
        let weight = view.weight(planner, &search.node, part)?;
        collect(part, &*weight, &mut top, planner)?;
    }
    Ok(top.into_hits())
}

/// Adds the best documents of a segment.
fn collect(
    part: &Part,
    weight: &dyn Weight,
    top: &mut Top<'_>,
    planner: &Planner<'_>,
) -> Result<()> {
    let Some(postings) = part.segment.postings() else { return Ok(()) };
    let (control, slack) = (planner.control, planner.slack.get());
    let mut ended = None;
    let mut count = 0_usize;
    let mut add = |document: u32, score: f32| {
        count += 1;
        if count.is_multiple_of(BLOCK)
            && let Err(error) = control.check()
        {
            ended = Some(error);
        }
        if ended.is_some() {
            // No document has a greater score, so the search ends soon.
            return f32::INFINITY;
        }
        let ordinal = document as usize;
        if top.may_add(score) && !part.deleted.contains(ordinal) {
            let key = part.segment.key(ordinal);
            if !control.is_hidden(key) {
                top.add(score, key, || part.segment.version(ordinal));
            }
        }
        // Documents with the score of the worst hit are compared by their keys. Sums of floats
        // differ in their last bits. Without bounds no document may be left out.
        match slack.is_finite() {
            true => (top.threshold() * (0.999_999 / slack)).next_down(),
            false => f32::MIN,
        }
    };
    let threshold = f32::MIN;
    weight.for_each_pruning(threshold, &postings.reader, &mut add).map_err(failed)?;
    ended.map_or(Ok(()), Err)?;
    planner.watch.result()
}

/// The first hits of a sort.
fn first(
    view: &View,
    planner: &Planner<'_>,
    search: &SearchQuery,
    order: &Order,
    after: Option<&Cursor>,
    size: usize,
) -> Result<Vec<Hit>> {
    let mut top = SortedTop::new(size, after, order.keys);
    for part in &view.parts {
        planner.control.check()?;
        let ranker = Ranker::new(part, &order.sort, &view.table, planner.control)?;
        let from = after.map_or(0.., |after| ranker.positions_from(&after.rank));
        // The position by the first field, and the document.
        let mut found: Vec<(u32, u32)> = Vec::new();
        view.each(planner, &search.node, part, |ordinal| {
            let position = ranker.position(ordinal as u32);
            if from.contains(&position) {
                found.push((position, ordinal as u32));
            }
            ControlFlow::Continue(())
        })?;
        let weight = view.weight(planner, &search.node, part)?;
        let sorter = PartSorter { planner, part, ranker, weight: &*weight };
        sorter.add(&mut found, size, &mut top)?;
    }
    Ok(top.into_hits())
}

/// Adds the documents of one part to the first hits.
struct PartSorter<'s> {
    planner: &'s Planner<'s>,
    part: &'s Part,
    ranker: Ranker<'s>,
    weight: &'s dyn Weight,
}

impl PartSorter<'_> {
    /// Adds documents, those with the least positions first, until the others cannot be among the
    /// first hits.
    fn add(&self, found: &mut [(u32, u32)], size: usize, top: &mut SortedTop<'_>) -> Result<()> {
        /// Documents that are added at once, at least.
        const LEAST: usize = 64;
        let mut rest = found;
        let mut count = if self.ranker.has_places() { size.max(LEAST) } else { rest.len() };
        while !rest.is_empty() {
            self.planner.control.check()?;
            count = count.min(rest.len());
            if count < rest.len() {
                rest.select_nth_unstable(count);
            }
            let (chunk, others) = rest.split_at_mut(count);
            chunk.sort_unstable_by_key(|found| found.1);
            self.add_chunk(chunk, top)?;
            let next = others.iter().min().map(|found| found.1);
            let is_later = |document: u32| {
                let last = top.last_rank();
                last.is_some_and(|last| self.ranker.compare_first(document, last).is_gt())
            };
            if next.is_none_or(is_later) {
                return Ok(());
            }
            (rest, count) = (others, count.saturating_mul(4));
        }
        Ok(())
    }

    /// Adds documents, which are in the order of their numbers.
    fn add_chunk(&self, chunk: &[(u32, u32)], top: &mut SortedTop<'_>) -> Result<()> {
        let Some(postings) = self.part.segment.postings() else { return Ok(()) };
        let mut scorer = self.weight.scorer(&postings.reader, 1.0).map_err(failed)?;
        let mut rank = Vec::new();
        for (at, (_, document)) in chunk.iter().enumerate() {
            if at.is_multiple_of(BLOCK) {
                self.planner.control.check()?;
            }
            if scorer.doc() < *document {
                scorer.seek(*document);
            }
            let score = if scorer.doc() == *document { scorer.score() } else { 0.0 };
            self.ranker.rank(*document, score, &mut rank);
            let key = self.part.segment.key(*document as usize);
            if top.may_add(&rank) && !self.planner.control.is_hidden(key) {
                top.add(Hit {
                    record_key: key.to_vec(),
                    version_ms: self.part.segment.version(*document as usize),
                    score,
                    stored_source: None,
                    score_details: None,
                    rank: rank.clone(),
                    order: 0,
                });
            }
        }
        self.planner.watch.result()
    }
}

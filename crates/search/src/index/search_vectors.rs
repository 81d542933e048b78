//! Searches for vectors: over the part in memory and over all segments.
//!
//! | segment | approximate search |
//! |---|---|
//! | with a graph, most vectors selected | the graph gives candidates |
//! | with codes | a scan of the codes gives candidates |
//! | others | a scan in full precision |
//!
//! Candidates are compared again in full precision, so scores are exact. Large segments have codes
//! also without quantization, if codes find their nearest vectors.

use mayfly_base::Result;
use mayfly_value::DocBuf;

use super::memory::Memory;
use super::search::{Cursor, Hit, Page};
use super::segment::{Segment, Vectors, float_at};
use super::top::{Candidates, Top};
use super::{Control, Index, Part};
use crate::Definition;
use crate::definition::VectorField;
use crate::filter::{BitSet, Condition};
use crate::query::{Query, VectorQuery};
use crate::vector::codes::Codes;
use crate::vector::graph::Graph;
use crate::vector::kernel::prefetch;

/// Vectors between two calls of [`Control::check`].
const BLOCK: usize = 1_024;

/// The number of candidates, as a multiple of the hits that a search needs.
const OVERSAMPLING: usize = 3;

/// About the number of vectors that a graph compares for each candidate, when all are selected.
const GRAPH_COST: usize = 16;

/// A search on its way through the parts of an index.
pub(super) struct Search<'s> {
    query: &'s VectorQuery,
    /// The place of the field in the definition, and the field.
    field: (usize, &'s VectorField),
    control: &'s dyn Control,
    /// The candidates of each segment; `None`: vectors are compared in full precision.
    candidates: Option<usize>,
    top: Top<'s>,
}

/// The documents of a segment that a search may return.
enum Selection<'s> {
    /// All but these.
    Except(&'s BitSet),
    /// Only these.
    Set(BitSet),
}

impl Selection<'_> {
    #[inline]
    fn contains(&self, ordinal: usize) -> bool {
        match self {
            Selection::Except(deleted) => !deleted.contains(ordinal),
            Selection::Set(set) => set.contains(ordinal),
        }
    }
}

impl Index {
    pub(super) fn search_vectors(
        &self,
        query: &Query,
        vector: &VectorQuery,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        let Some(mut search) = Search::new(&self.definition, vector, after, size, control) else {
            return Ok(Page { hits: Vec::new(), next: None });
        };
        let is_stored = query.returns_stored_source();
        control.check()?;
        let mut newest = Vec::new();
        let parts = {
            let state = self.state.read();
            search.scan_memory(&state.memory)?;
            if is_stored {
                // The documents may leave the memory before they are read.
                let document = |key: &[u8]| state.memory.get(key).cloned();
                newest.extend(
                    search.top.keys().filter_map(|key| Some((key.to_vec(), document(key)?))),
                );
            }
            state.parts.clone()
        };
        for part in &parts {
            search.scan_part(part, None)?;
        }
        let mut hits = search.top.into_hits();
        if is_stored {
            for hit in &mut hits {
                let newest = newest.iter().find(|newest| newest.0 == hit.record_key);
                hit.stored_source = match newest {
                    Some((_, document)) => document.source.clone(),
                    None => stored_in(&parts, &hit.record_key),
                };
            }
        }
        Ok(Page::new(hits, after, size))
    }
}

/// The stored fields of a document in segments.
pub(super) fn stored_in(parts: &[Part], record_key: &[u8]) -> Option<DocBuf> {
    parts.iter().find_map(|part| part.segment.stored(part.find(record_key)?))
}

impl<'s> Search<'s> {
    /// A search for the best `size` documents; `None`: the index has no such vectors.
    pub(super) fn new(
        definition: &'s Definition,
        query: &'s VectorQuery,
        after: Option<&'s Cursor>,
        size: usize,
        control: &'s dyn Control,
    ) -> Option<Search<'s>> {
        let mut fields = definition.vectors.iter().enumerate();
        let field = fields.find(|(_, field)| field.path == query.path)?;
        let needed = after.map_or(0, |after| after.seen).saturating_add(size);
        let needed = needed.saturating_mul(OVERSAMPLING);
        let candidates = query.candidates.map(|candidates| candidates.max(needed));
        Some(Search { query, field, control, candidates, top: Top::new(size, after) })
    }

    /// The hits, the best one first.
    pub(super) fn into_hits(self) -> Vec<Hit> {
        self.top.into_hits()
    }

    fn scan_memory(&mut self, memory: &Memory) -> Result<()> {
        for (at, (key, document)) in memory.iter().enumerate() {
            if at % BLOCK == 0 {
                self.control.check()?;
            }
            let element = self.query.probe.vector.element;
            let Some((data, length)) = document.vector(self.field.0, element) else { continue };
            let score = self.query.probe.score(data, length);
            if self.top.may_add(score)
                && self.query.filter.as_ref().is_none_or(|filter| filter.matches(&document.values))
                && !self.control.is_hidden(key)
            {
                self.top.add(score, key, || document.version_ms);
            }
        }
        Ok(())
    }

    /// Searches a segment. `within`: only these documents, of which none is deleted.
    pub(super) fn scan_part(&mut self, part: &Part, within: Option<BitSet>) -> Result<()> {
        let segment = &*part.segment;
        let (at, field) = self.field;
        let Some(vectors) = segment.vectors(at, field, self.query.probe.vector.element) else {
            return Ok(());
        };
        let selection = match (&self.query.filter, within) {
            (_, Some(within)) => Selection::Set(within),
            (Some(filter), None) => {
                let mut selected = select(segment, filter, self.control)?;
                selected.subtract(&part.deleted);
                Selection::Set(selected)
            }
            (None, None) => Selection::Except(&part.deleted),
        };
        let count = match &selection {
            Selection::Except(deleted) => segment.len() - deleted.count(),
            Selection::Set(set) => set.count(),
        };
        let places = match (self.candidates, vectors.graph, vectors.codes) {
            (Some(size), Some(graph), _) if is_graph_cheaper(size, count, vectors.len()) => {
                self.search_graph(segment, &vectors, graph, &selection, size)?
            }
            // With few vectors, full precision costs no more than codes and a second comparison.
            (Some(size), _, Some(codes)) if size * 2 < count => {
                self.scan_codes(segment, &vectors, codes, (&selection, count), size)?
            }
            _ => {
                let places = selected_places(&vectors, &selection, count);
                return self.compare(segment, &vectors, places);
            }
        };
        self.compare(segment, &vectors, places.into_iter())
    }

    /// Compares the vectors at these places in full precision.
    fn compare(
        &mut self,
        segment: &Segment,
        vectors: &Vectors<'_>,
        places: impl Iterator<Item = usize>,
    ) -> Result<()> {
        for (count, place) in places.enumerate() {
            if count % BLOCK == 0 {
                self.control.check()?;
            }
            let score = self.query.probe.score(vectors.data(place), vectors.length(place));
            if !self.top.may_add(score) {
                continue;
            }
            let ordinal = vectors.ordinal(place);
            let key = segment.key(ordinal);
            if !self.control.is_hidden(key) {
                self.top.add(score, key, || segment.version(ordinal));
            }
        }
        Ok(())
    }

    /// The places of the best of `count` selected vectors, by their codes. Hidden documents are no
    /// candidates.
    fn scan_codes(
        &self,
        segment: &Segment,
        vectors: &Vectors<'_>,
        (codes, steps): (&[u8], &[u8]),
        (selection, count): (&Selection<'_>, usize),
        size: usize,
    ) -> Result<Vec<usize>> {
        let probe = &self.query.probe;
        let own = Codes::of(&probe.floats);
        let dimensions = own.codes.len();
        let mut best = Candidates::new(size);
        for (at, place) in selected_places(vectors, selection, count).enumerate() {
            if at % BLOCK == 0 {
                self.control.check()?;
            }
            let codes = codes.get(place * dimensions..(place + 1) * dimensions).unwrap_or(&[]);
            let score = own.score(probe, codes, float_at(steps, place), vectors.length(place));
            if best.may_add(score) && !self.is_hidden(segment, vectors, place) {
                best.add(score, place);
            }
        }
        Ok(best.into_places())
    }

    /// The places to which the graph leads. Hidden documents are no candidates.
    fn search_graph(
        &self,
        segment: &Segment,
        vectors: &Vectors<'_>,
        graph: Graph<'_>,
        selection: &Selection<'_>,
        size: usize,
    ) -> Result<Vec<usize>> {
        let probe = &self.query.probe;
        let accepts = |place: usize| {
            selection.contains(vectors.ordinal(place)) && !self.is_hidden(segment, vectors, place)
        };
        let check = || self.control.check();
        let mut places = match vectors.codes {
            Some((codes, steps)) => {
                let own = Codes::of(&probe.floats);
                let dimensions = own.codes.len();
                let score = |place: usize| {
                    let codes = codes.get(place * dimensions..(place + 1) * dimensions);
                    let (step, length) = (float_at(steps, place), vectors.length(place));
                    own.score(probe, codes.unwrap_or(&[]), step, length)
                };
                let load = |place: usize| {
                    let end = (place + 1) * dimensions;
                    prefetch(codes.get(place * dimensions..end).unwrap_or(&[]));
                    prefetch(steps.get(place * 4..place * 4 + 4).unwrap_or(&[]));
                    vectors.prefetch_length(place);
                };
                graph.search(size, score, load, accepts, check)?
            }
            None => {
                let score = |place| probe.score(vectors.data(place), vectors.length(place));
                let load = |place| prefetch(vectors.data(place));
                graph.search(size, score, load, accepts, check)?
            }
        };
        places.sort_unstable();
        Ok(places)
    }

    fn is_hidden(&self, segment: &Segment, vectors: &Vectors<'_>, place: usize) -> bool {
        self.control.is_hidden(segment.key(vectors.ordinal(place)))
    }
}

/// Whether a graph compares fewer vectors than a scan of the selected ones: the fewer are selected,
/// the more others the graph passes on its way to them.
fn is_graph_cheaper(size: usize, selected: usize, vectors: usize) -> bool {
    let cost = (size as u64).saturating_mul(GRAPH_COST as u64).saturating_mul(vectors as u64);
    (selected as u64).saturating_mul(selected as u64) > cost
}

/// The places of the vectors of selected documents, of which there are `count`.
fn selected_places<'s>(
    vectors: &'s Vectors<'_>,
    selection: &'s Selection<'_>,
    count: usize,
) -> Box<dyn Iterator<Item = usize> + 's> {
    match selection {
        Selection::Set(set) if count < vectors.len() / 8 => {
            let ordinals = std::iter::successors(set.next(0), |ordinal| set.next(ordinal + 1));
            Box::new(ordinals.filter_map(|ordinal| vectors.find(ordinal)))
        }
        _ => {
            Box::new((0..vectors.len()).filter(|place| selection.contains(vectors.ordinal(*place))))
        }
    }
}

/// The documents of a segment that a filter selects.
fn select(segment: &Segment, filter: &Condition, control: &dyn Control) -> Result<BitSet> {
    let fields = filter.fields();
    let columns: Vec<_> = (0..fields).map(|field| segment.column(field)).collect();
    filter.select(&columns, segment.len(), &|| control.check())
}

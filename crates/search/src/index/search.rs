//! Searches for vectors: over the part in memory and over all segments.
//!
//! A segment without codes is scanned in full precision. With codes, an approximate search scans
//! the codes, and compares its candidates again in full precision.

use mayfly_base::Result;

use super::segment::{Segment, Vectors, float_at};
use super::top::{Candidates, Top};
use super::{Control, Index, Part};
use crate::definition::VectorField;
use crate::filter::{BitSet, Condition};
use crate::query::{Kind, Query, VectorQuery};
use crate::vector::codes::Codes;

/// A document that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The key by which the caller reads the document.
    pub record_key: Vec<u8>,
    /// The time of the version that was found.
    pub version_ms: i64,
    /// The score, greater for more similar vectors.
    pub score: f32,
}

/// The end of a page: what is needed to find the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    pub(super) score: f32,
    pub(super) record_key: Vec<u8>,
    /// The number of hits up to here.
    pub(super) seen: usize,
}

/// Some hits, the best ones first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The hits, without those of earlier pages.
    pub hits: Vec<Hit>,
    /// The way to the next page. `None`: there are no more hits.
    pub next: Option<Cursor>,
}

/// Vectors between two calls of [`Control::check`].
const BLOCK: usize = 1_024;

/// The number of candidates, as a multiple of the hits that a search needs.
const OVERSAMPLING: usize = 3;

/// A search on its way through the parts of an index.
struct Search<'s> {
    query: &'s VectorQuery,
    /// The place of the field in the definition, and the field.
    field: (usize, &'s VectorField),
    control: &'s dyn Control,
    /// The candidates of each segment; `None`: vectors are compared in full precision.
    candidates: Option<usize>,
    top: Top<'s>,
}

impl Index {
    /// The best hits of a query after a cursor, at most `size`.
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub fn search(
        &self,
        query: &Query,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        match &query.kind {
            Kind::Vector(vector) => self.search_vectors(vector, after, size, control),
            Kind::Search(node) => self.search_text(node, after, size, control),
        }
    }

    fn search_vectors(
        &self,
        vector: &VectorQuery,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        let fields = self.definition.vectors.iter().enumerate();
        let Some(field) = fields.into_iter().find(|(_, field)| field.path == vector.path) else {
            return Ok(Page { hits: Vec::new(), next: None });
        };
        let seen = after.map_or(0, |after| after.seen);
        let needed = (seen + size).saturating_mul(OVERSAMPLING);
        let candidates = vector.candidates.map(|candidates| candidates.max(needed));
        let top = Top::new(size, after);
        let mut search = Search { query: vector, field, control, candidates, top };
        control.check()?;
        let parts = {
            let state = self.state.read();
            search.scan_memory(&state.memory);
            state.parts.clone()
        };
        for part in &parts {
            search.scan_part(part)?;
        }
        let hits = search.top.into_hits();
        let next = hits.last().filter(|_| hits.len() == size).map(|last| Cursor {
            score: last.score,
            record_key: last.record_key.clone(),
            seen: seen + hits.len(),
        });
        Ok(Page { hits, next })
    }
}

impl Search<'_> {
    fn scan_memory(&mut self, memory: &super::memory::Memory) {
        for (key, document) in memory.iter() {
            let Some((data, length)) =
                document.vector(self.field.0, self.query.probe.vector.element)
            else {
                continue;
            };
            let score = self.query.probe.score(data, length);
            if self.top.may_add(score)
                && self.query.filter.as_ref().is_none_or(|filter| filter.matches(&document.values))
                && !self.control.is_hidden(key)
            {
                self.top.add(score, key, || document.version_ms);
            }
        }
    }

    fn scan_part(&mut self, part: &Part) -> Result<()> {
        let segment = &*part.segment;
        let (at, field) = self.field;
        let Some(vectors) = segment.vectors(at, field, self.query.probe.vector.element) else {
            return Ok(());
        };
        let selected = match &self.query.filter {
            Some(filter) => {
                let mut selected = select(segment, filter);
                selected.subtract(&part.deleted);
                selected
            }
            None => {
                let mut selected = BitSet::new(segment.len());
                selected.fill();
                selected.subtract(&part.deleted);
                selected
            }
        };
        match (self.candidates, vectors.codes) {
            // With few vectors, full precision costs no more than codes and a second comparison.
            (Some(count), Some(codes)) if count * 2 < vectors.len() => {
                let places = self.scan_codes(&vectors, codes, &selected, count)?;
                self.compare(segment, &vectors, places.into_iter())
            }
            _ => {
                let places =
                    (0..vectors.len()).filter(|place| selected.contains(vectors.ordinal(*place)));
                self.compare(segment, &vectors, places)
            }
        }
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

    /// The places of the best vectors by their codes.
    fn scan_codes(
        &self,
        vectors: &Vectors<'_>,
        (codes, steps): (&[u8], &[u8]),
        selected: &BitSet,
        count: usize,
    ) -> Result<Vec<usize>> {
        let probe = &self.query.probe;
        let own = Codes::of(&probe.floats);
        let mut best = Candidates::new(count);
        for (place, codes) in codes.chunks_exact(own.codes.len()).enumerate() {
            if place % BLOCK == 0 {
                self.control.check()?;
            }
            if selected.contains(vectors.ordinal(place)) {
                let score = own.score(probe, codes, float_at(steps, place), vectors.length(place));
                best.add(score, place);
            }
        }
        Ok(best.into_places())
    }
}

/// The documents of a segment that a filter selects.
fn select(segment: &Segment, filter: &Condition) -> BitSet {
    let fields = filter.fields();
    let columns: Vec<_> = (0..fields).map(|field| segment.column(field)).collect();
    filter.select(&columns, segment.len())
}

//! The parts of an index at one moment, and what all queries on them share.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, Result};
use tantivy::query::{EnableScoring, Weight};
use tantivy::{Index as SchemaIndex, ReloadPolicy, Searcher, TERMINATED};

use super::fresh::Fresh;
use super::plan::{Planner, failed};
use super::search_vectors::Search;
use super::{Control, Index, Part};
use crate::Definition;
use crate::fields::FieldTable;
use crate::filter::BitSet;
use crate::limits::MIN_DOCUMENTS_PREPARED;
use crate::query::{Nearest, Node};
use crate::text::postings::schema;

/// Documents of a segment with their scores, in the order of their ordinals.
pub(super) type Found = Arc<Vec<(u32, f32)>>;

/// Documents between two calls of [`Control::check`].
pub(super) const BLOCK: usize = 4_096;

/// The parts of an index: segments of the folder, then those of the memory.
pub(super) struct View {
    pub(super) parts: Vec<Part>,
    pub(super) table: Arc<FieldTable>,
    /// A searcher without documents. Queries take the schema from it.
    searcher: Searcher,
}

impl Index {
    /// The segments of the folder and of the memory, after all applied changes are in one.
    pub(super) fn view(&self) -> Result<View> {
        self.is_searched.store(true, Ordering::Relaxed);
        let collect = |state: &super::State| -> Vec<Part> {
            let fresh = state.fresh.iter().flat_map(Fresh::parts);
            state.parts.iter().chain(fresh).cloned().collect()
        };
        {
            let state = self.state.read();
            if !state.fresh.as_ref().is_some_and(Fresh::is_pending) {
                return self.view_of(collect(&state), self.table());
            }
        }
        let mut state = self.state.write();
        let table = self.table();
        self.write_fresh(&mut state, &table)?;
        self.view_of(collect(&state), table)
    }

    /// Prepares the index for its next search, which would otherwise write a segment of the
    /// documents that were applied since the last one. Few documents are left to the search: it
    /// writes them fast, and more may follow.
    ///
    /// # Errors
    /// 1 InternalError if the segment cannot be written.
    pub fn prepare(&self) -> Result<()> {
        let waiting = self.state.read().fresh.as_ref().map_or(0, Fresh::pending);
        if waiting < MIN_DOCUMENTS_PREPARED {
            return Ok(());
        }
        let mut state = self.state.write();
        self.write_fresh(&mut state, &self.table())
    }

    /// Writes the documents that are in no segment as one in memory.
    fn write_fresh(&self, state: &mut super::State, table: &Arc<FieldTable>) -> Result<()> {
        let super::State { fresh, memory, .. } = state;
        let Some(fresh) = fresh else { return Ok(()) };
        let written = fresh.write(memory, &self.definition, table);
        written.map_err(|error| Error::internal(error.to_string()))
    }

    fn view_of(&self, parts: Vec<Part>, table: Arc<FieldTable>) -> Result<View> {
        let mut known = self.searcher.lock();
        if let Some((of, searcher)) = &*known
            && Arc::ptr_eq(of, &table)
        {
            return Ok(View { parts, table, searcher: searcher.clone() });
        }
        let index = SchemaIndex::create_in_ram(schema(&table));
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into();
        let reader: tantivy::IndexReader = reader.map_err(failed)?;
        let searcher = reader.searcher();
        *known = Some((table.clone(), searcher.clone()));
        Ok(View { parts, table, searcher })
    }
}

impl View {
    /// A planner for a tree of operators. Searches for vectors are done here, since their hits are
    /// the best ones of all segments.
    pub(super) fn planner<'p>(
        &'p self,
        definition: &'p Definition,
        node: &Node,
        control: &'p dyn Control,
    ) -> Result<Planner<'p>> {
        let segments = self.parts.iter().map(|part| part.segment.clone()).collect();
        let mut planner = Planner::new(definition, &self.table, segments, control);
        let node = match node {
            Node::Scored(node, _) => node,
            node => node,
        };
        if let Node::Nearest(nearest) = node {
            planner.nearest = self.find_nearest(nearest, &planner)?;
        }
        Ok(planner)
    }

    /// The documents of each part that a search for vectors finds, with their scores. The scores of
    /// several paths are added.
    fn find_nearest(&self, nearest: &Nearest, planner: &Planner<'_>) -> Result<Vec<Found>> {
        let mut found: Vec<BTreeMap<u32, f32>> = vec![BTreeMap::new(); self.parts.len()];
        for query in &nearest.queries {
            let (definition, control) = (planner.definition, planner.control);
            let Some(mut search) = Search::new(definition, query, None, nearest.limit, control)
            else {
                continue;
            };
            for part in &self.parts {
                let within = match &nearest.filter {
                    Some(filter) => Some(self.matching(planner, filter, part)?),
                    None => None,
                };
                search.scan_part(part, within)?;
            }
            for hit in search.into_hits() {
                for (part, found) in self.parts.iter().zip(&mut found) {
                    if let Some(ordinal) = part.find(&hit.record_key) {
                        *found.entry(ordinal as u32).or_default() += hit.score;
                    }
                }
            }
        }
        Ok(found.into_iter().map(|found| Arc::new(found.into_iter().collect())).collect())
    }

    /// The query of a part, with scores.
    pub(super) fn weight(
        &self,
        planner: &Planner<'_>,
        node: &Node,
        part: &Part,
    ) -> Result<Box<dyn Weight>> {
        let query = planner.query(node, &part.segment)?;
        query.weight(EnableScoring::enabled_from_searcher(&self.searcher)).map_err(failed)
    }

    /// The documents of a part that match and were not deleted. Hidden ones are among them.
    pub(super) fn matching(
        &self,
        planner: &Planner<'_>,
        node: &Node,
        part: &Part,
    ) -> Result<BitSet> {
        let mut matching = BitSet::new(part.segment.len());
        self.each(planner, node, part, |ordinal| {
            matching.insert(ordinal);
            ControlFlow::Continue(())
        })?;
        Ok(matching)
    }

    /// Visits the documents of a part that match and were not deleted, until the visitor ends it.
    pub(super) fn each(
        &self,
        planner: &Planner<'_>,
        node: &Node,
        part: &Part,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some(postings) = part.segment.postings() else { return Ok(()) };
        let query = planner.query(node, &part.segment)?;
        let scoring = EnableScoring::disabled_from_searcher(&self.searcher);
        let weight = query.weight(scoring).map_err(failed)?;
        let mut documents = weight.scorer(&postings.reader, 1.0).map_err(failed)?;
        let mut count = 0_usize;
        while documents.doc() != TERMINATED {
            if count.is_multiple_of(BLOCK) {
                planner.control.check()?;
            }
            count += 1;
            let ordinal = documents.doc() as usize;
            if !part.deleted.contains(ordinal) && visit(ordinal).is_break() {
                break;
            }
            documents.advance();
        }
        planner.watch.result()
    }

    /// Visits the documents that match and are not hidden, at most `most` of all parts. Returns
    /// their number.
    pub(super) fn each_visible(
        &self,
        planner: &Planner<'_>,
        node: &Node,
        most: usize,
        mut visit: impl FnMut(usize, usize),
    ) -> Result<usize> {
        let mut count = 0;
        for (at, part) in self.parts.iter().enumerate() {
            if count >= most {
                break;
            }
            self.each(planner, node, part, |ordinal| {
                if !planner.control.is_hidden(part.segment.key(ordinal)) {
                    visit(at, ordinal);
                    count += 1;
                }
                if count >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        Ok(count)
    }
}

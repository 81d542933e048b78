//! Searches of a `search` index: the query of each segment, and its best documents.

use std::sync::Arc;

use mayfly_base::{Error, Result};
use tantivy::query::{EnableScoring, Weight};
use tantivy::{Index as SchemaIndex, ReloadPolicy, Searcher};

use super::fresh::Fresh;
use super::plan::{Planner, failed};
use super::top::Top;
use super::{Control, Cursor, Index, Page, Part};
use crate::fields::FieldTable;
use crate::query::{Kind, Node, Query};
use crate::text::postings::schema;

/// Documents between two calls of [`Control::check`].
const BLOCK: usize = 4_096;

impl Index {
    /// The segments of the folder and of the memory, after all applied changes are in one.
    fn all_parts(&self) -> Result<(Vec<Part>, Arc<FieldTable>)> {
        let collect = |state: &super::State| {
            let fresh = state.fresh.iter().flat_map(Fresh::parts);
            state.parts.iter().chain(fresh).cloned().collect()
        };
        {
            let state = self.state.read();
            if !state.fresh.as_ref().is_some_and(Fresh::is_pending) {
                return Ok((collect(&state), self.table()));
            }
        }
        let mut state = self.state.write();
        let table = self.table();
        let super::State { fresh, memory, .. } = &mut *state;
        if let Some(fresh) = fresh {
            let written = fresh.write(memory, &self.definition, &table);
            written.map_err(|error| Error::internal(error.to_string()))?;
        }
        Ok((collect(&state), table))
    }

    pub(super) fn search_text(
        &self,
        node: &Node,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        let (parts, table) = self.all_parts()?;
        let segments = parts.iter().map(|part| &*part.segment).collect();
        let planner = Planner::new(&self.definition, &table, segments);
        let searcher = searcher(&table)?;
        let mut top = Top::new(size, after);
        for part in &parts {
            control.check()?;
            let query = planner.build(node, &part.segment)?;
            let weight =
                query.weight(EnableScoring::enabled_from_searcher(&searcher)).map_err(failed)?;
            collect(part, &*weight, &mut top, control)?;
        }
        let hits = top.into_hits();
        let seen = after.map_or(0, |after| after.seen) + hits.len();
        let next = hits.last().filter(|_| hits.len() == size).map(|last| Cursor {
            score: last.score,
            record_key: last.record_key.clone(),
            seen,
        });
        Ok(Page { hits, next })
    }

    /// The number of documents that a query of `$search` finds, without hidden ones, and at most
    /// `most`.
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub fn count(&self, query: &Query, most: usize, control: &dyn Control) -> Result<usize> {
        let Kind::Search(node) = &query.kind else { return Ok(0) };
        let (parts, table) = self.all_parts()?;
        let segments = parts.iter().map(|part| &*part.segment).collect();
        let planner = Planner::new(&self.definition, &table, segments);
        let searcher = searcher(&table)?;
        let mut count = 0;
        for part in &parts {
            let Some(postings) = part.segment.postings() else { continue };
            let query = planner.build(node, &part.segment)?;
            let scoring = EnableScoring::disabled_from_searcher(&searcher);
            let weight = query.weight(scoring).map_err(failed)?;
            let mut documents = weight.scorer(&postings.reader, 1.0).map_err(failed)?;
            while documents.doc() != tantivy::TERMINATED && count < most {
                let ordinal = documents.doc() as usize;
                if ordinal.is_multiple_of(BLOCK) {
                    control.check()?;
                }
                let is_counted = !part.deleted.contains(ordinal)
                    && !control.is_hidden(part.segment.key(ordinal));
                count += usize::from(is_counted);
                documents.advance();
            }
        }
        Ok(count)
    }
}

/// Adds the best documents of a segment.
fn collect(
    part: &Part,
    weight: &dyn Weight,
    top: &mut Top<'_>,
    control: &dyn Control,
) -> Result<()> {
    let Some(postings) = part.segment.postings() else { return Ok(()) };
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
        // Documents with the score of the worst hit are compared by their keys.
        top.threshold().next_down()
    };
    let threshold = f32::MIN;
    weight.for_each_pruning(threshold, &postings.reader, &mut add).map_err(failed)?;
    ended.map_or(Ok(()), Err)
}

/// A searcher without documents. Queries take the schema from it.
fn searcher(table: &FieldTable) -> Result<Searcher> {
    let index = SchemaIndex::create_in_ram(schema(table));
    let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into();
    let reader: tantivy::IndexReader = reader.map_err(failed)?;
    Ok(reader.searcher())
}

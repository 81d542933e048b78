//! `vectorSearch` and `knnBeta`: the documents with the nearest vectors. Both stand alone: no other
//! operator contains them.

use mayfly_base::Result;

use super::options::strings;
use super::{Nearest, Node, Reader, SearchQuery};
use crate::fault::refused;
use crate::limits::MAX_CANDIDATES;
use crate::query::VectorQuery;
use crate::query::vector_search::{
    check_unsupported, check_vector, parse_candidates, parse_limit, parse_vector,
};
use crate::read::{Fields, UNBOUNDED};
use crate::vector::score::Probe;

impl Reader<'_> {
    pub(super) fn nearest(&mut self, fields: &mut Fields<'_>, depth: usize) -> Result<Node> {
        if depth > 0 {
            return Err(fields.path().refuse("vectorSearch is not allowed to be nested"));
        }
        check_unsupported(fields)?;
        let paths = strings(fields, "path")?;
        if paths.len() != 1 {
            return Err(fields.path().refuse("vectorSearch can have only one field path"));
        }
        let candidates = parse_candidates(fields)?;
        let limit = parse_limit(fields, candidates)?;
        let vector = parse_vector(fields, "queryVector")?;
        let filter = self.filter(fields)?;
        let path = paths.into_iter().next().unwrap_or_default();
        let Some(field) = self.definition.vector(&path) else {
            return Err(refused(format!("{path} must be indexed as \"vector\".")));
        };
        check_vector(field, &vector)?;
        let query = VectorQuery {
            probe: Probe::new(field.similarity, vector),
            path,
            filter: None,
            candidates: candidates.map(|number| number as usize),
        };
        Ok(Node::Nearest(Box::new(Nearest { queries: vec![query], filter, limit })))
    }

    pub(super) fn knn_beta(&mut self, fields: &mut Fields<'_>, depth: usize) -> Result<Node> {
        if depth > 0 {
            return Err(fields.path().refuse("knnBeta is not allowed to be nested"));
        }
        let paths = strings(fields, "path")?;
        if !fields.has("vector") {
            return Err(fields.path_of("vector").refuse("is required"));
        }
        let vector = parse_vector(fields, "vector")?;
        let limit = fields.whole("k", 1..=UNBOUNDED)?;
        let limit = fields.required("k", limit)?;
        let filter = self.filter(fields)?;
        let mut queries = Vec::new();
        for path in paths {
            let Some(field) = self.definition.vector(&path) else {
                return Err(refused(format!("{path} is not indexed as knnVector")));
            };
            check_vector(field, &vector)?;
            queries.push(VectorQuery {
                probe: Probe::new(field.similarity, vector.clone()),
                path,
                filter: None,
                candidates: Some(limit.min(MAX_CANDIDATES) as usize),
            });
        }
        Ok(Node::Nearest(Box::new(Nearest { queries, filter, limit: limit as usize })))
    }

    /// `filter`: an operator.
    fn filter(&mut self, fields: &mut Fields<'_>) -> Result<Option<Node>> {
        let Some(document) = fields.document("filter")? else { return Ok(None) };
        let mut members = Fields::new(document, fields.path_of("filter"))?;
        let node = self.operator(&mut members, 1)?;
        members.finish()?;
        Ok(Some(node))
    }
}

/// Refuses the options that are not possible for a search for vectors.
pub(super) fn check_options(search: &SearchQuery, fields: &Fields<'_>) -> Result<()> {
    let node = match &search.node {
        Node::Scored(node, _) => node,
        node => node,
    };
    if !matches!(node, Node::Nearest(_)) {
        return Ok(());
    }
    let is_set = |name: &str| fields.has(name);
    if is_set("sort") {
        let text = "Sort option is not supported with the 'vectorSearch' operator. Use $sort stage \
                    instead.";
        return Err(fields.path().refuse(text));
    }
    if search.pagination.is_some() {
        let text = "Pagination is not supported with the 'vectorSearch' operator. Use $skip and \
                    $limit stages instead.";
        return Err(fields.path().refuse(text));
    }
    if search.highlight.is_some() {
        let text = "Highlighting is not supported with the 'vectorSearch' operator.";
        return Err(fields.path().refuse(text));
    }
    if is_set("tracking") {
        let text = "Term tracking is not supported with the 'vectorSearch' operator.";
        return Err(fields.path().refuse(text));
    }
    Ok(())
}

//! The output of `$planCacheStats`.

use mayfly_base::Result;
use mayfly_mql::{Projection, SortPattern};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::node::number;
use super::{Explained, Purpose, Verbosity, filter, tree};
use crate::exec::NodeStats;
use crate::language::CanonicalQuery;
use crate::memory::Budget;
use crate::plan::{CachedPlan, Plan, PlanCache, PlanKey, index_filter_set};

/// Approximate memory of an entry beyond its documents.
const ENTRY_BYTES: usize = 1024;

/// The cached plans of a collection, one document for each.
///
/// # Errors
/// None in practice.
pub fn cached_plans(collection: &Collection, host: &str) -> Result<Vec<DocBuf>> {
    let mut entries = PlanCache::entries(collection);
    // Entries from before a change of indexes are outdated.
    entries.retain(|entry| match &entry.from {
        Some((query, _)) => PlanKey::of(entry.shape, query, Some(collection)) == entry.key,
        None => true,
    });
    entries.sort_by_key(|entry| (entry.created_ms, entry.key));
    Ok(entries.iter().map(|entry| shown(entry, collection, host)).collect())
}

fn shown(entry: &CachedPlan, collection: &Collection, host: &str) -> DocBuf {
    let shape = entry.shape.to_string();
    let mut out = DocBuilder::new();
    out.append("version", "1");
    out.append("queryHash", shape.as_str()).append("planCacheShapeHash", shape.as_str());
    out.append("planCacheKey", entry.key.to_string().as_str());
    out.append("isActive", entry.active).append("works", number(entry.works));
    out.append("worksType", "works").append("timeOfCreation", RawValue::Date(entry.created_ms));
    let (mut filtered, before) = (false, out.len());
    if let Some((query, plan)) = &entry.from {
        write_from(query, plan, &mut out);
        filtered = index_filter_set(collection, query);
        out.start_array("creationExecStats").end();
        out.start_array("candidatePlanScores");
        entry.scores.iter().for_each(|score| {
            out.push(*score);
        });
        out.end();
    }
    let size = out.len() - before + ENTRY_BYTES;
    out.append("indexFilterSet", filtered);
    out.append("estimatedSizeBytes", number(size as u64)).append("host", host);
    out.finish()
}

/// Appends the query that created an entry, and its plan.
fn write_from(query: &CanonicalQuery, plan: &Plan, out: &mut DocBuilder) {
    let conditions = query.matcher.root().conditions();
    let sort = query.sort.as_ref().map_or_else(DocBuf::empty, SortPattern::to_document);
    // A plan depends only on the paths that a projection needs.
    let needed = query.projection.as_ref().and_then(Projection::needed_paths);
    let mut projection = DocBuilder::new();
    for path in needed.unwrap_or_default() {
        projection.append(&path, 1);
    }
    let projection = projection.finish();
    let filter = as_sent(&conditions);
    out.start_document("createdFromQuery");
    out.append("query", &filter).append("sort", &sort).append("projection", &projection);
    if let Some(collation) = &query.collation {
        out.append("collation", collation.document());
    }
    out.end();
    let explained = Explained {
        namespace: "",
        projection: query.projection.is_some().then_some(projection.as_doc()),
        purpose: Purpose::Find,
        verbosity: Verbosity::QueryPlanner,
        settings: None,
        budget: Budget::default(),
    };
    let of = tree::ExplainContext {
        query,
        explained: &explained,
        conditions: &conditions,
        clustered: false,
        only_keys: false,
    };
    out.start_document("cachedPlan");
    tree::tree(&of, plan, &NodeStats::default()).write_plan(out);
    out.end();
}

/// Conditions with equalities in the short form that clients use.
fn as_sent(conditions: &[DocBuf]) -> DocBuf {
    let joined = filter::joined(conditions);
    let [only] = conditions else { return joined };
    match filter::parts(only.as_doc()) {
        Some((path, "$eq", value))
            if !path.is_empty()
                && !matches!(value, RawValue::Document(_) | RawValue::Regex { .. }) =>
        {
            let mut out = DocBuilder::new();
            out.append(path, value);
            out.finish()
        }
        _ => joined,
    }
}

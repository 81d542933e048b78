//! Explaining: the plan of an operation as a tree of stages, and what running it looked at.
//!
//! 1. The filter prints itself in its explained form ([`mayfly_mql::matcher::Expr::conditions`]).
//! 2. The real planner plans; nothing in here chooses.
//! 3. When statistics are wanted, the plan runs and its results are thrown away. Nothing is ever written.
//! 4. The plan becomes a tree ([`tree`]) with bounds as text ([`bounds`]), which is written without or with its counts
//!    ([`node`]).

mod bounds;
mod filter;
mod node;
mod text;
mod tree;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{OpCtx, Result};
use mayfly_expr::{Scope, Scripts};
use mayfly_mql::Matcher;
use mayfly_storage::{Collection, Store};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use self::node::{Node, number};
use crate::exec::{Executor, Flow};
use crate::language::{CanonicalQuery, PlanShape};
use crate::memory::{Budget, SortStats};
use crate::plan::Access;
use crate::plan::allowed::index_filter_set;
use crate::plan::plan_key::PlanKey;

/// What happens with the documents that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They are shown.
    Find,
    /// They are counted.
    Count,
    /// Stages behind take them without looking at them.
    Keys,
    /// They are changed.
    Update {
        /// All of them.
        multi: bool,
        /// One is inserted where there is none.
        upsert: bool,
    },
    /// They are deleted.
    Delete {
        /// All of them.
        multi: bool,
    },
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// The plan.
    QueryPlanner,
    /// What running it looked at, too.
    ExecutionStats,
    /// And of the other plans; there is never more than one.
    AllPlansExecution,
}

/// What is explained, as it was sent.
pub struct Explained<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// The filter.
    pub filter: RawDoc<'a>,
    /// The order, when one is asked for.
    pub sort: Option<RawDoc<'a>>,
    /// The projection, when there is one.
    pub projection: Option<RawDoc<'a>>,
    /// What it is for.
    pub purpose: Purpose,
    /// How much to tell.
    pub verbosity: Verbosity,
    /// The query settings that apply to it.
    pub settings: Option<RawDoc<'a>>,
    /// The memory that it may use.
    pub budget: Budget,
}

/// What a run looked at.
#[derive(Clone, Debug, Default)]
struct Counted {
    keys: u64,
    documents: u64,
    /// Documents that the filter let through, as far as the run came.
    matched: u64,
    /// The scan came to its end.
    at_end: bool,
    millis: i64,
    /// The same of each alternative of a `$or`.
    branches: Vec<Counted>,
    /// What its sort did.
    sort: SortStats,
}

/// A filter with every condition spelled out, as plans and the profiler show it.
///
/// One that cannot be parsed by itself (it names variables of its command) stays as it was sent.
pub fn normalized_filter(filter: RawDoc<'_>) -> DocBuf {
    let scope = Scope::default().with_text_index().with_scripts(Scripts::InFilters);
    match Matcher::parse_query(filter, &scope) {
        Ok(matcher) => matcher.root().to_document(),
        Err(_) => filter.to_owned(),
    }
}

/// Writes `queryPlanner`, and `executionStats` when they are wanted; gives the number of results.
///
/// # Errors
/// Those of planning and, when it runs, of the executor.
pub fn explain(
    store: &Store,
    op: &OpCtx,
    collection: Option<Arc<Collection>>,
    make_query: &dyn Fn() -> Result<CanonicalQuery>,
    explained: &Explained<'_>,
    out: &mut DocBuilder,
) -> Result<u64> {
    let query = make_query()?;
    let conditions = query.matcher.root().conditions();
    let Some(collection) = collection else {
        let node = tree::nothing(explained, &query);
        write_planner(explained, &query, &conditions, None, &node, out);
        write_stats(explained, &Counted::default(), &node, out);
        return Ok(0);
    };
    let fast_count =
        explained.purpose == Purpose::Count && explained.filter.is_empty() && query.hint.is_none();
    let mut executor = Executor::new(collection.clone(), query)?;
    executor.use_budget(explained.budget.clone());
    op.update_info(|info| info.plan_summary = executor.plan().summary());
    let mut counted = Counted { at_end: true, ..Counted::default() };
    if explained.verbosity >= Verbosity::ExecutionStats {
        counted = match fast_count {
            true => Counted {
                matched: u64::try_from(store.count_documents(op, &collection)?).unwrap_or(0),
                at_end: true,
                millis: op.elapsed_micros() / 1000,
                ..Counted::default()
            },
            false => run(store, op, &mut executor, explained)?,
        };
        if executor.plan().blocking_sort
            && (executor.query().limit.is_some() || executor.query().skip > 0)
        {
            counted.matched = matches_without_order(store, op, &collection, make_query()?)?;
        }
    }
    let node = match fast_count {
        true => fast_count_node(executor.query(), &counted),
        false => tree::tree(executor.plan(), executor.query(), explained, &conditions, &counted),
    };
    write_planner(explained, executor.query(), &conditions, Some(&collection), &node, out);
    write_stats(explained, &counted, &node, out);
    Ok(node.returned)
}

/// Runs the plan and throws its results away.
fn run(
    store: &Store,
    op: &OpCtx,
    executor: &mut Executor,
    explained: &Explained<'_>,
) -> Result<Counted> {
    let first_only = matches!(
        explained.purpose,
        Purpose::Update { multi: false, .. } | Purpose::Delete { multi: false }
    );
    if matches!(explained.purpose, Purpose::Count | Purpose::Keys) {
        executor.count_only();
    }
    let mut shown = 0;
    while !(executor.is_done() || first_only && shown > 0) {
        executor.run(store, op, &mut |_, _, _| {
            shown += 1;
            Ok(if first_only { Flow::Pause } else { Flow::More })
        })?;
    }
    let documents = op.docs_examined.load(Ordering::Relaxed);
    let mut keys = op.keys_examined.load(Ordering::Relaxed);
    let query = executor.query();
    // Each record that is read by a range of _id stands for its key.
    if let Access::Records { ranges, .. } = &executor.plan().access
        && (*ranges != [mayfly_storage::whole_range()] || is_by_id(executor))
    {
        keys = documents;
    }
    let cut_off = first_only && shown > 0 || query.limit.is_some_and(|limit| shown >= limit);
    let branches = executor.branches().iter().map(|branch| {
        let (keys, documents, matched, at_end) = branch.counted();
        Counted { keys, documents, matched, at_end, ..Counted::default() }
    });
    Ok(Counted {
        branches: branches.collect(),
        sort: executor.sort_stats().unwrap_or_default(),
        keys,
        documents,
        matched: if shown > 0 { shown + query.skip } else { 0 },
        at_end: !cut_off || executor.plan().blocking_sort,
        millis: op.elapsed_micros() / 1000,
    })
}

/// Whether the order of `_id` was asked for.
fn is_by_id(executor: &Executor) -> bool {
    tree::asks_for_id(executor.plan(), executor.query())
}

/// How many documents go into a sort whose end is cut off.
fn matches_without_order(
    store: &Store,
    op: &OpCtx,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
) -> Result<u64> {
    let query = CanonicalQuery { sort: None, skip: 0, limit: None, ..query };
    Executor::new(collection.clone(), query)?.count(store, op)
}

/// A count of everything looks at nothing.
fn fast_count_node(query: &CanonicalQuery, counted: &Counted) -> Node {
    let skipped = counted.matched.min(query.skip);
    let behind = counted.matched - skipped;
    let result = query.limit.map_or(behind, |limit| behind.min(limit));
    Node::new("RECORD_STORE_FAST_COUNT").did(0, 0, true).counting(|out| {
        out.append("nCounted", number(result)).append("nSkipped", number(skipped));
    })
}

fn write_planner(
    explained: &Explained<'_>,
    query: &CanonicalQuery,
    conditions: &[DocBuf],
    collection: Option<&Collection>,
    node: &Node,
    out: &mut DocBuilder,
) {
    out.start_document("queryPlanner");
    out.append("namespace", explained.namespace);
    let filtered = collection.is_some_and(|collection| index_filter_set(collection, query));
    out.append("parsedQuery", &filter::joined(conditions)).append("indexFilterSet", filtered);
    if let Some(settings) = explained.settings {
        out.append("querySettings", RawValue::Document(settings));
    }
    let shape = PlanShape::of(query);
    let key = PlanKey::of(shape, query, collection).to_string();
    let shape = shape.to_string();
    out.append("queryHash", shape.as_str()).append("planCacheShapeHash", shape.as_str());
    out.append("planCacheKey", key.as_str()).append("optimizationTimeMillis", 0);
    out.append("maxIndexedOrSolutionsReached", false);
    out.append("maxIndexedAndSolutionsReached", false);
    out.append("maxScansToExplodeReached", false).append("prunedSimilarIndexes", false);
    out.start_document("winningPlan").append("isCached", false);
    node.write_plan(out);
    out.end();
    out.start_array("rejectedPlans").end();
    out.end();
}

fn write_stats(explained: &Explained<'_>, counted: &Counted, node: &Node, out: &mut DocBuilder) {
    if explained.verbosity < Verbosity::ExecutionStats {
        return;
    }
    out.start_document("executionStats").append("executionSuccess", true);
    out.append("nReturned", number(node.returned));
    out.append("executionTimeMillis", number(u64::try_from(counted.millis).unwrap_or(0)));
    out.append("totalKeysExamined", number(counted.keys));
    out.append("totalDocsExamined", number(counted.documents));
    out.start_document("executionStages").append("isCached", false);
    node.write_stats(out);
    out.end();
    if explained.verbosity == Verbosity::AllPlansExecution {
        out.start_array("allPlansExecution").end();
    }
    out.end();
}

//! Explain: the plan of an operation as a tree of stages, with statistics of its execution.
//!
//! 1. The filter prints itself in its explained form ([`mayfly_mql::matcher::Expr::conditions`]).
//! 2. The executor is started as for the operation itself; this module makes no choices.
//! 3. If statistics are requested, the plan runs and its results are dropped. Nothing is written.
//!    The plan of a pipeline runs as the input of its stages (`pipeline/explain.rs`).
//! 4. Each node of the started plan becomes a stage ([`tree`]) with bounds as text ([`bounds`]) and
//!    the counters of the running node, and is written with or without the counters ([`node`]).

mod bounds;
mod cached;
mod count_scan;
mod filter;
mod node;
mod projection;
mod text;
mod tree;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::Result;
use mayfly_expr::{Scope, Scripts};
use mayfly_mql::Matcher;
use mayfly_scripts::ScriptLimits;
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

pub use self::cached::cached_plans;
use self::node::{Node, number};
use crate::exec::{Executor, Flow, TriedPlan};
use crate::language::{CanonicalQuery, PlanShape};
use crate::memory::Budget;
use crate::plan::{Plan, PlanKey, index_filter_set, is_clustered};
use mayfly_storage::StoreSession;

/// The purpose of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Documents are returned.
    Find,
    /// Documents are counted.
    Count,
    /// Documents are updated.
    Update {
        /// Whether all documents are updated, or the first.
        multi: bool,
        /// Whether a document is inserted if none matches.
        upsert: bool,
        /// What is returned.
        returned: Shown,
    },
    /// Documents are deleted.
    Delete {
        /// Whether all documents are deleted, or the first.
        multi: bool,
        /// What is returned.
        returned: Shown,
    },
}

/// The version of a changed document that an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// No version.
    Nothing,
    /// The version before the change.
    Before,
    /// The version after the change.
    After,
}

/// The verbosity of explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Only the plan.
    QueryPlanner,
    /// The plan and its execution statistics.
    ExecutionStats,
    /// Also the statistics of the plans in the trial.
    AllPlansExecution,
}

/// The explained operation.
pub struct Explained<'a> {
    /// The namespace as `db.collection`.
    pub namespace: &'a str,
    /// The projection as the client sent it.
    pub projection: Option<RawDoc<'a>>,
    /// The purpose of the query.
    pub purpose: Purpose,
    /// How much is reported: plans only, or their execution, too.
    pub verbosity: Verbosity,
    /// The query settings that apply to the query.
    pub settings: Option<RawDoc<'a>>,
    /// The memory of the execution.
    pub budget: Budget,
}

impl Explained<'_> {
    /// Whether the projection is that of a document which the operation changes.
    fn projects_written(&self) -> bool {
        let writes = matches!(self.purpose, Purpose::Update { .. } | Purpose::Delete { .. });
        writes && self.projection.is_some()
    }

    /// Whether the operation runs.
    pub(crate) fn runs(&self) -> bool {
        self.verbosity >= Verbosity::ExecutionStats
    }
}

/// A filter with explicit operators, for plans and the profiler.
///
/// A filter that cannot be parsed alone, because it refers to variables of its command, is returned
/// unchanged.
pub fn normalized_filter(filter: RawDoc<'_>) -> DocBuf {
    let scope = Scope::default().with_text_index().with_scripts(Scripts::InFilters);
    // The filter is not evaluated.
    let scope = scope.with_script_limits(ScriptLimits::default());
    match Matcher::parse_query(filter, &scope) {
        Ok(matcher) => matcher.root().to_document(),
        Err(_) => filter.to_owned(),
    }
}

/// Appends `queryPlanner`, and `executionStats` if requested.
///
/// # Errors
/// Errors of planning, and of the executor if it runs.
pub fn explain(
    session: StoreSession<'_>,
    collection: Option<Arc<Collection>>,
    query: CanonicalQuery,
    explained: &Explained<'_>,
    out: &mut DocBuilder,
) -> Result<()> {
    let Some(collection) = collection else {
        write_absent(&query, explained, out);
        return Ok(());
    };
    let everything = query.hint.is_none() && query.matcher.root().conjuncts().is_empty();
    if explained.purpose == Purpose::Count && everything {
        write_counted(session, &collection, &query, explained, out)?;
        return Ok(());
    }
    let mut executor = Executor::by_itself(session.view, collection, query)?;
    executor.use_budget(explained.budget.clone());
    session.op.update_info(|info| info.plan_summary = executor.plan().summary());
    if explained.purpose == Purpose::Count {
        executor.count_only();
    }
    if explained.runs() {
        executor.time_nodes();
    }
    let tried = executor.settle(session)?;
    if explained.runs() {
        run(session, &mut executor, explained)?;
    }
    let op = session.op;
    let examined = (op.keys_examined.load(Relaxed), op.docs_examined.load(Relaxed));
    write_started(session, (&executor, &tried), examined, explained, out);
    Ok(())
}

/// Keys and documents that the nodes of an executor have examined, including those that they have
/// read ahead.
pub(crate) fn examined_by(executor: &Executor) -> (u64, u64) {
    executor.ran().map_or((0, 0), |ran| tree::totals(&ran))
}

/// Appends the plan of an executor and what it did. The first of the tried plans is its plan.
/// Returns the number of results.
pub(crate) fn write_started(
    session: StoreSession<'_>,
    (executor, tried): (&Executor, &[TriedPlan]),
    (keys, documents): (u64, u64),
    explained: &Explained<'_>,
    out: &mut DocBuilder,
) -> u64 {
    let (query, collection) = (executor.query(), &**executor.collection());
    let of = tree::ExplainContext {
        query,
        explained,
        conditions: &query.matcher.root().conditions(),
        clustered: is_clustered(collection),
        only_keys: executor.counts_only(),
    };
    let ran = executor.ran().unwrap_or_default();
    let node = tree::tree(&of, executor.plan(), &ran);
    let tried: Vec<TriedNode> = tried.iter().map(|one| TriedNode::of(&of, one)).collect();
    let rejected = tried.get(1..).unwrap_or_default();
    write_planner(explained, (query, Some(collection)), (&node, rejected), out);
    let keys = match executor.plan().source() {
        // Each record of a range scan by `_id` counts as its key.
        Plan::Records(scan) if !scan.clustered && !scan.is_of_collection() => documents,
        _ => keys,
    };
    let millis = session.op.elapsed_micros() / 1000;
    write_stats(explained, (keys, documents, millis), (&node, &tried), out);
    node.returned
}

/// Appends the plan of a count without conditions, which the collection's statistics answer.
///
/// # Errors
/// Errors of the store.
pub(crate) fn write_counted(
    session: StoreSession<'_>,
    collection: &Collection,
    query: &CanonicalQuery,
    explained: &Explained<'_>,
    out: &mut DocBuilder,
) -> Result<u64> {
    let counted = match explained.runs() {
        true => session.store.count_documents(session.op, collection)?,
        false => 0,
    };
    let node = fast_count_node(query, u64::try_from(counted).unwrap_or(0));
    write_planner(explained, (query, Some(collection)), (&node, &[]), out);
    let millis = session.op.elapsed_micros() / 1000;
    write_stats(explained, (0, 0, millis), (&node, &[]), out);
    Ok(node.returned)
}

/// Appends the plan for a collection that does not exist.
pub(crate) fn write_absent(
    query: &CanonicalQuery,
    explained: &Explained<'_>,
    out: &mut DocBuilder,
) {
    let node = tree::nothing(explained);
    write_planner(explained, (query, None), (&node, &[]), out);
    write_stats(explained, (0, 0, 0), (&node, &[]), out);
}

/// Runs the plan and drops its results.
fn run(
    session: StoreSession<'_>,
    executor: &mut Executor,
    explained: &Explained<'_>,
) -> Result<()> {
    let first_only = matches!(
        explained.purpose,
        Purpose::Update { multi: false, .. } | Purpose::Delete { multi: false, .. }
    );
    let mut shown = 0;
    while !(executor.is_done() || first_only && shown > 0) {
        if first_only {
            executor.expect(1);
        }
        executor.run(session, &mut |_, _, _| {
            shown += 1;
            Ok(if first_only { Flow::Pause } else { Flow::More })
        })?;
    }
    Ok(())
}

/// The stage of a count without conditions, which examines nothing.
fn fast_count_node(query: &CanonicalQuery, counted: u64) -> Node {
    let skipped = counted.min(query.skip);
    let after_skip = counted - skipped;
    let result = query.limit.map_or(after_skip, |limit| after_skip.min(limit));
    Node::new("RECORD_STORE_FAST_COUNT").did(0, 0, true).counting(|out| {
        out.append("nCounted", number(result)).append("nSkipped", number(skipped));
    })
}

fn write_planner(
    explained: &Explained<'_>,
    (query, collection): (&CanonicalQuery, Option<&Collection>),
    (node, rejected): (&Node, &[TriedNode]),
    out: &mut DocBuilder,
) {
    out.start_document("queryPlanner");
    out.append("namespace", explained.namespace);
    let filtered = collection.is_some_and(|collection| index_filter_set(collection, query));
    let conditions = query.matcher.root().conditions();
    out.append("parsedQuery", &filter::joined(&conditions)).append("indexFilterSet", filtered);
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
    out.start_array("rejectedPlans");
    for one in rejected {
        out.push_document().append("isCached", false);
        one.node.write_plan(out);
        out.end();
    }
    out.end();
    out.end();
}

/// A plan of a trial as a tree of stages.
struct TriedNode {
    node: Node,
    returned: u64,
    totals: (u64, u64),
    score: f64,
}

impl TriedNode {
    fn of(of: &tree::ExplainContext<'_>, one: &TriedPlan) -> TriedNode {
        let node = tree::tree(of, &one.plan, &one.ran);
        TriedNode { node, returned: one.returned, totals: tree::totals(&one.ran), score: one.score }
    }

    /// Appends an element of `allPlansExecution`.
    fn write_stats(&self, out: &mut DocBuilder) {
        out.append("nReturned", number(self.returned))
            .append("executionTimeMillisEstimate", number(self.node.micros / 1000));
        out.append("totalKeysExamined", number(self.totals.0));
        out.append("totalDocsExamined", number(self.totals.1)).append("score", self.score);
        out.start_document("executionStages");
        self.node.write_stats(out);
        out.end();
    }
}

fn write_stats(
    explained: &Explained<'_>,
    (keys, documents, millis): (u64, u64, i64),
    (node, tried): (&Node, &[TriedNode]),
    out: &mut DocBuilder,
) {
    if !explained.runs() {
        return;
    }
    out.start_document("executionStats").append("executionSuccess", true);
    out.append("nReturned", number(node.returned));
    out.append("executionTimeMillis", number(u64::try_from(millis).unwrap_or(0)));
    out.append("totalKeysExamined", number(keys));
    out.append("totalDocsExamined", number(documents));
    out.start_document("executionStages").append("isCached", false);
    node.write_stats(out);
    out.end();
    if explained.verbosity == Verbosity::AllPlansExecution {
        out.start_array("allPlansExecution");
        for one in tried {
            out.push_document();
            one.write_stats(out);
            out.end();
        }
        out.end();
    }
    out.end();
}

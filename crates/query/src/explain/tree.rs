//! Converts a plan to the tree of stages that clients expect.
//!
//! For collections clustered by `_id` on the engine's initiative, a read by `_id` is shown as the
//! index scan that it replaces.

use mayfly_mql::matcher::Expr;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::wildcard::Wildcard;
use mayfly_storage::{Direction, IndexField, KeyRange};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, SortOrder};
use mayfly_work::spill::Operator;

use super::bounds::{Scan, rest, scan_bounds};
use super::count_scan::counted_scan;
use super::filter::{joined, parts};
use super::node::{Node, number};
use super::projection::{projected, shown, written};
use super::text::text_match;
use super::{Explained, Purpose, Shown};
use crate::exec::{Counters, NodeStats};
use crate::language::CanonicalQuery;
use crate::plan::{FilterBounds, IndexScan, NearAccess, Plan, RecordScan, filter_bounds_of_point};

/// The explained query.
pub(super) struct ExplainContext<'a> {
    pub(super) query: &'a CanonicalQuery,
    pub(super) explained: &'a Explained<'a>,
    pub(super) conditions: &'a [DocBuf],
    /// Whether the collection was created clustered.
    pub(super) clustered: bool,
    /// Whether the caller needs the number of documents, but none of their fields.
    pub(super) only_keys: bool,
}

/// The tree of a plan.
pub(super) fn tree(of: &ExplainContext<'_>, plan: &Plan, ran: &NodeStats) -> Node {
    if let Some(node) = express(of, plan, ran) {
        return node;
    }
    let (top, counters) = match plan {
        // After a top-k sort the limit is redundant.
        Plan::Limit { input, .. } if plan.blocking_sort() => (&**input, input_of(ran)),
        Plan::Limit { input, .. } if of.explained.purpose == Purpose::Count => {
            (&**input, input_of(ran))
        }
        other => (other, ran.clone()),
    };
    let node = match top {
        Plan::Limit { input, count } => {
            let below = projected(of, input, &input_of(&counters));
            let stage = Node::new("LIMIT").with(|out| {
                out.append("limitAmount", number(*count));
            });
            counters.did(stage).over(below)
        }
        other => projected(of, other, &counters),
    };
    let node = match is_rooted_or(of.query) {
        true => {
            let (returned, over) = (node.returned, node.at_end);
            Node::new("SUBPLAN").did(returned, returned, over).over(node)
        }
        false => node,
    };
    written(of.explained, purpose(of.explained, plan, ran, node))
}

/// Whether a filter is a single `$or`, whose alternatives are planned separately.
fn is_rooted_or(query: &CanonicalQuery) -> bool {
    let alternatives = matches!(query.matcher.root().conjuncts()[..], [Expr::Or(_)]);
    alternatives && query.hint.is_none() && query.matcher.text().is_none()
}

/// The statistics of the only input.
pub(super) fn input_of(ran: &NodeStats) -> NodeStats {
    ran.inputs.first().cloned().unwrap_or_default()
}

impl NodeStats {
    fn did(&self, node: Node) -> Node {
        node.did(self.counters.returned, self.counters.examined, self.counters.over)
    }
}

/// The stages of a node and those below it.
pub(super) fn node(of: &ExplainContext<'_>, plan: &Plan, ran: &NodeStats) -> Node {
    Node { micros: ran.counters.micros, ..stages(of, plan, ran) }
}

fn stages(of: &ExplainContext<'_>, plan: &Plan, ran: &NodeStats) -> Node {
    let (query, counted) = (of.query, &ran.counters);
    let below = |input: &Plan| node(of, input, &input_of(ran));
    match plan {
        Plan::Nothing => Node::new("EOF"),
        Plan::Id(key) => {
            let range = [KeyRange { start: key.clone(), end: Vec::new() }];
            fetch_by_id(
                &range,
                Direction::Forward,
                (&filter_bounds_of_point(query), query),
                counted,
            )
        }
        Plan::Records(scan) if scan.is_of_collection() => collection_scan(of, scan, ran),
        Plan::Records(scan) if scan.clustered => clustered_scan(of, scan, ran),
        Plan::Records(scan) => {
            fetch_by_id(&scan.ranges, scan.direction, (&scan.filter_bounds, query), counted)
        }
        Plan::Text(text) => text_match(text, (of.conditions, query.uses_score), counted),
        Plan::Index(scan) => index_scan(of, scan, ran),
        Plan::Near(near) => by_distance(near, of.conditions, counted),
        Plan::And(inputs) => intersection(of, &**inputs, ran),
        Plan::Or(inputs) => union(of, inputs, ran),
        Plan::Merge { inputs, .. } => merge(of, inputs, ran),
        Plan::Fetch(input) => fetch(below(input), residual_filter(of, input), counted),
        Plan::Keys(input) => match &**input {
            Plan::Index(scan) if of.explained.purpose == Purpose::Count => {
                counted_scan(scan, below(input), ran)
            }
            _ => below(input),
        },
        Plan::Covered(input) => covered(of, ran).over(below(input)),
        Plan::Sort { input, most } => sort(of, *most, ran).over(below(input)),
        Plan::Skip { input, .. } | Plan::Limit { input, .. }
            if of.explained.purpose == Purpose::Count =>
        {
            below(input)
        }
        Plan::Skip { input, count } => {
            let stage = Node::new("SKIP").with(|out| {
                out.append("skipAmount", number(*count));
            });
            ran.did(stage).over(below(input))
        }
        Plan::Limit { input, .. } => below(input),
    }
}

fn collection_scan(of: &ExplainContext<'_>, scan: &RecordScan, ran: &NodeStats) -> Node {
    let backward = scan.direction == Direction::Backward;
    let stage = Node::new("COLLSCAN").filtered(joined(of.conditions)).with(|out| {
        out.append("direction", if backward { "backward" } else { "forward" });
    });
    ran.did(stage).counting(|out| {
        out.append("docsExamined", number(ran.counters.documents));
    })
}

fn intersection(of: &ExplainContext<'_>, inputs: &[Plan], ran: &NodeStats) -> Node {
    let stage = Node::new("AND_HASH").inputs(several(of, inputs, ran));
    ran.did(stage).counting(|out| {
        let limit = of.explained.budget.limits().of(Operator::IndexScan);
        out.append("memUsage", number(ran.counters.held_bytes))
            .append("memLimit", number(limit as u64));
    })
}

fn union(of: &ExplainContext<'_>, inputs: &[Plan], ran: &NodeStats) -> Node {
    let stage = Node::new("OR").inputs(several(of, inputs, ran));
    ran.did(stage).counting(|out| {
        write_duplicates(&ran.counters, out);
        out.append("recordIdsForgotten", 0);
    })
}

fn merge(of: &ExplainContext<'_>, inputs: &[Plan], ran: &NodeStats) -> Node {
    let stage = Node::new("SORT_MERGE").inputs(several(of, inputs, ran)).with(|out| {
        write_sort(of.query, out);
    });
    ran.did(stage).counting(|out| write_duplicates(&ran.counters, out))
}

fn covered(of: &ExplainContext<'_>, ran: &NodeStats) -> Node {
    let shows = of.query.needed_paths.as_ref().map(|paths| shown(paths));
    let projection = of.explained.projection.or(shows.as_ref().map(DocBuf::as_doc));
    ran.did(Node::new("PROJECTION_COVERED").with(|out| {
        out.append("transformBy", projection.unwrap_or(RawDoc::EMPTY));
    }))
}

/// Appends the sort pattern of the query.
fn write_sort(query: &CanonicalQuery, out: &mut DocBuilder) {
    if let Some(sort) = &query.sort {
        out.append("sortPattern", &sort.to_document());
    }
}

/// The inputs of a stage with several. Their residual filter is applied above them.
fn several(of: &ExplainContext<'_>, inputs: &[Plan], ran: &NodeStats) -> Vec<Node> {
    let nothing = NodeStats::default();
    let ran = |at: usize| ran.inputs.get(at).unwrap_or(&nothing);
    inputs.iter().enumerate().map(|(at, input)| node(of, input, ran(at))).collect()
}

fn write_duplicates(counted: &Counters, out: &mut DocBuilder) {
    out.append("dupsTested", number(counted.tested));
    out.append("dupsDropped", number(counted.dropped));
}

/// The residual filter for the documents of this input.
fn residual_filter(of: &ExplainContext<'_>, input: &Plan) -> Vec<DocBuf> {
    let exact = |plan: &Plan| matches!(plan, Plan::Index(scan) if scan.exact);
    match input.source() {
        Plan::Index(scan) => {
            let mut rest = rest(&scan.filter_bounds, of.query);
            if let Some(filter) = &scan.key_filter {
                let tested = filter.root().conditions();
                rest.retain(|condition| !tested.contains(condition));
            }
            rest
        }
        Plan::Or(inputs) | Plan::Merge { inputs, .. } if inputs.iter().all(exact) => Vec::new(),
        _ => of.conditions.to_vec(),
    }
}

/// The tree for a collection that does not exist.
pub(super) fn nothing(explained: &Explained<'_>) -> Node {
    let ran =
        NodeStats { counters: Counters { over: true, ..Counters::default() }, inputs: Vec::new() };
    written(explained, purpose(explained, &Plan::Nothing, &ran, Node::new("EOF")))
}

/// Number of results that a plan skipped.
fn skipped(plan: &Plan, ran: &NodeStats) -> u64 {
    match (plan, plan.inputs()) {
        (Plan::Skip { .. }, _) => ran.counters.examined - ran.counters.returned,
        (_, [input]) => skipped(input, &input_of(ran)),
        _ => 0,
    }
}

/// The stage for the purpose of the query.
fn purpose(explained: &Explained<'_>, plan: &Plan, ran: &NodeStats, input: Node) -> Node {
    let found = ran.counters.returned;
    let examined = found.max(input.returned);
    match explained.purpose {
        Purpose::Find => input,
        Purpose::Count => Node::new("COUNT").did(0, examined, true).over(input).counting(|out| {
            out.append("nCounted", number(found));
            out.append("nSkipped", number(skipped(plan, ran)));
        }),
        Purpose::Update { upsert, returned, .. } => {
            let upserts = i32::from(upsert && found == 0);
            let returned = match returned {
                Shown::Nothing => 0,
                Shown::After if upserts > 0 => 1,
                Shown::Before | Shown::After => found,
            };
            Node::new("UPDATE").did(returned, examined, true).over(input).counting(|out| {
                out.append("nMatched", number(found)).append("nWouldModify", number(found));
                out.append("nWouldUpsert", upserts);
            })
        }
        Purpose::Delete { multi, returned } => {
            let stage = if multi { "BATCHED_DELETE" } else { "DELETE" };
            let returned = if returned == Shown::Nothing { 0 } else { found };
            let stage = Node::new(stage).did(returned, examined, true).over(input);
            stage.counting(|out| {
                out.append("nWouldDelete", number(found));
            })
        }
    }
}

/// The express stage: a single equality on a unique key.
fn express(of: &ExplainContext<'_>, plan: &Plan, ran: &NodeStats) -> Option<Node> {
    let query = of.query;
    let ([only], true) = (of.conditions, query.skip == 0 && query.hint.is_none()) else {
        return None;
    };
    let (path, "$eq", _) = parts(only.as_doc())? else { return None };
    let (key, name) = match plan.source() {
        Plan::Id(_) if path == "_id" => ("{ _id: 1 }".to_owned(), "_id_".to_owned()),
        Plan::Index(scan)
            if scan.index.spec.unique()
                && scan.index.spec.fields().len() == 1
                && scan.index.spec.fields()[0].path == path
                && !plan.blocking_sort()
                && scan.narrow =>
        {
            let spec = &scan.index.spec;
            (Shell(spec.key()).to_string(), spec.name().to_owned())
        }
        _ => return None,
    };
    let stage = match of.explained.purpose {
        Purpose::Find if of.clustered && !of.only_keys && matches!(plan.source(), Plan::Id(_)) => {
            "EXPRESS_CLUSTERED_IXSCAN"
        }
        Purpose::Find if !of.only_keys => "EXPRESS_IXSCAN",
        _ if of.explained.projects_written() => return None,
        Purpose::Update { multi: false, upsert: false, .. } => "EXPRESS_UPDATE",
        Purpose::Delete { multi: false, .. } => "EXPRESS_DELETE",
        Purpose::Find | Purpose::Count | Purpose::Update { .. } | Purpose::Delete { .. } => {
            return None;
        }
    };
    let mut node = Node::new(stage).with(|out| {
        out.append("keyPattern", key.as_str()).append("indexName", name.as_str());
    });
    node.express = true;
    let found = ran.counters.returned;
    let (keys, documents) = totals(ran);
    let (returned, changed) = match of.explained.purpose {
        Purpose::Update { returned, .. } => (returned, Some((found, 0))),
        Purpose::Delete { returned, .. } => (returned, Some((0, found))),
        Purpose::Find | Purpose::Count => (Shown::Before, None),
    };
    node.returned = if returned == Shown::Nothing { 0 } else { found };
    node.changed = changed;
    Some(node.counting(|out| {
        out.append("keysExamined", number(keys)).append("docsExamined", number(documents));
    }))
}

/// Keys and documents that all nodes examined.
pub(super) fn totals(ran: &NodeStats) -> (u64, u64) {
    ran.inputs.iter().map(totals).fold(
        (ran.counters.keys, ran.counters.documents),
        |(keys, documents), (more_keys, more_documents)| {
            (keys + more_keys, documents + more_documents)
        },
    )
}

/// A search by distance, with the residual filter above it.
fn by_distance(near: &NearAccess, conditions: &[DocBuf], counted: &Counters) -> Node {
    let leaf = Node::new(near.stage())
        .with(|out| {
            out.append("keyPattern", near.index.spec.key());
            out.append("indexName", near.index.spec.name()).append("indexVersion", 2);
        })
        .did(counted.returned, counted.keys, counted.over)
        .counting(|out| {
            out.append("keysExamined", number(counted.keys));
            out.append("docsExamined", number(counted.documents));
        });
    let is_near = |condition: &&DocBuf| {
        matches!(
            parts(condition.as_doc()),
            Some((_, "$near" | "$nearSphere" | "$minDistance" | "$maxDistance", _))
        )
    };
    let rest: Vec<DocBuf> = conditions.iter().filter(|c| !is_near(c)).cloned().collect();
    if rest.is_empty() {
        return leaf;
    }
    fetch(leaf, rest, counted)
}

fn fetch(leaf: Node, rest: Vec<DocBuf>, counted: &Counters) -> Node {
    let documents = number(counted.documents);
    Node::new("FETCH")
        .filtered(joined(&rest))
        .did(counted.returned, counted.examined.max(counted.documents), counted.over)
        .counting(|out| {
            out.append("docsExamined", documents).append("alreadyHasObj", 0);
        })
        .over(leaf)
}

/// A scan of a collection that was created clustered.
fn clustered_scan(of: &ExplainContext<'_>, scan: &RecordScan, ran: &NodeStats) -> Node {
    let backward = scan.direction == Direction::Backward;
    let intervals = scan.filter_bounds.intervals.first().cloned().flatten().unwrap_or_default();
    let stage = Node::new("CLUSTERED_IXSCAN").filtered(joined(of.conditions)).with(|out| {
        out.append("direction", if backward { "backward" } else { "forward" });
        if let (Some(first), Some(last)) = (intervals.first(), intervals.last()) {
            out.append("minRecord", &first.low.value).append("maxRecord", &last.high.value);
        }
    });
    ran.did(stage).counting(|out| {
        out.append("docsExamined", number(ran.counters.documents));
    })
}

/// The fields of an index scan stage.
struct ReadScan<'a> {
    key: RawDoc<'a>,
    name: &'a str,
    unique: bool,
    sparse: bool,
    partial: bool,
}

fn index_scan(of: &ExplainContext<'_>, plan: &IndexScan, ran: &NodeStats) -> Node {
    let (index, counted) = (&plan.index, &ran.counters);
    let backward = plan.direction == Direction::Backward;
    let (fields, ranges) = (plan.fields(), &plan.ranges[..]);
    let scan = Scan { fields, multikey: index.multikey_mask(), ranges, backward };
    // In the key pattern of a wildcard index, the path replaces the wildcard.
    let mut chosen = DocBuilder::new();
    for field in fields {
        chosen.append(&field.path, field.order.sign());
    }
    let chosen = chosen.finish();
    let wildcard = index.spec.kind().is::<Wildcard>();
    let scanned = ReadScan {
        key: if wildcard { chosen.as_doc() } else { index.spec.key() },
        name: index.spec.name(),
        unique: index.spec.unique(),
        sparse: index.spec.sparse(),
        partial: index.is_partial(),
    };
    let mut leaf = scan_node(&scanned, &scan, &plan.filter_bounds, counted);
    if let Some(filter) = &plan.key_filter {
        leaf = leaf.filtered(joined(&filter.root().conditions()));
    }
    match plan.one_per_value {
        None => leaf,
        Some(one) => {
            leaf.stage = "DISTINCT_SCAN";
            match (one.covered, &of.query.first_of) {
                (true, Some(first_of)) => {
                    let projection = shown(std::slice::from_ref(&first_of.path));
                    let stage = Node::new("PROJECTION_COVERED").with(|out| {
                        out.append("transformBy", &projection);
                    });
                    ran.did(stage).over(leaf)
                }
                _ => fetch(leaf, rest(&plan.filter_bounds, of.query), counted),
            }
        }
    }
}

fn fetch_by_id(
    ranges: &[KeyRange],
    direction: Direction,
    (filter_bounds, query): (&FilterBounds, &CanonicalQuery),
    counted: &Counters,
) -> Node {
    let mut key = DocBuilder::new();
    key.append("_id", 1);
    let key = key.finish();
    let field = IndexField::new("_id", SortOrder::Ascending, FieldKind::Ordered);
    let backward = direction == Direction::Backward;
    let scan = Scan { fields: &[field], multikey: 0, ranges, backward };
    let of =
        ReadScan { key: key.as_doc(), name: "_id_", unique: true, sparse: false, partial: false };
    // Each record counts as its key.
    let documents = counted.documents;
    let keys = Counters { keys: documents, returned: documents, ..counted.clone() };
    fetch(scan_node(&of, &scan, filter_bounds, &keys), rest(filter_bounds, query), counted)
}

fn scan_node(
    of: &ReadScan<'_>,
    scan: &Scan<'_>,
    filter_bounds: &FilterBounds,
    counted: &Counters,
) -> Node {
    let fields = |out: &mut DocBuilder| {
        out.append("keyPattern", of.key).append("indexName", of.name);
        out.append("isMultiKey", scan.multikey != 0).start_document("multiKeyPaths");
        for (at, field) in scan.fields.iter().enumerate() {
            out.start_array(&field.path);
            if scan.multikey & (1 << at) != 0 {
                // The index does not store which component of the path contains the array.
                out.push(field.parts.first().map_or("", String::as_str));
            }
            out.end();
        }
        out.end();
        out.append("isUnique", of.unique).append("isSparse", of.sparse);
        out.append("isPartial", of.partial).append("indexVersion", 2);
        out.append("direction", if scan.backward { "backward" } else { "forward" });
        out.append("indexBounds", &scan_bounds(scan, filter_bounds));
    };
    let stage = Node::new("IXSCAN").with(fields);
    stage.did(counted.returned, counted.keys, counted.over).counting(|out| {
        out.append("keysExamined", number(counted.keys));
        out.append("seeks", number(scan.ranges.len() as u64));
        write_duplicates(counted, out);
    })
}

fn sort(of: &ExplainContext<'_>, most: Option<u64>, ran: &NodeStats) -> Node {
    let counted = &ran.counters;
    let limit = of.explained.budget.limits().of(Operator::Sort);
    let stage = Node::new("SORT").with(|out| {
        write_sort(of.query, out);
        out.append("memLimit", number(limit as u64));
        if let Some(most) = most {
            out.append("limitAmount", number(most));
        }
        out.append("type", "simple");
    });
    let stage = stage.did(counted.returned, counted.examined + counted.returned, counted.over);
    stage.counting(|out| {
        let spilled = counted.sort.memory.spilled;
        out.append("totalDataSizeSorted", number(counted.sort.bytes));
        out.append("usedDisk", spilled.spills > 0).append("spills", number(spilled.spills));
        out.append("spilledBytes", number(spilled.bytes));
        out.append("spilledRecords", number(spilled.records));
        out.append("spilledDataStorageSize", number(spilled.file_bytes));
    })
}

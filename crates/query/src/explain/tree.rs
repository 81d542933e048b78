//! From a plan to the tree of stages that clients know.
//!
//! Where records are clustered by `_id`, what is read by `_id` shows as the index scan that it replaces.

use mayfly_base::spill::Operator;
use mayfly_storage::kinds::{FieldKind, Kind};
use mayfly_storage::{Direction, Index, IndexField, KeyRange, whole_range};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use super::bounds::{Scan, ScanBounds, scan_bounds};
use super::filter::{joined, parts};
use super::node::{Node, number};
use super::text::text_match;
use super::{Counted, Explained, Purpose};
use crate::language::{CanonicalQuery, Hint};
use crate::plan::{Access, Alternative, NearAccess, Plan, Said, said_of_point};

/// The whole tree.
pub(super) fn tree(
    plan: &Plan,
    query: &CanonicalQuery,
    explained: &Explained<'_>,
    conditions: &[DocBuf],
    counted: &Counted,
) -> Node {
    if let Some(node) = express(plan, query, explained, conditions, counted) {
        return node;
    }
    let counts = matches!(explained.purpose, Purpose::Count | Purpose::Keys);
    let keys_only = counts && counts_keys(plan);
    let mut node = access(plan, query, conditions, keys_only, counted);
    let mut left = counted.matched;
    if plan.blocking_sort
        && let Some(pattern) = explained.sort
    {
        let most = query.limit.map(|limit| limit.saturating_add(query.skip));
        left = most.map_or(left, |most| left.min(most));
        node = sort(pattern, most, explained, counted)
            .did(left, counted.matched + left, true)
            .over(node);
    }
    if query.skip > 0 && explained.purpose != Purpose::Count {
        let skip = number(query.skip);
        let stage = Node::new("SKIP").with(|out| {
            out.append("skipAmount", skip);
        });
        node = stage.did(left.saturating_sub(query.skip), left, true).over(node);
        left = left.saturating_sub(query.skip);
    }
    let shows = query.shows.as_ref().filter(|_| plan.covering).map(|paths| shown(paths));
    let projection = explained.projection.or(shows.as_ref().map(DocBuf::as_doc));
    if let Some(projection) = projection {
        let covered = plan.covering && !keys_only;
        let name = if covered { "PROJECTION_COVERED" } else { projection_stage(projection) };
        let stage = Node::new(name);
        let stage = stage.with(|out| {
            out.append("transformBy", projection);
        });
        node = stage.did(left, left, counted.at_end).over(node);
    }
    if let (Some(limit), false) = (query.limit, plan.blocking_sort)
        && explained.purpose != Purpose::Count
    {
        let stage = Node::new("LIMIT").with(|out| {
            out.append("limitAmount", number(limit));
        });
        node = stage.did(left.min(limit), left, true).over(node);
    }
    purpose(explained, query, counted, node)
}

/// The tree where there is nothing to read.
pub(super) fn nothing(explained: &Explained<'_>, query: &CanonicalQuery) -> Node {
    purpose(explained, query, &Counted::default(), Node::new("EOF"))
}

/// The stage that acts on what was found.
fn purpose(
    explained: &Explained<'_>,
    query: &CanonicalQuery,
    counted: &Counted,
    input: Node,
) -> Node {
    let matched = number(counted.matched);
    let looked = counted.matched.max(input.returned);
    match explained.purpose {
        Purpose::Find | Purpose::Keys => input,
        Purpose::Count => {
            let skipped = counted.matched.min(query.skip);
            let behind = counted.matched - skipped;
            let result = query.limit.map_or(behind, |limit| behind.min(limit));
            Node::new("COUNT").did(0, looked, true).over(input).counting(|out| {
                out.append("nCounted", number(result)).append("nSkipped", number(skipped));
            })
        }
        Purpose::Update { upsert, .. } => {
            let upserts = i32::from(upsert && counted.matched == 0);
            Node::new("UPDATE").did(0, looked, true).over(input).counting(|out| {
                out.append("nMatched", matched).append("nWouldModify", matched);
                out.append("nWouldUpsert", upserts);
            })
        }
        Purpose::Delete { multi } => {
            let stage = if multi { "BATCHED_DELETE" } else { "DELETE" };
            let stage = Node::new(stage).did(0, looked, true).over(input);
            stage.counting(|out| {
                out.append("nWouldDelete", matched);
            })
        }
    }
}

/// The short path: one equality that a unique key answers, and nothing around it.
fn express(
    plan: &Plan,
    query: &CanonicalQuery,
    explained: &Explained<'_>,
    conditions: &[DocBuf],
    counted: &Counted,
) -> Option<Node> {
    let ([only], true) = (conditions, query.skip == 0 && query.hint.is_none()) else {
        return None;
    };
    let (path, "$eq", _) = parts(only.as_doc())? else { return None };
    let (key, name) = match &plan.access {
        Access::Id(_) if path == "_id" => ("{ _id: 1 }".to_owned(), "_id_".to_owned()),
        Access::Index { index, .. }
            if index.spec.unique()
                && index.spec.fields().len() == 1
                && index.spec.fields()[0].path == path
                && !plan.blocking_sort
                && plan.narrow =>
        {
            (Shell(index.spec.key()).to_string(), index.spec.name().to_owned())
        }
        _ => return None,
    };
    let stage = match explained.purpose {
        Purpose::Find => "EXPRESS_IXSCAN",
        Purpose::Update { multi: false, upsert: false } => "EXPRESS_UPDATE",
        Purpose::Delete { multi: false } => "EXPRESS_DELETE",
        Purpose::Count | Purpose::Keys | Purpose::Update { .. } | Purpose::Delete { .. } => {
            return None;
        }
    };
    let mut node = Node::new(stage).with(|out| {
        out.append("keyPattern", key.as_str()).append("indexName", name.as_str());
    });
    node.express = true;
    node.returned = if stage == "EXPRESS_IXSCAN" { counted.matched } else { 0 };
    Some(node.counting(|out| {
        out.append("keysExamined", number(counted.keys));
        out.append("docsExamined", number(counted.documents));
    }))
}

/// Whether counting does without the documents.
pub(super) fn counts_keys(plan: &Plan) -> bool {
    match &plan.access {
        Access::Index { index, .. } => plan.exact && !plan.blocking_sort && !index.is_multikey(),
        Access::Nothing
        | Access::Id(_)
        | Access::Records { .. }
        | Access::Text(_)
        | Access::Near(_)
        | Access::Alternatives(_) => false,
    }
}

/// How the documents are reached.
fn access(
    plan: &Plan,
    query: &CanonicalQuery,
    conditions: &[DocBuf],
    keys_only: bool,
    counted: &Counted,
) -> Node {
    let whole = vec![whole_range()];
    match &plan.access {
        Access::Nothing => Node::new("EOF"),
        Access::Id(key) => {
            let range = [KeyRange { start: key.clone(), end: Vec::new() }];
            fetch_by_id(&range, Direction::Forward, (&said_of_point(query), query), counted)
        }
        Access::Records { ranges, direction } if *ranges == whole && !asks_for_id(plan, query) => {
            let backward = *direction == Direction::Backward;
            let word = if backward { "backward" } else { "forward" };
            Node::new("COLLSCAN")
                .filtered(joined(conditions))
                .with(|out| {
                    out.append("direction", word);
                })
                .did(counted.matched, counted.documents, counted.at_end)
                .counting(|out| {
                    out.append("docsExamined", number(counted.documents));
                })
        }
        Access::Records { ranges, direction } => {
            fetch_by_id(ranges, *direction, (&plan.said, query), counted)
        }
        Access::Text(text) => text_match(text, conditions, counted),
        Access::Index { index, ranges, direction } => {
            let backward = *direction == Direction::Backward;
            let scan = Scan {
                fields: plan.fields.as_deref().unwrap_or(index.spec.fields()),
                multikey: index.multikey_mask(),
                ranges,
                backward,
            };
            let mut bounds = scan_bounds(&scan, &plan.said, query);
            let mut leaf = index_scan(index, &scan, &bounds, counted);
            if let Some(filter) = &plan.key_filter {
                let tested = filter.root().conditions();
                bounds.rest.retain(|condition| !tested.contains(condition));
                leaf = leaf.filtered(joined(&tested)).did(
                    counted.documents,
                    counted.keys,
                    counted.at_end,
                );
            }
            if let Some(one) = plan.one_per_value {
                leaf.stage = "DISTINCT_SCAN";
                leaf.idle = counted.keys.saturating_sub(counted.matched);
                leaf.returned = counted.keys - leaf.idle;
                return if one.covered { leaf } else { fetch(leaf, &bounds, counted) };
            }
            if keys_only || plan.covering { leaf } else { fetch(leaf, &bounds, counted) }
        }
        Access::Near(near) => by_distance(near, conditions, counted),
        Access::Alternatives(all) => alternatives(all, counted),
    }
}

/// The alternatives of a `$or`.
fn alternatives(all: &[Alternative], counted: &Counted) -> Node {
    let nothing = Counted::default();
    let mut node = Node::new("OR");
    let mut found = 0;
    for (at, one) in all.iter().enumerate() {
        let counted = counted.branches.get(at).unwrap_or(&nothing);
        found += counted.matched;
        let conditions = one.query.matcher.root().conditions();
        node.inputs.push(access(&one.plan, &one.query, &conditions, false, counted));
    }
    let dropped = number(found.saturating_sub(counted.matched));
    node.did(counted.matched, found.max(counted.matched), counted.at_end).counting(|out| {
        out.append("dupsTested", number(found)).append("dupsDropped", dropped);
        out.append("recordIdsForgotten", 0);
    })
}

/// A search by distance; what else is asked is tested behind it.
fn by_distance(near: &NearAccess, conditions: &[DocBuf], counted: &Counted) -> Node {
    let leaf = Node::new(near.stage())
        .with(|out| {
            out.append("keyPattern", near.index.spec.key());
            out.append("indexName", near.index.spec.name()).append("indexVersion", 2);
        })
        .did(counted.matched, counted.keys, counted.at_end)
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
    fetch(leaf, &ScanBounds { text: DocBuf::empty(), rest }, counted)
}

/// Whether the clustered order itself was asked for, as an index on `_id` would give it.
pub(super) fn asks_for_id(plan: &Plan, query: &CanonicalQuery) -> bool {
    let hinted = match &query.hint {
        Some(Hint::Name(_) | Hint::Key(_)) => true,
        Some(Hint::Between { index, .. }) => {
            matches!(**index, Hint::Name(_) | Hint::Key(_))
        }
        Some(Hint::Natural { .. }) | None => false,
    };
    hinted || (query.sort.is_some() && !plan.blocking_sort)
}

fn fetch(leaf: Node, bounds: &ScanBounds, counted: &Counted) -> Node {
    let documents = number(counted.documents);
    Node::new("FETCH")
        .filtered(joined(&bounds.rest))
        .did(counted.matched, counted.keys.max(counted.documents), counted.at_end)
        .counting(|out| {
            out.append("docsExamined", documents).append("alreadyHasObj", 0);
        })
        .over(leaf)
}

/// What an index scan says of itself.
struct Scanned<'a> {
    key: RawDoc<'a>,
    name: &'a str,
    unique: bool,
    sparse: bool,
    partial: bool,
}

fn index_scan(index: &Index, scan: &Scan<'_>, bounds: &ScanBounds, counted: &Counted) -> Node {
    // A wildcard's path takes its place in the key pattern.
    let mut chosen = DocBuilder::new();
    for field in scan.fields {
        chosen.append(&field.path, if field.descending { -1 } else { 1 });
    }
    let chosen = chosen.finish();
    let wildcard = matches!(index.spec.kind(), Kind::Wildcard(_));
    let of = Scanned {
        key: if wildcard { chosen.as_doc() } else { index.spec.key() },
        name: index.spec.name(),
        unique: index.spec.unique(),
        sparse: index.spec.sparse(),
        partial: index.is_partial(),
    };
    scan_node(&of, scan, bounds, counted)
}

fn fetch_by_id(
    ranges: &[KeyRange],
    direction: Direction,
    (said, query): (&Said, &CanonicalQuery),
    counted: &Counted,
) -> Node {
    let mut key = DocBuilder::new();
    key.append("_id", 1);
    let key = key.finish();
    let field = IndexField::new("_id", false, FieldKind::Ordered);
    let backward = direction == Direction::Backward;
    let scan = Scan { fields: &[field], multikey: 0, ranges, backward };
    let bounds = scan_bounds(&scan, said, query);
    let of =
        Scanned { key: key.as_doc(), name: "_id_", unique: true, sparse: false, partial: false };
    let leaf = scan_node(&of, &scan, &bounds, counted);
    fetch(leaf, &bounds, counted)
}

fn scan_node(of: &Scanned<'_>, scan: &Scan<'_>, bounds: &ScanBounds, counted: &Counted) -> Node {
    let fields = |out: &mut DocBuilder| {
        out.append("keyPattern", of.key).append("indexName", of.name);
        out.append("isMultiKey", scan.multikey != 0).start_document("multiKeyPaths");
        for (at, field) in scan.fields.iter().enumerate() {
            out.start_array(&field.path);
            if scan.multikey & (1 << at) != 0 {
                // Which part of a path met the array is not kept.
                out.push(field.parts.first().map_or("", String::as_str));
            }
            out.end();
        }
        out.end();
        out.append("isUnique", of.unique).append("isSparse", of.sparse);
        out.append("isPartial", of.partial).append("indexVersion", 2);
        out.append("direction", if scan.backward { "backward" } else { "forward" });
        out.append("indexBounds", &bounds.text);
    };
    let tested = if scan.multikey != 0 { counted.keys } else { 0 };
    let dropped = tested.saturating_sub(counted.documents);
    let stage = Node::new("IXSCAN").with(fields);
    stage.did(counted.keys - dropped, counted.keys, counted.at_end).counting(|out| {
        out.append("keysExamined", number(counted.keys));
        out.append("seeks", number(scan.ranges.len() as u64));
        out.append("dupsTested", number(tested)).append("dupsDropped", number(dropped));
    })
}

fn sort(
    pattern: RawDoc<'_>,
    most: Option<u64>,
    explained: &Explained<'_>,
    counted: &Counted,
) -> Node {
    let limit = explained.budget.limits().of(Operator::Sort);
    let stage = Node::new("SORT").with(|out| {
        out.append("sortPattern", pattern).append("memLimit", number(limit as u64));
        if let Some(most) = most {
            out.append("limitAmount", number(most));
        }
        out.append("type", "simple");
    });
    stage.counting(|out| {
        let spilled = counted.sort.memory.spilled;
        out.append("totalDataSizeSorted", number(counted.sort.bytes));
        out.append("usedDisk", spilled.spills > 0).append("spills", number(spilled.spills));
        out.append("spilledBytes", number(spilled.bytes));
        out.append("spilledRecords", number(spilled.records));
        out.append("spilledDataStorageSize", number(spilled.file_bytes));
    })
}

/// The projection of stages that look at these paths.
fn shown(paths: &[String]) -> DocBuf {
    let mut out = DocBuilder::new();
    for path in paths {
        out.append(path, 1);
    }
    if !paths.iter().any(|path| path == "_id") {
        out.append("_id", 0);
    }
    out.finish()
}

/// A projection of whole fields is simple.
fn projection_stage(projection: RawDoc<'_>) -> &'static str {
    let simple = projection.iter().all(|field| {
        let value = field.value();
        !field.name().contains(['.', '$']) && (value.is_number() || value.type_name() == "bool")
    });
    if simple { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" }
}

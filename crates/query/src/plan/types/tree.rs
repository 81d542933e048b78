//! Plans: trees of nodes, from the root, which returns results, down to the scans, which read the
//! store.

use super::access::{NearAccess, TextAccess};
use super::scan::{IndexScan, RecordScan};
use mayfly_mql::SortPattern;
use mayfly_storage::{IdKey, Index};
use mayfly_value::shell::Shell;
use mayfly_work::PlanSummary;
use std::sync::Arc;

/// A node of a plan.
#[derive(Clone)]
pub enum Plan {
    /// No results, because no document can match the filter.
    Nothing,
    /// The record with this `_id`.
    Id(IdKey),
    /// A scan of records.
    Records(Arc<RecordScan>),
    /// A scan of an index.
    Index(Arc<IndexScan>),
    /// A text search: documents with their scores.
    Text(Arc<TextAccess>),
    /// A search by distance: documents of a geo index, the nearest first.
    Near(Arc<NearAccess>),
    /// The records that both inputs return.
    And(Box<[Plan; 2]>),
    /// The records of several inputs, one input after the other, without duplicates.
    Or(Vec<Plan>),
    /// The records of several ordered inputs, merged in this order, without duplicates.
    Merge {
        /// Index scans, each in the order of `pattern`.
        inputs: Vec<Plan>,
        /// The order of all inputs and of the result.
        pattern: SortPattern,
        /// Whether no record is in two inputs, because they are parts of one index without arrays.
        disjoint: bool,
    },
    /// Reads the documents of records and applies the residual filter.
    Fetch(Box<Plan>),
    /// Builds documents from index entries.
    Covered(Box<Plan>),
    /// Results for a caller that does not need documents, such as a count.
    Keys(Box<Plan>),
    /// A blocking sort in the query's order.
    Sort {
        /// The input to be sorted.
        input: Box<Plan>,
        /// Number of results for a top-k sort.
        most: Option<u64>,
    },
    /// Drops the first results.
    Skip {
        /// The input.
        input: Box<Plan>,
        /// Number of results to drop.
        count: u64,
    },
    /// Returns the first results.
    Limit {
        /// The input.
        input: Box<Plan>,
        /// Number of results to return.
        count: u64,
    },
}

/// The index whose use a plan counts.
pub(crate) enum UsedIndex<'p> {
    /// The index on `_id`, or the order of records by `_id`.
    Id,
    /// Another index.
    Other(&'p Index),
}

impl From<IndexScan> for Plan {
    fn from(scan: IndexScan) -> Plan {
        Plan::Index(Arc::new(scan))
    }
}

impl From<RecordScan> for Plan {
    fn from(scan: RecordScan) -> Plan {
        Plan::Records(Arc::new(scan))
    }
}

impl Plan {
    /// The inputs of the node.
    pub fn inputs(&self) -> &[Plan] {
        match self {
            Plan::And(inputs) => &**inputs,
            Plan::Or(inputs) | Plan::Merge { inputs, .. } => inputs,
            Plan::Fetch(input)
            | Plan::Covered(input)
            | Plan::Keys(input)
            | Plan::Sort { input, .. }
            | Plan::Skip { input, .. }
            | Plan::Limit { input, .. } => std::slice::from_ref(input),
            Plan::Nothing
            | Plan::Id(_)
            | Plan::Records(_)
            | Plan::Index(_)
            | Plan::Text(_)
            | Plan::Near(_) => &[],
        }
    }

    /// The index that the node itself reads. The entries of a clustered `_id` are the records.
    #[inline]
    pub(crate) fn used_index(&self) -> Option<UsedIndex<'_>> {
        match self {
            Plan::Id(_) => Some(UsedIndex::Id),
            // A whole scan does not use the order of the records.
            Plan::Records(scan) => (!scan.is_whole()).then_some(UsedIndex::Id),
            Plan::Index(scan) if scan.index.spec.name() == "_id_" => Some(UsedIndex::Id),
            Plan::Index(scan) => Some(UsedIndex::Other(&scan.index)),
            Plan::Text(text) => Some(UsedIndex::Other(&text.index)),
            Plan::Near(near) => Some(UsedIndex::Other(&near.index)),
            Plan::Nothing
            | Plan::And(_)
            | Plan::Or(_)
            | Plan::Merge { .. }
            | Plan::Fetch(_)
            | Plan::Covered(_)
            | Plan::Keys(_)
            | Plan::Sort { .. }
            | Plan::Skip { .. }
            | Plan::Limit { .. } => None,
        }
    }

    /// Whether the node itself keeps more than a position between batches.
    fn buffers(&self) -> bool {
        match self {
            Plan::Text(_) | Plan::Near(_) | Plan::And(_) | Plan::Or(_) | Plan::Sort { .. } => true,
            // Returned records are kept where a record may come twice.
            Plan::Merge { disjoint, .. } => !disjoint,
            Plan::Index(scan) => scan.multikey != 0 || scan.repeats,
            Plan::Nothing
            | Plan::Id(_)
            | Plan::Records(_)
            | Plan::Fetch(_)
            | Plan::Covered(_)
            | Plan::Keys(_)
            | Plan::Skip { .. }
            | Plan::Limit { .. } => false,
        }
    }

    /// Whether the plan keeps more than a position between batches.
    pub(crate) fn buffers_between_batches(&self) -> bool {
        self.any(&mut |node| node.buffers())
    }

    /// The paths of the index key that led to a document.
    pub(crate) fn key_paths(&self) -> Vec<String> {
        let by_index = |scan: &Arc<IndexScan>| {
            scan.index.spec.fields().iter().map(|field| field.path.clone()).collect()
        };
        match self.source() {
            Plan::Index(_) | Plan::Merge { .. } => {
                self.index_scan().map(by_index).unwrap_or_default()
            }
            Plan::Near(near) => vec![near.path.clone()],
            _ if self.is_by_id() => vec!["_id".to_owned()],
            // Text indexes, and nodes that combine indexes, have no key for a document.
            _ => Vec::new(),
        }
    }

    /// Whether the keys that led to a document are those of `_id`, with the collection's collation.
    pub(crate) fn is_by_id(&self) -> bool {
        match self.source() {
            Plan::Id(_) => true,
            Plan::Records(scan) => !scan.is_whole(),
            _ => false,
        }
    }

    /// Whether a predicate holds for the node or any node below it.
    pub fn any(&self, holds: &mut dyn FnMut(&Plan) -> bool) -> bool {
        holds(self) || self.inputs().iter().any(|input| input.any(holds))
    }

    /// The leaf of the plan, or the node that combines several inputs.
    pub fn source(&self) -> &Plan {
        match (self, self.inputs()) {
            (Plan::And(_) | Plan::Or(_) | Plan::Merge { .. }, _) => self,
            (_, [input]) => input.source(),
            _ => self,
        }
    }

    /// The index scan at the leaf, or the first of several scans of one index.
    pub fn index_scan(&self) -> Option<&Arc<IndexScan>> {
        match self.source() {
            Plan::Index(scan) => Some(scan),
            Plan::Merge { inputs, .. } => {
                let first = inputs.first()?.index_scan()?;
                let same = |input: &Plan| {
                    input.index_scan().is_some_and(|scan| scan.index.id() == first.index.id())
                };
                inputs.iter().all(same).then_some(first)
            }
            _ => None,
        }
    }

    /// Whether results are collected and sorted before the first is returned.
    pub fn blocking_sort(&self) -> bool {
        self.any(&mut |node| matches!(node, Plan::Sort { .. }))
    }

    /// Whether the plan builds documents from keys and reads no records.
    pub(crate) fn is_covered(&self) -> bool {
        self.any(&mut |node| matches!(node, Plan::Covered(_)))
    }

    /// Whether every key that the source returns is a result.
    pub(crate) fn is_exact(&self) -> bool {
        let exact = |plan: &Plan| matches!(plan, Plan::Index(scan) if scan.exact);
        match self.source() {
            Plan::Or(inputs) => inputs.iter().all(exact),
            source => exact(source),
        }
    }

    /// Whether the plan reads only a part of its index or of the records.
    pub(crate) fn is_bounded(&self) -> bool {
        match self.source() {
            Plan::Index(scan) => scan.is_bounded(),
            Plan::Records(scan) => !scan.is_whole(),
            _ => true,
        }
    }

    /// The plan with covered projections replaced by fetches, for callers that need whole records.
    pub(crate) fn reading(self) -> Plan {
        self.changed(&mut |node| match node {
            Plan::Covered(input) => Plan::Fetch(input),
            other => other,
        })
    }

    /// The plan for callers that do not need documents: fetches are dropped where keys suffice.
    pub(crate) fn without_documents(self) -> Plan {
        match self.is_exact() && !self.blocking_sort() {
            true => self.changed(&mut |node| match node {
                Plan::Fetch(input) | Plan::Covered(input) => Plan::Keys(input),
                other => other,
            }),
            false => self,
        }
    }

    fn changed(self, change: &mut dyn FnMut(Plan) -> Plan) -> Plan {
        let mut below = |input: Box<Plan>| Box::new(input.changed(change));
        let node = match self {
            Plan::Fetch(input) => Plan::Fetch(below(input)),
            Plan::Covered(input) => Plan::Covered(below(input)),
            Plan::Keys(input) => Plan::Keys(below(input)),
            Plan::Sort { input, most } => Plan::Sort { input: below(input), most },
            Plan::Skip { input, count } => Plan::Skip { input: below(input), count },
            Plan::Limit { input, count } => Plan::Limit { input: below(input), count },
            // Below these nodes, plans return record keys and not documents.
            node @ (Plan::And(_) | Plan::Or(_) | Plan::Merge { .. }) => node,
            node @ (Plan::Nothing
            | Plan::Id(_)
            | Plan::Records(_)
            | Plan::Index(_)
            | Plan::Text(_)
            | Plan::Near(_)) => node,
        };
        change(node)
    }

    /// The scan whose entries are only counted; explain calls it `COUNT_SCAN`.
    fn counted(&self) -> Option<&IndexScan> {
        match self {
            Plan::Skip { input, .. } | Plan::Limit { input, .. } => input.counted(),
            Plan::Keys(input) => match &**input {
                Plan::Index(scan) if scan.has_one_range() => Some(scan),
                _ => None,
            },
            _ => None,
        }
    }

    /// The plan as `planSummary` shows it.
    pub fn summary(&self) -> PlanSummary {
        if let Some(scan) = self.counted() {
            return format!("COUNT_SCAN {}", Shell(scan.index.spec.key())).into();
        }
        match self.source() {
            Plan::Id(_) => PlanSummary::BY_ID,
            Plan::Records(scan) if scan.is_whole() => PlanSummary::COLLECTION_SCAN,
            Plan::Records(scan) if scan.clustered => "CLUSTERED_IXSCAN".into(),
            Plan::Records(_) => "IXSCAN { _id: 1 }".into(),
            Plan::Text(text) => format!("IXSCAN {}", Shell(text.index.spec.key())).into(),
            Plan::Index(scan) => {
                let one = scan.one_per_value.is_some();
                let stage = if one { "DISTINCT_SCAN" } else { "IXSCAN" };
                format!("{stage} {}", Shell(scan.index.spec.key())).into()
            }
            Plan::Near(near) => format!("{} {}", near.stage(), Shell(near.index.spec.key())).into(),
            several @ (Plan::And(_) | Plan::Or(_) | Plan::Merge { .. }) => {
                let inputs = several.inputs();
                let mut all: Vec<_> = inputs.iter().map(|one| one.summary()).collect();
                all.dedup();
                match <[PlanSummary; 1]>::try_from(all) {
                    Ok([one]) => one,
                    Err(all) => all.iter().map(|one| &**one).collect::<Vec<_>>().join(", ").into(),
                }
            }
            _ => "EOF".into(),
        }
    }
}

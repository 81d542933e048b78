//! A plan: a tree of nodes, from the one that gives results down to those that read the store.

use std::sync::Arc;

use mayfly_mql::{Matcher, SortPattern};
use mayfly_storage::{Direction, IdKey, Index, IndexField, KeyRange, whole_range};
use mayfly_value::shell::Shell;
use mayfly_work::PlanSummary;

use super::interval::Interval;
use super::{NearAccess, OnePerValue, TextAccess};

/// A node of a plan.
#[derive(Clone)]
pub enum Plan {
    /// The filter cannot hold for any document.
    Nothing,
    /// One record by its `_id`.
    Id(IdKey),
    /// Records in their order.
    Records(Arc<RecordScan>),
    /// Entries of an index.
    Index(Arc<IndexScan>),
    /// Entries of the text index, under the terms of a search; the documents of the records with their scores.
    Text(Arc<TextAccess>),
    /// Documents by an index of places, the nearest first.
    Near(Arc<NearAccess>),
    /// The records that both inputs have.
    And(Box<[Plan; 2]>),
    /// The records of several inputs one after the other, each once.
    Or(Vec<Plan>),
    /// The records of several inputs, each of which has this order, in that order, each once.
    Merge {
        /// Scans of indexes.
        inputs: Vec<Plan>,
        /// The order.
        pattern: SortPattern,
        /// Whether they are parts of one index without arrays: then no record comes twice.
        disjoint: bool,
    },
    /// The documents of records that satisfy the filter.
    Fetch(Box<Plan>),
    /// Documents made of what the entries of an index hold.
    Covered(Box<Plan>),
    /// Results that nobody looks at.
    Keys(Box<Plan>),
    /// Documents in the query's order, which they do not come in.
    Sort {
        /// What is sorted.
        input: Box<Plan>,
        /// Only so many of the first are wanted.
        most: Option<u64>,
    },
    /// All but the first.
    Skip {
        /// What is left out of.
        input: Box<Plan>,
        /// How many are left out.
        count: u64,
    },
    /// The first.
    Limit {
        /// What is taken of.
        input: Box<Plan>,
        /// How many are taken.
        count: u64,
    },
}

/// A scan of records: by insertion, by `_id` where they are clustered by it, by their start in a collection of buckets.
#[derive(Clone)]
pub struct RecordScan {
    /// In the order of the scan.
    pub ranges: Vec<KeyRange>,
    /// Direction of the scan.
    pub direction: Direction,
    /// What the ranges say of the filter.
    pub(crate) said: Said,
    /// The order of `_id` was asked for, as an index would give it.
    pub(crate) by_id: bool,
    /// The collection was made to be in this order: nobody thinks of an index.
    pub(crate) clustered: bool,
}

/// A scan of an index.
#[derive(Clone)]
pub struct IndexScan {
    /// Which.
    pub index: Arc<Index>,
    /// In the order of the scan.
    pub ranges: Vec<KeyRange>,
    /// Direction of the scan.
    pub direction: Direction,
    /// Whether the ranges say all that the filter says, as long as the index has no more arrays than it had.
    pub exact: bool,
    /// Whether the index is asked for single values only: few documents, as a rule.
    pub narrow: bool,
    /// The fields of its entries that held arrays when it was planned, one bit for each.
    pub multikey: u32,
    /// Whether the index may show one document several times, though none of its values is an array.
    pub repeats: bool,
    /// Whether entries are passed over whose first value was shown already.
    pub one_per_value: Option<OnePerValue>,
    /// The fields of the index's entries where they are not those of its definition: a wildcard stands for one path.
    pub fields: Option<Vec<IndexField>>,
    /// Where the values of further fields lie: an entry for which one does not is passed over.
    pub checks: Vec<EntryCheck>,
    /// What the bounds say of the filter.
    pub(crate) said: Said,
    /// What is tested on the keys.
    pub(crate) key_filter: Option<Arc<Matcher>>,
}

/// What the bounds of a plan say of the filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// What bounds each field of the index; nothing for all values.
    pub(crate) intervals: Vec<Option<Vec<Interval>>>,
    /// The outermost conditions that the bounds say all of.
    pub(crate) covered: Vec<usize>,
}

/// Where a field of an index's entries must lie that the ranges do not bound.
#[derive(Clone)]
pub struct EntryCheck {
    /// Its place among the fields.
    pub at: usize,
    /// Ascending and disjoint, as ordered keys in the field's direction.
    pub ranges: Vec<KeyRange>,
}

impl RecordScan {
    /// Whether it looks at every record.
    pub fn is_whole(&self) -> bool {
        is_whole(&self.ranges)
    }

    /// Whether it is explained as a scan of the collection, and not of an index on `_id`.
    pub(crate) fn is_of_collection(&self) -> bool {
        self.is_whole() && !self.by_id
    }
}

impl IndexScan {
    /// A scan of these ranges, of which nothing is known.
    pub(super) fn new(index: Arc<Index>, ranges: Vec<KeyRange>, direction: Direction) -> IndexScan {
        IndexScan {
            multikey: index.multikey_mask(),
            index,
            ranges,
            direction,
            exact: false,
            narrow: false,
            repeats: false,
            one_per_value: None,
            fields: None,
            checks: Vec::new(),
            said: Said::default(),
            key_filter: None,
        }
    }

    /// The fields of its entries.
    pub fn fields(&self) -> &[IndexField] {
        self.fields.as_deref().unwrap_or(self.index.spec.fields())
    }

    /// Whether it looks at a part of its index only, or at an index that has a part of the documents.
    pub(crate) fn is_bounded(&self) -> bool {
        !is_whole(&self.ranges) || self.index.spec.sparse() || self.index.is_partial()
    }
}

pub(crate) fn is_whole(ranges: &[KeyRange]) -> bool {
    matches!(ranges, [only] if *only == whole_range())
}

impl Plan {
    /// What the node takes from.
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

    /// The nodes below it, and itself, that hold for this.
    pub fn any(&self, holds: &mut dyn FnMut(&Plan) -> bool) -> bool {
        holds(self) || self.inputs().iter().any(|input| input.any(holds))
    }

    /// The only node that reads the store to find records, or the one that takes from several.
    pub fn source(&self) -> &Plan {
        match (self, self.inputs()) {
            (Plan::And(_) | Plan::Or(_) | Plan::Merge { .. }, _) => self,
            (_, [input]) => input.source(),
            _ => self,
        }
    }

    /// The scan of an index that it stands on, when it is one, or the first of several parts of one index.
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

    /// Whether results must be collected and sorted.
    pub fn blocking_sort(&self) -> bool {
        self.any(&mut |node| matches!(node, Plan::Sort { .. }))
    }

    /// Whether no documents are read, because keys have all that is shown.
    pub(crate) fn is_covered(&self) -> bool {
        self.any(&mut |node| matches!(node, Plan::Covered(_)))
    }

    /// Whether every result is a key that its source gives.
    pub(crate) fn is_exact(&self) -> bool {
        let exact = |plan: &Plan| matches!(plan, Plan::Index(scan) if scan.exact);
        match self.source() {
            Plan::Or(inputs) => inputs.iter().all(exact),
            source => exact(source),
        }
    }

    /// Whether it looks at a part of its index, or of the records, only.
    pub(crate) fn is_bounded(&self) -> bool {
        match self.source() {
            Plan::Index(scan) => scan.is_bounded(),
            Plan::Records(scan) => !scan.is_whole(),
            _ => true,
        }
    }

    /// The same with documents read for whoever looks at more than a key has.
    pub(crate) fn reading(self) -> Plan {
        self.changed(&mut |node| match node {
            Plan::Covered(input) => Plan::Fetch(input),
            other => other,
        })
    }

    /// The same for somebody who does not look at documents.
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
            other => other,
        };
        change(node)
    }

    /// As `planSummary` shows it.
    pub fn summary(&self) -> PlanSummary {
        match self.source() {
            Plan::Id(_) => "IDHACK".into(),
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

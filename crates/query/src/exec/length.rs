//! An estimate of how long the first batch of a plan takes, from the plan and from what is known of
//! the collection.

use mayfly_work::LONG_BYTES;

use super::Executor;
use crate::plan::{Plan, is_whole};

/// Reading this many documents counts as short work.
const FEW_DOCUMENTS: u64 = 1000;

/// The approximate number of documents that a narrow index scan finds.
const NARROW_DOCUMENTS: i64 = 16;

impl Executor {
    /// Whether the first batch may examine many documents: a scan, a sort, a range without a limit,
    /// a script. Such work must leave the runtime's thread first; for shorter work leaving would
    /// cost more than the work.
    pub fn may_take_long(&self) -> bool {
        // A script may loop on its first document.
        if self.query.matcher.computes() {
            return true;
        }
        if self.may_give_much() {
            return true;
        }
        if self.collection.known_documents() <= FEW_DOCUMENTS as i64 {
            return false;
        }
        let few = |documents: Option<u64>| {
            documents.is_some_and(|most| most.saturating_add(self.query.skip) <= FEW_DOCUMENTS)
        };
        let narrow = |plan: &Plan| match plan {
            Plan::Nothing | Plan::Id(_) => true,
            Plan::Index(scan) => scan.narrow,
            _ => false,
        };
        // A trial may take long as well.
        let tries = self.trial.as_ref().is_some_and(|trial| trial.allowed().is_none());
        if tries || self.plan.blocking_sort() {
            return true;
        }
        match self.plan.source() {
            Plan::Or(inputs) | Plan::Merge { inputs, .. } => !inputs.iter().all(narrow),
            Plan::Records(scan) => scan.is_whole() || !few(self.query.limit),
            Plan::Index(scan) => {
                let bounded =
                    scan.ranges.iter().all(|range| !is_whole(std::slice::from_ref(range)));
                // If every entry is a result, a batch fills quickly.
                let exact = scan.exact && scan.multikey == 0 && !scan.repeats;
                let exact = exact && !self.finds_for_write() && !self.collection.hides_expired();
                let limited = few(self.query.limit) || exact && few(self.expected);
                !(scan.narrow || bounded && limited)
            }
            other => !narrow(other),
        }
    }

    /// Whether documents are so large that even a few of them in the first batch are megabytes.
    fn may_give_much(&self) -> bool {
        let (documents, bytes) = self.collection.known_size();
        // Judged by the average size: a read by `_id`, the most frequent query, is short if
        // documents are small.
        let are_small = bytes <= documents.saturating_mul(LONG_BYTES as i64);
        if bytes <= LONG_BYTES as i64 || are_small && matches!(self.plan, Plan::Id(_)) {
            return false;
        }
        let found = match self.plan.source() {
            Plan::Nothing => 0,
            Plan::Id(_) => 1,
            Plan::Index(scan) if scan.narrow => NARROW_DOCUMENTS,
            // For a large collection of small documents, the other rules decide.
            _ => documents.min(FEW_DOCUMENTS as i64),
        };
        let requested = self.query.limit.or(self.expected).map_or(i64::MAX, |most| most as i64);
        let average = bytes / documents.max(1);
        average.saturating_mul(found.min(requested)) > LONG_BYTES as i64
    }
}

//! Completes a way to a plan: adds fetch, sort, skip and limit above the scan.

use std::sync::Arc;

use mayfly_storage::Collection;

use super::covering::{covers, key_filter};
use crate::language::{CanonicalQuery, Hint};
use crate::plan::types::scan::{IndexScan, RecordScan};
use crate::plan::types::tree::Plan;
use crate::plan::types::way::Way;
use crate::plan::ways::records::is_clustered;

/// The complete plan over a way.
pub(crate) fn built(collection: &Collection, query: &CanonicalQuery, way: Way) -> Plan {
    let Way { plan, unordered } = way;
    let mut skip = query.skip;
    let plan = match plan {
        Plan::Index(scan) => {
            // Where each key is a result, skipped results are dropped before their documents are
            // read.
            let early = scan.exact && !unordered && !collection.hides_expired();
            let below = if early { std::mem::take(&mut skip) } else { 0 };
            over_index(collection, query, scan, unordered, below)
        }
        Plan::And(_) | Plan::Or(_) | Plan::Merge { .. } => Plan::Fetch(Box::new(plan)),
        Plan::Records(scan) if asks_for_id(query, unordered) && !is_clustered(collection) => {
            let scan = RecordScan { by_id: true, ..Arc::unwrap_or_clone(scan) };
            Plan::Records(Arc::new(scan))
        }
        other => other,
    };
    let plan = match unordered {
        true => {
            let most = query.limit.map(|limit| limit.saturating_add(query.skip));
            Plan::Sort { input: Box::new(plan), most }
        }
        false => plan,
    };
    let plan = without_first(plan, skip);
    match query.limit {
        Some(count) => Plan::Limit { input: Box::new(plan), count },
        None => plan,
    }
}

fn over_index(
    collection: &Collection,
    query: &CanonicalQuery,
    scan: Arc<IndexScan>,
    unordered: bool,
    skip: u64,
) -> Plan {
    if !unordered && covers(collection, query, &scan) {
        return Plan::Covered(Box::new(without_first(Plan::Index(scan), skip)));
    }
    let scan = match key_filter(query, &scan) {
        None => scan,
        found => {
            let mut scan = Arc::unwrap_or_clone(scan);
            scan.key_filter = found;
            Arc::new(scan)
        }
    };
    match scan.one_per_value.is_some() {
        true => without_first(Plan::Index(scan), skip),
        false => Plan::Fetch(Box::new(without_first(Plan::Index(scan), skip))),
    }
}

fn without_first(plan: Plan, count: u64) -> Plan {
    match count {
        0 => plan,
        count => Plan::Skip { input: Box::new(plan), count },
    }
}

/// Whether the query requests the order of `_id`, which must look like a scan of the `_id` index.
fn asks_for_id(query: &CanonicalQuery, unordered: bool) -> bool {
    let hinted = match &query.hint {
        Some(Hint::Name(_) | Hint::Key(_)) => true,
        Some(Hint::Between { index, .. }) => matches!(**index, Hint::Name(_) | Hint::Key(_)),
        Some(Hint::Natural { .. }) | None => false,
    };
    hinted || (query.sort.is_some() && !unordered)
}

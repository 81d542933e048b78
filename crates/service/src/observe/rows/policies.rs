//! TTL policies, one by one. `serverStatus` does not have these figures: the command `ttlStatus`
//! returns more about each policy.

use super::long;
use crate::counters::{DUE_LIMIT, PolicyFigure};
use crate::observe::figure::{Figure, Points, Unit, counter, gauge};
use crate::observe::reading::Reading;

/// The number of policies that have figures of their own: those with most lag.
const LISTED: usize = 500;

pub(super) const ROWS: &[Figure] = &[
    gauge(
        "ttlStatus.{db}.{collection}.{index}.oldestOverdueSecs",
        "mayflydb_ttl_overdue_seconds",
        "For how long the oldest due document of a policy has been due; of the 500 policies with most lag.",
    )
    .unit(Unit::Millis)
    .each(|r, out| each(r, out, |policy| policy.overdue_ms)),
    gauge(
        "ttlStatus.{db}.{collection}.{index}.due",
        "mayflydb_ttl_due_documents",
        "Due documents of a policy, counted up to 10,000 and not at each reading.",
    )
    .each(|r, out| each(r, out, |policy| policy.due)),
    counter(
        "ttlStatus.{db}.{collection}.{index}.deleted",
        "mayflydb_ttl_policy_deleted_documents_total",
        "Documents that a policy has deleted.",
    )
    .each(|r, out| each(r, out, |policy| policy.deleted)),
    gauge(
        "ttlStatus.unlisted",
        "mayflydb_ttl_policies_unlisted",
        "Policies without figures of their own: those after the 500 with most lag.",
    )
    .read(|r| long(r.policies().len().saturating_sub(LISTED) as u64)),
];

/// Adds a figure of each listed policy.
fn each(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&PolicyFigure) -> i64) {
    for policy in reading.policies().iter().take(LISTED) {
        out.add(&[&policy.db, &policy.collection, &policy.index], of(policy));
    }
}

// The texts of help name these numbers.
const _: () = assert!(DUE_LIMIT == 10_000 && LISTED == 500);

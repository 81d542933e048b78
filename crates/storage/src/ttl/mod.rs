//! Expiry: the monitor that deletes what is due, and the rules that say what that is.
//!
//! The story of a TTL delete:
//! 1. the monitor's thread sleeps until `ttlMonitorSleepSecs` are over ([`TtlMonitor`]) and begins a pass;
//! 2. a pass is a sequence of sub-passes; each asks the catalog anew which policies there are: TTL indexes, and
//!    collections with a time to live ([`pass`]);
//! 3. a sub-pass visits them in turn; a visit ([`visit`]) scans from the oldest date up to the cutoff, as the policy's rule
//!    ([`rule`]) says;
//! 4. each batch of found records is a write unit that reads the record again and checks its dates again, so that a document
//!    refreshed meanwhile survives;
//! 5. record, index keys and an oplog entry that names the rule go in one transaction.
//!
//! Everything that decides is a function over plain values; the thread only waits and calls.

mod archive;
mod census;
mod monitor;
pub(crate) mod pass;
pub(crate) mod report;
mod rule;
mod status;
pub(crate) mod suspension;
mod visit;

pub use census::Census;
pub use monitor::TtlMonitor;
pub use pass::PassState;
pub use report::VisitReport;
pub use status::PolicyStatus;

pub use crate::policy::TtlStats;
pub use crate::write::{ArchivePlace, ArchiveSink};

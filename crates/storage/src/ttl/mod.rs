//! Expiry: the monitor that deletes due documents, and the rules that determine them.
//!
//! A TTL deletion takes these steps; `README.md` in this folder describes them in detail.
//! 1. The monitor's thread sleeps for `ttlMonitorSleepSecs` ([`TtlMonitor`]) and starts a pass.
//! 2. A pass is a sequence of sub-passes. Each reads the present policies from the catalog: TTL
//!    indexes, and collections with a time to live ([`pass`]).
//! 3. A sub-pass visits the policies in turn. A visit ([`visit`]) scans from the oldest date to the
//!    cutoff, as the policy's rule ([`rule`]) defines.
//! 4. Each batch of found records is a write unit that reads the records again and checks their
//!    dates again, so that a document that was updated meanwhile survives.
//! 5. Record, index keys and an oplog entry that names the policy are written in one transaction.
//!
//! All decisions are functions over plain values; the thread only waits and calls them.

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
pub use status::{DueCount, PolicyStatus};

pub use crate::policy::TtlStats;
pub use crate::write::{ArchivePlace, ArchiveSink};

//! What `currentOp` reports of an operation.

use std::sync::Arc;

use crate::PlanSummary;

/// The fields that `currentOp` reports for an operation, apart from its counters. BSON members are
/// raw documents.
#[derive(Clone, Debug, Default)]
pub struct OpInfo {
    /// The connection or background task: `conn12`, `TTLMonitor`.
    pub desc: Arc<str>,
    /// The kind, in the reference's words: `query`, `insert`, `update`, `remove`, `getmore`,
    /// `command`, `none`.
    pub op: &'static str,
    /// The namespace, empty when there is none.
    pub ns: String,
    /// The command as a BSON document, empty when there is none.
    pub command: Vec<u8>,
    /// The command that opened the cursor of a `getMore`, as a BSON document.
    pub originating_command: Option<Arc<[u8]>>,
    /// The plan in short, for example `IXSCAN { a: 1 }`.
    pub plan_summary: PlanSummary,
    /// The connection it came in on, 0 for the server's own.
    pub connection_id: i64,
    /// The client's address, empty for the server's own.
    pub client: Arc<str>,
    /// The logical session (`lsid` document), empty when there is none.
    pub lsid: Vec<u8>,
    /// The progress of a long operation.
    pub progress: Option<OpProgress>,
    /// Further fields as a BSON document (for example `ttl: {...}`), empty when there are none.
    pub extra: Vec<u8>,
}

/// The progress of a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpProgress {
    /// The current phase.
    pub message: &'static str,
    /// Items completed; the message names their kind.
    pub done: u64,
    /// The expected number of items.
    pub total: u64,
}

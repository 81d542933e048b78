//! The access path of an operation in one line.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// `planSummary` as `currentOp`, the profiler and the log report it, and whether it is a collection
/// scan: `top` counts those without parsing the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanSummary {
    text: Cow<'static, str>,
    is_collection_scan: bool,
}

impl PlanSummary {
    /// A scan of a whole collection.
    pub const COLLECTION_SCAN: PlanSummary =
        PlanSummary { text: Cow::Borrowed("COLLSCAN"), is_collection_scan: true };

    /// A read of one document by its `_id`.
    pub const BY_ID: PlanSummary =
        PlanSummary { text: Cow::Borrowed("IDHACK"), is_collection_scan: false };

    /// The summary of an operation without a plan: an empty text.
    pub const NONE: PlanSummary =
        PlanSummary { text: Cow::Borrowed(""), is_collection_scan: false };

    /// Whether a whole collection is scanned.
    pub fn is_collection_scan(&self) -> bool {
        self.is_collection_scan
    }
}

impl From<&'static str> for PlanSummary {
    fn from(text: &'static str) -> PlanSummary {
        PlanSummary { text: Cow::Borrowed(text), is_collection_scan: false }
    }
}

impl From<String> for PlanSummary {
    fn from(text: String) -> PlanSummary {
        PlanSummary { text: Cow::Owned(text), is_collection_scan: false }
    }
}

impl From<PlanSummary> for String {
    fn from(summary: PlanSummary) -> String {
        summary.text.into_owned()
    }
}

impl Deref for PlanSummary {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

//! The parameter `notablescan`: queries that would scan a whole collection fail. Manual: "MongoDB
//! Server Parameters", "notablescan".
//!
//! As in the reference, queries without conditions and queries on the server's own collections may
//! scan.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::Collection;

use crate::language::{CanonicalQuery, Hint};
use crate::plan::types::settings::PlannerSettings;
use crate::plan::types::tree::Plan;

/// Databases that belong to the server.
const OWN_DATABASES: &[&str] = &["admin", "config", "local"];

/// Rejects a collection scan if the parameter forbids it.
///
/// # Errors
/// 291 NoQueryExecutionPlans.
pub(crate) fn check(collection: &Collection, query: &CanonicalQuery, plan: &Plan) -> Result<()> {
    match plan.source() {
        Plan::Records(scan)
            if scan.is_of_collection()
                && PlannerSettings::of(collection).no_table_scan.load(Relaxed) =>
        {
            refuse(collection, query)
        }
        _ => Ok(()),
    }
}

#[cold]
fn refuse(collection: &Collection, query: &CanonicalQuery) -> Result<()> {
    let namespace = collection.namespace();
    let own = OWN_DATABASES.contains(&namespace.db())
        || namespace.collection().starts_with("system.")
        || collection.time_series().is_some();
    if own || query.matcher.root().to_document().as_doc().is_empty() {
        return Ok(());
    }
    let why = match &query.hint {
        Some(Hint::Natural { .. }) => {
            "hint $natural is not allowed, because 'notablescan' is enabled"
        }
        _ => "No indexed plans available, and running with 'notablescan'",
    };
    let text = format!(
        "error processing query: ns={namespace} planner returned error :: caused by :: {why}"
    );
    Err(Error::new(ErrorCode::NoQueryExecutionPlans, text))
}

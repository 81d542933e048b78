//! Whether clients may write, stored over restarts: `setUserWriteBlockMode`. The store does the
//! check ([`mayfly_storage::Writer::block_user_writes`]).
//!
//! ```text
//! config.user_writes_critical_sections   { _id: "", blockNewUserShardedDDL, blockUserWrites, userWritesBlockReason? }
//! ```

use mayfly_base::Result;
use mayfly_storage::Store;
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::OpCtx;

use super::stored::{put, read};

const PLACE: (&str, &str) = ("user_writes_critical_sections", "");

/// The reason if none is given.
pub const UNSPECIFIED: &str = "Unspecified";
/// The valid reasons.
pub const REASONS: &[&str] =
    &[UNSPECIFIED, "ClusterToClusterMigrationInProgress", "DiskUseThresholdExceeded"];

/// Blocks writes if they were blocked when the server stopped.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn load(store: &Store) -> Result<()> {
    let Some(stored) = read(store, PLACE)? else { return Ok(()) };
    let stored = stored.as_doc();
    if stored.get("blockUserWrites") == Some(RawValue::Bool(true)) {
        let reason = stored.get("userWritesBlockReason").and_then(RawValue::as_str);
        let reason = REASONS.iter().find(|known| Some(**known) == reason);
        store.block_user_writes(Some(reason.unwrap_or(&UNSPECIFIED)))?;
    }
    Ok(())
}

/// Blocks writes for this reason, or allows them again, now and after a restart.
///
/// # Errors
/// Errors of the engine; the old mode stays in effect. Errors of the operation's deadline while
/// running writes are awaited; the new mode is in effect.
pub fn set(store: &Store, op: &OpCtx, reason: Option<&'static str>) -> Result<()> {
    let mut out = DocBuilder::new();
    out.append("_id", PLACE.1);
    out.append("blockNewUserShardedDDL", reason.is_some());
    out.append("blockUserWrites", reason.is_some());
    if let Some(reason) = reason {
        out.append("userWritesBlockReason", reason);
    }
    put(store, op, PLACE, out.finish().as_doc())?;
    store.block_user_writes(reason)
}

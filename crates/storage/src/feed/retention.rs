//! The log keeps what log-fed indexes and the archive of the log still need, up to a limit. Beyond
//! it an index is *stale*: it lacks entries that were cut, and is built again. The archive notes a
//! gap.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;

use crate::Store;
use crate::catalog::{Collection, Definition, Index, new_index};
use crate::ddl::Replaced;

/// The log may grow to this multiple of its limit while it waits for an index or the archive.
const LONGEST_LOG: u64 = 2;

impl Store {
    /// The timestamp at which the log is due to be cut: before what the slowest log-fed index or
    /// the archive needs, unless the log has become too long.
    pub(crate) fn due_cut(&self) -> Option<u64> {
        let now_ms = self.clock.now_ms();
        let due = self.oplog.due_cut(now_ms, self.oplog.awaited_archive())?;
        let Some(slowest) = self.slowest_feed().filter(|slowest| *slowest < due) else {
            return Some(due);
        };
        let limit = self.oplog.limits().bytes.saturating_mul(LONGEST_LOG);
        match self.oplog.logged_bytes() > limit {
            true => Some(due),
            // The slowest index is before what the archive allows.
            false => self.oplog.due_cut(now_ms, slowest),
        }
    }

    /// Replaces a stale index by an empty one with the same definition, which the next steps
    /// fill. Readers of the old one end, because it lacks documents.
    pub(super) fn build_again(&self, collection: &Collection, old: &Index) -> Result<()> {
        let _changing = self.catalog.lock()?;
        let id = self.new_id()?;
        let mut state = collection.change_state()?;
        self.check_open()?;
        collection.check_alive()?;
        let mut changed = state.clone();
        let Some(at) = changed.indexes.iter().position(|index| index.id == old.id) else {
            return Ok(());
        };
        let ns = collection.namespace();
        tracing::warn!(
            namespace = %ns,
            index = old.spec.name(),
            "the operation log was cut before the index had followed it; the index is built again"
        );
        // Its options may have changed meanwhile.
        let fresh = Arc::new(new_index(id, changed.indexes[at].spec.clone(), &*self.filters)?);
        let gone = std::mem::replace(&mut changed.indexes[at], fresh.clone());
        let replaced = Replaced {
            changed,
            fresh: std::slice::from_ref(&fresh),
            gone: vec![gone],
            // No plan and no write of a transaction uses the index.
            definition: Definition::Building,
        };
        self.publish_replaced(collection, &mut state, replaced, |_, _| {})?;
        self.log_fed_rebuilds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

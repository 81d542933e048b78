//! What a secondary follows besides documents and definitions: the settings of the owner, which are
//! documents that a server reads at its start, and the servers over the store.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{ErrorCode, Result};

use crate::server::Service;
use crate::settings::{ClusterParameters, Defaults, FeatureCompatibility, QuerySettings};

/// How often a member of a set with several members looks at the others.
const EVERY: Duration = Duration::from_millis(250);

impl Service {
    /// Follows the other members until the task is aborted: the members that live, and on a
    /// secondary the settings of the owner.
    pub async fn follow_members(self: Arc<Service>) {
        let (mut followed, mut failed) = (self.store.last_timestamp(), false);
        let mut every = tokio::time::interval(EVERY);
        loop {
            every.tick().await;
            if let Some(set) = self.replica_set.get()
                && set.note_members(self.store.engine().sharing().members())
            {
                self.topology.changed();
            }
            if self.is_cut_off() {
                let code = ErrorCode::InterruptedDueToReplStateChange;
                self.sessions.transactions.abort(code, |_| true);
            }
            let last = self.store.last_timestamp();
            if !self.store.is_secondary() || last == followed {
                continue;
            }
            let service = self.clone();
            let adopted = tokio::task::spawn_blocking(move || service.adopt_settings()).await;
            match adopted {
                Ok(Ok(())) => (followed, failed) = (last, false),
                Ok(Err(error)) if !failed => {
                    failed = true;
                    tracing::warn!(%error, "the settings of the primary could not be read; this is tried again");
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    /// Whether this member has lost the store that it shares with others.
    pub fn is_cut_off(&self) -> bool {
        match self.replica_set.get() {
            Some(set) => set.is_cut_off(&self.store, &self.topology),
            None => self.store.engine().sharing().is_cut_off(),
        }
    }

    /// Reads the settings that the owner has stored.
    fn adopt_settings(&self) -> Result<()> {
        let (store, now_ms) = (&*self.store, self.clock.now_ms());
        self.defaults.adopt(Defaults::load(store, now_ms)?);
        self.feature_compatibility.adopt(&FeatureCompatibility::load(store)?);
        self.cluster_parameters.adopt(ClusterParameters::load(store)?);
        self.query_settings.adopt(&QuerySettings::load(store)?);
        Ok(())
    }
}

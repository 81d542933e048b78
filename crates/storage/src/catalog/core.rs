//! The parts of a store that all higher modules use: the byte store, the catalog, the log, and the
//! clocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Clock, Result};
use mayfly_kv::{Engine, EngineStats};
use mayfly_work::OpRegistry;

use super::definitions::Definitions;
use super::history::History;
use super::{Catalog, Collection, IdHints, OpenPlaces, Settings};
use crate::index::FilterCompiler;
use crate::oplog::Oplog;
use crate::policy::TtlParameters;
use crate::policy::watch::ClockWatch;
use crate::record::Moment;
use crate::record::error::from_kv;

/// A store without background threads.
pub struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) catalog: Catalog,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ops: Arc<OpRegistry>,
    pub(crate) filters: Arc<dyn FilterCompiler>,
    pub(crate) oplog: Oplog,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) history: History,
    pub(crate) id_hints: IdHints,
    pub(crate) open_places: OpenPlaces,
    pub(crate) ttl_params: Arc<TtlParameters>,
    pub(crate) watch: Arc<ClockWatch>,
    /// Whether another process writes the byte store: this one does not know the counts.
    pub(crate) follows_owner: bool,
}

impl Core {
    /// The byte store.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// A new id for a collection or an index.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline.
    pub(crate) fn new_id(&self) -> Result<u64> {
        self.catalog.new_id(self.engine())
    }

    /// Whether the byte store is in another process, so that each call that reads is a round trip.
    pub fn is_remote(&self) -> bool {
        self.engine.caps().is_remote
    }

    /// Checks that the disk has room for this many bytes of temporary files.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace.
    pub fn room_for_files(&self, bytes: u64) -> Result<()> {
        self.engine.scratch(bytes).map(drop).map_err(from_kv)
    }

    /// Statistics of the byte store.
    pub fn engine_stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// All collections in the order of their names, or those of one database.
    pub fn collections(&self, db: Option<&str>) -> Vec<Arc<Collection>> {
        let all = self.catalog.all();
        let mut list: Vec<_> = all
            .iter()
            .filter(|(ns, _)| db.is_none_or(|db| ns.db() == db))
            .map(|(ns, collection)| (ns.clone(), collection.clone()))
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list.into_iter().map(|(_, collection)| collection).collect()
    }

    /// Settings of a higher layer, common to the store.
    pub fn settings(&self) -> &Settings {
        &self.catalog.settings
    }

    /// The TTL monitor's parameters.
    pub fn ttl_params(&self) -> &TtlParameters {
        &self.ttl_params
    }

    pub(crate) fn shared_ttl_params(&self) -> Arc<TtlParameters> {
        self.ttl_params.clone()
    }

    /// The snapshots that later reads may use again.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The operation log.
    pub fn oplog(&self) -> &Oplog {
        &self.oplog
    }

    /// The present time, with the rules for due documents.
    pub(crate) fn moment(&self) -> Moment {
        let last_modified = self.ttl_params().last_modified.load(Ordering::Relaxed);
        Moment { now_ms: self.clock.now_ms(), last_modified }
    }
}

//! One running server, as commands see it.

use mayfly_storage::ReadView;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_base::{Clock, Namespace};
use mayfly_query::Room;
use mayfly_storage::{OPLOG, Store};
use mayfly_value::DocBuf;
use mayfly_work::{OpRegistry, memory};
use parking_lot::Mutex;

use crate::clients::{Access, Connections, TransportSecurity};
use crate::counters::{Metrics, PolicyFigures, Top};
use crate::process::{Buffers, LogRing, Shutdown, Topology};
use crate::records::{Audit, Backups, Profiler, Shapes, Traces};
use crate::search::SearchIndexes;
use crate::sessions::{Cursors, Sessions};
use crate::settings::Settings;
use crate::settings::write_block;
use crate::settings::{
    AutoCompact, ClusterParameters, Defaults, FailPoints, FeatureCompatibility, QuerySettings,
    ReplicaSet,
};

/// Smaller idle cursors stay open when memory is short.
const LARGE_CURSOR_BYTES: usize = 1 << 20;

/// How the server was started, for `getCmdLineOpts`.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The arguments of the process as they were given; secrets are left out.
    pub argv: Vec<String>,
    /// The options from the arguments and the configuration file, in the structure of the
    /// configuration file.
    pub parsed: DocBuf,
}

/// The parts of a new service.
pub struct ServiceOptions {
    /// The open store.
    pub store: Arc<Store>,
    /// The running operations, including those of the store.
    pub ops: Arc<OpRegistry>,
    /// The source of time for the service.
    pub clock: Arc<dyn Clock>,
    /// The ring that receives a copy of the log.
    pub log: Arc<LogRing>,
    /// How it was started.
    pub command_line: CommandLine,
    /// `host:port`, for `serverStatus` and `currentOp`.
    pub host: String,
    /// `rocksdb` or `memory`.
    pub engine_name: &'static str,
    /// The largest number of connections.
    pub max_connections: usize,
}

/// One running server.
pub struct Service {
    /// The open store.
    pub store: Arc<Store>,
    /// The running operations, including those of the store.
    pub ops: Arc<OpRegistry>,
    /// The source of time for the service and its commands.
    pub clock: Arc<dyn Clock>,
    /// The ring that receives a copy of the log.
    pub log: Arc<LogRing>,
    /// How it was started.
    pub command_line: CommandLine,
    /// The machine's name and the port, `host:port`.
    pub host: String,
    /// `rocksdb` or `memory`.
    pub engine_name: &'static str,
    /// The replica set of this member; unset if it answers like a router.
    pub replica_set: OnceLock<ReplicaSet>,
    /// Counters for `serverStatus`.
    pub metrics: Metrics,
    /// The open connections, with limits on their number.
    pub connections: Connections,
    /// Memory for messages in transit.
    pub buffers: Buffers,
    /// The cursors that clients may continue with `getMore`.
    pub cursors: Cursors,
    /// The logical sessions of clients, with their transactions.
    pub sessions: Sessions,
    /// Settings of the profiler.
    pub profiler: Profiler,
    /// Operations by query shape.
    pub shapes: Shapes,
    /// Traces of commands.
    pub traces: Traces,
    /// The use of each collection.
    pub top: Top,
    /// Figures of TTL policies.
    pub(crate) policies: PolicyFigures,
    /// Defaults of options that commands do not give.
    pub defaults: Defaults,
    /// The feature compatibility version.
    pub feature_compatibility: FeatureCompatibility,
    /// Compaction in the background.
    pub auto_compact: AutoCompact,
    /// Held by a compaction or a cleanup of the state of encrypted fields. One runs at a time.
    pub encrypted_upkeep: Mutex<()>,
    /// Parameters of the cluster.
    pub cluster_parameters: ClusterParameters,
    /// Query settings by query shape.
    pub query_settings: QuerySettings,
    /// Users, roles, and whether commands need a right.
    pub access: Access,
    /// The encryption of connections; unset without TLS.
    pub transport: OnceLock<Arc<dyn TransportSecurity>>,
    /// The audit log.
    pub audit: Audit,
    /// Backups, if the configuration allows any destination.
    pub backups: Backups,
    /// The search indexes.
    pub search: Arc<SearchIndexes>,
    /// Fail points, with which tests make the server fail.
    pub fail_points: Arc<FailPoints>,
    /// Values of parameters without another owner.
    pub settings: Settings,
    /// The `topologyVersion`, and a wait for its change.
    pub topology: Topology,
    /// The request to stop.
    pub shutdown: Shutdown,
    /// The data folder; unset if data is in memory only.
    pub data_folder: OnceLock<PathBuf>,
    /// The folder for spill files; unset for the system's temporary folder.
    pub spill_folder: OnceLock<PathBuf>,
    spill_room: OnceLock<Room>,
    /// The latest cluster time that clients have gossiped.
    gossiped: AtomicU64,
    started_wall_ms: i64,
    started_micros: i64,
}

impl Service {
    /// Assembles the parts of a new service.
    pub(crate) fn assemble(options: ServiceOptions) -> Arc<Service> {
        let ServiceOptions { store, ops, clock, log, command_line, host, engine_name, .. } =
            options;
        let started_wall_ms = clock.now_ms();
        let defaults = Defaults::load(&store, started_wall_ms).unwrap_or_else(|error| {
            tracing::error!(%error, "the default read and write concern in config.settings cannot be read and are not used");
            Defaults::default()
        });
        let feature_compatibility = FeatureCompatibility::load(&store).unwrap_or_else(|error| {
            tracing::error!(%error, "admin.system.version cannot be read; the feature compatibility version is the default");
            FeatureCompatibility::default()
        });
        let cluster_parameters = ClusterParameters::load(&store).unwrap_or_else(|error| {
            tracing::error!(%error, "config.clusterParameters cannot be read; cluster parameters have their defaults");
            ClusterParameters::default()
        });
        let query_settings = QuerySettings::load(&store).unwrap_or_else(|error| {
            tracing::error!(%error, "the query settings in config.clusterParameters cannot be read and are not used");
            QuerySettings::default()
        });
        if let Err(error) = write_block::load(&store) {
            tracing::error!(%error, "config.user_writes_critical_sections cannot be read; user writes are allowed");
        }
        Arc::new(Service {
            store,
            ops,
            log,
            command_line,
            host,
            engine_name,
            replica_set: OnceLock::new(),
            metrics: Metrics::default(),
            connections: Connections::new(options.max_connections),
            buffers: Buffers::default(),
            cursors: Cursors::default(),
            sessions: Sessions::default(),
            profiler: Profiler::default(),
            shapes: Shapes::default(),
            traces: Traces::default(),
            top: Top::default(),
            policies: PolicyFigures::default(),
            defaults,
            feature_compatibility,
            auto_compact: AutoCompact::default(),
            encrypted_upkeep: Mutex::default(),
            cluster_parameters,
            query_settings,
            access: Access::default(),
            transport: OnceLock::new(),
            audit: Audit::default(),
            backups: Backups::default(),
            search: Arc::default(),
            fail_points: Arc::default(),
            settings: Settings::default(),
            topology: Topology::new(started_wall_ms),
            shutdown: Shutdown::default(),
            data_folder: OnceLock::new(),
            spill_folder: OnceLock::new(),
            spill_room: OnceLock::new(),
            gossiped: AtomicU64::new(0),
            started_wall_ms,
            started_micros: clock.monotonic_micros(),
            clock,
        })
    }

    /// Whether clients may write to this server.
    pub fn is_primary(&self) -> bool {
        match self.replica_set.get() {
            Some(set) => set.is_primary(&self.store, &self.topology, self.clock.now_ms()),
            None => self.store.is_primary(),
        }
    }

    /// Whether a collection, a view, a time series or the operation log has this name.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        let Ok(ns) = Namespace::parse(namespace) else { return false };
        // A view that cannot be read counts as existing.
        namespace == OPLOG
            || self.store.collection(&ReadView::now(), &ns).is_some()
            || self.store.view(&ReadView::now(), &ns).map_or(true, |view| view.is_some())
    }

    /// Sets `slowms`, for operations of clients and for visits of the TTL monitor.
    pub fn set_slow_ms(&self, slow_ms: i64) {
        self.profiler.set_slow_ms(slow_ms);
        self.store.ttl_params().slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// The latest cluster time that a client has gossiped, or 0.
    pub fn gossiped(&self) -> u64 {
        self.gossiped.load(Ordering::Relaxed)
    }

    /// Records a cluster time from a client.
    pub fn note_gossiped(&self, time: u64) {
        self.gossiped.fetch_max(time, Ordering::Relaxed);
    }

    /// When the server started, in milliseconds since 1970.
    pub fn started_wall_ms(&self) -> i64 {
        self.started_wall_ms
    }

    /// The folder for spill files. They have no names, so the system's temporary folder can be
    /// shared by users and servers.
    pub fn spill_folder(&self) -> PathBuf {
        self.spill_folder.get().cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// The check for free disk space for spill files.
    pub fn spill_room(&self) -> Room {
        let ask = || {
            let store = self.store.clone();
            Room::new(move |bytes| store.room_for_files(bytes))
        };
        self.spill_room.get_or_init(ask).clone()
    }

    /// Closes the largest idle cursor if the process is short of memory.
    pub fn relieve_memory(&self) {
        if memory::is_short()
            && let Some((namespace, bytes)) = self.cursors.close_largest(LARGE_CURSOR_BYTES)
        {
            self.metrics.closed_for_memory.add(1);
            tracing::warn!(
                ns = namespace.as_str(),
                bytes,
                "closed an idle cursor because memory is short; raise memoryLimitMB or lower cursorTimeoutMillis"
            );
        }
    }

    /// The time since the start.
    pub fn uptime_ms(&self) -> i64 {
        (self.clock.monotonic_micros() - self.started_micros) / 1000
    }
}

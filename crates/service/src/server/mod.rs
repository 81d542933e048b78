//! One running server as commands see it.

use mayfly_storage::ReadView;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_base::{Clock, Namespace};
use mayfly_query::Room;
use mayfly_storage::{OPLOG, Store};
use mayfly_value::DocBuf;
use mayfly_work::{OpRegistry, memory};

use crate::clients::{Access, Connections, TransportSecurity};
use crate::counters::{Metrics, Top};
use crate::process::{Buffers, LogRing, Shutdown, Topology};
use crate::records::{Audit, Profiler};
use crate::sessions::{Cursors, Sessions};
use crate::settings::Settings;
use crate::settings::write_block;
use crate::settings::{Defaults, FailPoints, QuerySettings, ReplicaSet};

/// Idle cursors that hold less stay when memory is used up.
const LARGE_CURSOR_BYTES: usize = 1 << 20;

/// How it was started, for `getCmdLineOpts`.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The words of the command line.
    pub argv: Vec<String>,
    /// What they and the configuration file mean, in the configuration file's own structure.
    pub parsed: DocBuf,
}

/// What a service is made of.
pub struct ServiceOptions {
    /// The open store.
    pub store: Arc<Store>,
    /// The operations that run, the store's own included.
    pub ops: Arc<OpRegistry>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The ring that the log is also written to.
    pub log: Arc<LogRing>,
    /// How it was started.
    pub command_line: CommandLine,
    /// `host:port`, for `serverStatus` and `currentOp`.
    pub host: String,
    /// `rocksdb` or `memory`.
    pub engine_name: &'static str,
    /// Most connections served at once.
    pub max_connections: usize,
}

/// One running server.
pub struct Service {
    /// The open store.
    pub store: Arc<Store>,
    /// The operations that run.
    pub ops: Arc<OpRegistry>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The ring that the log is also written to.
    pub log: Arc<LogRing>,
    /// How it was started.
    pub command_line: CommandLine,
    /// `host:port`.
    pub host: String,
    /// `rocksdb` or `memory`.
    pub engine_name: &'static str,
    /// The replica set that it is the member of; unset: it answers like a router.
    pub replica_set: OnceLock<ReplicaSet>,
    /// Counters.
    pub metrics: Metrics,
    /// Open connections.
    pub connections: Connections,
    /// Memory for messages that are under way.
    pub buffers: Buffers,
    /// Open cursors.
    pub cursors: Cursors,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Which operations are recorded.
    pub profiler: Profiler,
    /// How much each collection is used.
    pub top: Top,
    /// What operations get that say nothing themselves.
    pub defaults: Defaults,
    /// What administrators say about queries of one shape.
    pub query_settings: QuerySettings,
    /// Users, roles, and whether commands need a right.
    pub access: Access,
    /// What encrypts connections; unset: nothing.
    pub transport: OnceLock<Arc<dyn TransportSecurity>>,
    /// The audit log.
    pub audit: Audit,
    /// Places at which tests make the server fail.
    pub fail_points: Arc<FailPoints>,
    /// Values of the parameters that have no other owner.
    pub settings: Settings,
    /// What `topologyVersion` says.
    pub topology: Topology,
    /// The request to stop.
    pub shutdown: Shutdown,
    /// The folder of the data; unset: the data is in memory only.
    pub data_folder: OnceLock<PathBuf>,
    /// Where queries put what does not fit into memory; unset: the machine's own folder for temporary files.
    pub spill_folder: OnceLock<PathBuf>,
    spill_room: OnceLock<Room>,
    /// The latest cluster time that a client knew from elsewhere.
    gossiped: AtomicU64,
    started_wall_ms: i64,
    started_micros: i64,
}

impl Service {
    /// The parts of a service that begins now.
    pub(crate) fn assemble(options: ServiceOptions) -> Arc<Service> {
        let ServiceOptions { store, ops, clock, log, command_line, host, engine_name, .. } =
            options;
        let started_wall_ms = clock.now_ms();
        let defaults = Defaults::load(&store, started_wall_ms).unwrap_or_else(|error| {
            tracing::error!(%error, "the default concerns could not be read");
            Defaults::default()
        });
        let query_settings = QuerySettings::load(&store).unwrap_or_else(|error| {
            tracing::error!(%error, "the query settings could not be read");
            QuerySettings::default()
        });
        if let Err(error) = write_block::load(&store) {
            tracing::error!(%error, "whether user writes are blocked could not be read");
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
            top: Top::default(),
            defaults,
            query_settings,
            access: Access::default(),
            transport: OnceLock::new(),
            audit: Audit::default(),
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

    /// Whether clients may write to it.
    pub fn is_primary(&self) -> bool {
        match self.replica_set.get() {
            Some(set) => set.is_primary(&self.store, &self.topology, self.clock.now_ms()),
            None => self.store.is_primary(),
        }
    }

    /// Whether a namespace is that of a collection, a view, a time series or the operation log.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        let Ok(ns) = Namespace::parse(namespace) else { return false };
        // What cannot be read is taken for existing.
        namespace == OPLOG
            || self.store.collection(&ReadView::now(), &ns).is_some()
            || self.store.view(&ReadView::now(), &ns).map_or(true, |view| view.is_some())
    }

    /// Sets `slowms`, for operations of clients and for visits of the TTL monitor.
    pub fn set_slow_ms(&self, slow_ms: i64) {
        self.profiler.set_slow_ms(slow_ms);
        self.store.ttl_params().slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// The latest cluster time that a client knew from elsewhere; 0 when none did.
    pub fn gossiped(&self) -> u64 {
        self.gossiped.load(Ordering::Relaxed)
    }

    /// Notes a cluster time that a client knows.
    pub fn note_gossiped(&self, time: u64) {
        self.gossiped.fetch_max(time, Ordering::Relaxed);
    }

    /// When it began, in milliseconds since 1970.
    pub fn started_wall_ms(&self) -> i64 {
        self.started_wall_ms
    }

    /// The folder of files for what does not fit into memory. They have no names, so that without a data folder the system's
    /// temporary folder serves all users and servers.
    pub fn spill_folder(&self) -> PathBuf {
        self.spill_folder.get().cloned().unwrap_or_else(std::env::temp_dir)
    }

    /// Whether there is room for it.
    pub fn spill_room(&self) -> Room {
        let ask = || {
            let store = self.store.clone();
            Room::new(move |bytes| store.room_for_files(bytes))
        };
        self.spill_room.get_or_init(ask).clone()
    }

    /// Closes an idle cursor that holds much, if the process has little memory left.
    pub fn relieve_memory(&self) {
        if memory::is_short()
            && let Some((namespace, bytes)) = self.cursors.close_largest(LARGE_CURSOR_BYTES)
        {
            self.metrics.closed_for_memory.add(1);
            tracing::warn!(
                ns = namespace.as_str(),
                bytes,
                "closed an idle cursor because little memory is left; see memoryLimitMB"
            );
        }
    }

    /// How long it has been running.
    pub fn uptime_ms(&self) -> i64 {
        (self.clock.monotonic_micros() - self.started_micros) / 1000
    }
}

//! Starting and stopping: engine, store, service, listeners; and the way back.
//!
//! Stopping: no new connections; idle connections and waiting hellos end; running commands get ten seconds, then
//! they are killed; the store closes when nobody writes any more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Clock, ErrorCode, OpRegistry};
use mayfly_kv::{Engine, KvError, MemoryEngine};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_query::PartialFilters;
use mayfly_service::parameters;
use mayfly_service::{CommandLine, LogRing, ReplicaSet, Service, ServiceOptions};
use mayfly_storage::{Store, StoreOptions};
use mayfly_value::DocBuf;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::Config;
use crate::accept::{Connected, accept};
use crate::archive::Archive;
use crate::config::EngineChoice;

/// In the data folder: what does not fit into the memory of queries.
const SPILL_FOLDER: &str = "_tmp";

/// How long running commands may go on after the wish to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How long killed commands get to notice.
const DRAIN_KILLED: Duration = Duration::from_secs(2);

/// What a server is started with.
pub struct StartOptions {
    /// The configuration.
    pub config: Config,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The ring that the log is also written to.
    pub log: Arc<LogRing>,
    /// The words of the command line.
    pub argv: Vec<String>,
    /// What they and the file mean, for `getCmdLineOpts`.
    pub parsed: DocBuf,
    /// Background threads of the store (TTL monitor, sweeper) run; tests drive them by hand.
    pub background: bool,
}

impl StartOptions {
    /// A server inside a test: memory engine, a free port, no background threads.
    pub fn for_tests(clock: Arc<dyn Clock>) -> crate::config::ConfigResult<StartOptions> {
        let config = Config { port: 0, engine: EngineChoice::Memory, ..Config::defaults()? };
        Ok(StartOptions {
            config,
            clock,
            log: Arc::new(LogRing::default()),
            argv: Vec::new(),
            parsed: DocBuf::empty(),
            background: false,
        })
    }
}

/// A running server.
pub struct Running {
    /// The server as commands see it.
    pub service: Arc<Service>,
    addresses: Vec<SocketAddr>,
    listeners: JoinSet<()>,
    connected: Connected,
}

/// Starts a server.
///
/// # Errors
/// One line for the operator: the address or the folder and what is wrong with it.
pub async fn start(options: StartOptions) -> Result<Running, String> {
    let StartOptions { config, clock, log, argv, parsed, background } = options;
    // Listening comes first: a port in use is found before a data folder is made or changed.
    let listeners = listen(&config).await?;
    let addresses: Vec<SocketAddr> =
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let opening = config.clone();
    let engine = tokio::task::spawn_blocking(move || open_engine(&opening));
    let engine = engine.await.map_err(|error| format!("opening the store failed: {error}"))??;
    let engine_name = engine.name();
    let ops = OpRegistry::new(clock.clone());
    let store_options = StoreOptions {
        filters: Arc::new(PartialFilters),
        oplog_bytes: config.oplog_bytes,
        background,
    };
    let store = Store::open(engine, store_options, clock.clone(), ops.clone())
        .map_err(|error| format!("cannot open the store: {}", error.message()))?;
    let begun = store.begin_log();
    begun.map_err(|error| format!("cannot write to the store: {}", error.message()))?;
    if config.archive.folder.is_some() || !config.archive.urls.is_empty() {
        let archive = Archive::new(config.archive.clone())
            .map_err(|error| format!("cannot make the archive's folder: {error}"))?;
        store.archive_into(Arc::new(archive));
    }
    let service = Service::new(ServiceOptions {
        store,
        ops,
        clock,
        log,
        command_line: CommandLine { argv, parsed },
        host: host(addresses.first()),
        engine_name,
        max_connections: config.max_connections,
    });
    if config.engine != EngineChoice::Memory {
        let folder = config.db_path.join(SPILL_FOLDER);
        // What a crash left of the last run.
        let _ = std::fs::remove_dir_all(&folder);
        let _ = service.spill_folder.set(folder);
    }
    if let Err(why) = set_parameters(&service, &config) {
        // The reason to stop is the parameter; a failed close would only hide it.
        let _ = service.store.close();
        return Err(why);
    }
    if let Some(name) = config.repl_set {
        let set = ReplicaSet::new(name, config.advertise, service.clock.now_ms());
        let _ = service.replica_set.set(set);
    }
    let connected = Connected::default();
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(accept(listener, service.clone(), connected.clone(), config.quiet));
    }
    Ok(Running { service, addresses, listeners: tasks, connected })
}

impl Running {
    /// The first address it listens on.
    pub fn address(&self) -> SocketAddr {
        match self.addresses.first() {
            Some(address) => *address,
            None => unreachable!("a server without a listener does not start"),
        }
    }

    /// All addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until somebody asks it to stop.
    pub async fn stop_requested(&self) {
        self.service.shutdown.requested().await;
    }

    /// Stops it.
    ///
    /// # Errors
    /// One line for the operator when the store did not close cleanly.
    pub async fn stop(mut self) -> Result<(), String> {
        self.service.shutdown.request();
        self.listeners.shutdown().await;
        if !self.connected.drained(DRAIN).await {
            for op in self.service.ops.list() {
                op.kill(ErrorCode::InterruptedAtShutdown);
            }
            if !self.connected.drained(DRAIN_KILLED).await {
                tracing::warn!("some commands did not end in time");
            }
        }
        let store = self.service.store.clone();
        let closed = tokio::task::spawn_blocking(move || store.close()).await;
        match closed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the store did not close cleanly: {}", error.message())),
            Err(error) => Err(format!("closing the store failed: {error}")),
        }
    }
}

fn set_parameters(service: &Service, config: &Config) -> Result<(), String> {
    service.settings.set_log_level(config.verbosity);
    service.settings.set_scripts_enabled(config.javascript_enabled);
    for (name, value) in &config.parameters {
        let parameter = parameters::find(name);
        let parameter = parameter.ok_or_else(|| format!("unknown server parameter '{name}'"))?;
        parameter.set_starting(service, value).map_err(|error| error.message().to_owned())?;
    }
    Ok(())
}

/// Connections that may wait to be accepted: an application's pools open all at once. The system may allow fewer.
const BACKLOG: u32 = 4096;

fn open_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    // A restart must not wait for the connections of the process before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn listen(config: &Config) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    let mut port = config.port;
    for name in &config.bind {
        let name = if name == "*" { "0.0.0.0" } else { name };
        let resolved: Vec<SocketAddr> = tokio::net::lookup_host((name, port))
            .await
            .map_err(|error| format!("cannot resolve bind address '{name}': {error}"))?
            .collect();
        for mut address in resolved {
            address.set_port(port);
            let listener = match open_listener(address) {
                Ok(listener) => listener,
                // `localhost` may resolve to IPv6 on a machine that has none.
                Err(_) if address.is_ipv6() && !listeners.is_empty() => continue,
                Err(error) => return Err(listen_failed(address, &error)),
            };
            // A free port is taken once and then the same on every address.
            port = listener.local_addr().map_or(port, |bound| bound.port());
            listeners.push(listener);
        }
    }
    if listeners.is_empty() { Err("no address to listen on".to_owned()) } else { Ok(listeners) }
}

fn listen_failed(address: SocketAddr, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => "; another server uses this port, choose one with --port",
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        _ => "",
    };
    format!("cannot listen on {address}: {error}{hint}")
}

fn open_engine(config: &Config) -> Result<Arc<dyn Engine>, String> {
    if config.engine == EngineChoice::Memory {
        return Ok(Arc::new(MemoryEngine::new()));
    }
    let folder = &config.db_path;
    let shown = folder.display();
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make data folder {shown}: {error}"))?;
    let probe = folder.join(".write-test");
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| format!("cannot write to data folder {shown}: {error}"))?;
    let options = RocksOptions { cache_bytes: config.cache_bytes, ..RocksOptions::default() };
    match RocksEngine::open(folder, options) {
        Ok(engine) => Ok(engine),
        // These texts of the engine say all by themselves.
        Err(KvError::Unavailable(text) | KvError::Invalid(text) | KvError::Corrupt(text)) => {
            Err(format!("cannot open data folder {shown}: {text}"))
        }
        Err(error) => Err(format!("cannot open data folder {shown}: {error}")),
    }
}

/// `host:port` as other machines would call it.
fn host(address: Option<&SocketAddr>) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "localhost" } else { name.trim() };
    format!("{name}:{}", address.map_or(0, SocketAddr::port))
}

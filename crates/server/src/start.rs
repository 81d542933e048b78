//! Starting and stopping: engine, store, service, listeners.
//!
//! Stopping: no new connections are accepted; idle connections and waiting hellos end; running
//! commands may continue for a second after the command `shutdown`, or for
//! `shutdownTimeoutMillisForSignaledShutdown` after a signal, and are then killed; after a second
//! no connection begins another command; the store is closed when all writes have ended.

mod stopping;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use mayfly_base::Clock;
use mayfly_service::machine::address_space_bytes;
use mayfly_service::{LogRing, Service};
use mayfly_storage::RESTORED;
use mayfly_value::DocBuf;
use mayfly_work::op::OpInfo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::accept::{Connected, Reception, ServedClients, accept};
use crate::backup::LogArchive;
use crate::config::EngineChoice;
use crate::database_clock::DatabaseClock;
use crate::failure::{Failure, FailureKind};
use crate::healthcheck::Announcement;
use crate::kept_listeners::KeptListeners;
use crate::opening::{configure, open_service};
use crate::tls::{self, Transport};
use crate::traces::Exporter;
use crate::{Config, TlsMode, http, membership, peer, processes};

/// How long running commands may continue after the command `shutdown`.
pub const DRAIN: Duration = Duration::from_secs(1);

/// The options of a start.
pub struct StartOptions {
    /// The checked configuration.
    pub config: Config,
    /// The source of time for the whole server.
    pub clock: Arc<dyn Clock>,
    /// The same clock, if the store sets it; tests have their own.
    pub database_clock: Option<Arc<DatabaseClock>>,
    /// The ring that receives a copy of the log.
    pub log: Arc<LogRing>,
    /// The arguments of the process, for `getCmdLineOpts`; secrets are left out.
    pub argv: Vec<String>,
    /// The options from the arguments and the file, for `getCmdLineOpts`.
    pub parsed: DocBuf,
    /// Whether background threads of the store (TTL monitor, sweeper) run; tests drive them
    /// manually.
    pub background: bool,
    /// Sockets that listen already.
    pub listeners: KeptListeners,
}

impl StartOptions {
    /// Options for a test: memory engine, a free port, no background threads.
    pub fn for_tests(clock: Arc<dyn Clock>) -> anyhow::Result<StartOptions> {
        let config = Config { port: 0, engine: EngineChoice::Memory, ..Config::defaults()? };
        Ok(StartOptions {
            config,
            clock,
            database_clock: None,
            log: Arc::new(LogRing::default()),
            argv: Vec::new(),
            parsed: DocBuf::empty(),
            background: false,
            listeners: KeptListeners::default(),
        })
    }
}

/// A running server.
pub struct Running {
    /// The server, as commands see it.
    pub service: Arc<Service>,
    addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    sockets: Vec<Arc<TcpListener>>,
    listeners: JoinSet<()>,
    connected: Connected,
    announcement: Option<Announcement>,
    log_archive: Option<LogArchive>,
    traces: Option<Exporter>,
}

/// Starts a server.
///
/// # Errors
/// A [`Failure`]: the address or the folder, the cause, and what the operator can do.
pub async fn start(mut options: StartOptions) -> anyhow::Result<Running> {
    let config = options.config.clone();
    // Listens first: a port in use is detected before a data folder is created or changed.
    let listeners = listen(&config, &std::mem::take(&mut options.listeners)).await?;
    let site = http::Prepared::open(&config).await?;
    check_addresses()?;
    let transport = Arc::new(Transport::open(config.tls.clone())?);
    let addresses = bound(&listeners);
    let service = open_service(options, host(addresses.first())).await?;
    if let Err(why) = configure(&service, &config) {
        // The error of the configuration is reported; a failed close would hide it.
        let _ = service.store.close();
        return Err(why);
    }
    let listeners: Vec<Arc<TcpListener>> = listeners.into_iter().map(Arc::new).collect();
    let mut tasks = JoinSet::new();
    membership::begin(&config, &service, &mut tasks);
    service.watch_transactions().context("cannot start a background thread")?;
    watch_threads(&service).context("cannot start a background thread")?;
    let connected = Connected::default();
    if config.tls.mode != TlsMode::Disabled {
        let _ = service.transport.set(transport.clone());
        tasks.spawn(tls::watch_end(transport.clone(), service.clone()));
    }
    let reception = Reception {
        service: service.clone(),
        transport,
        connected: connected.clone(),
        clients: ServedClients::All,
    };
    if let Err(why) = prepare(&config, &reception, &listeners).await {
        service.shutdown.begin();
        let _ = service.store.close();
        return Err(why);
    }
    if config.authorization {
        service.access.enforce();
        service.connections.limit_unauthenticated();
    }
    warn_if_open(&config, &addresses);
    let log_archive = membership::archive_log(&config, &service)?;
    for listener in &listeners {
        tasks.spawn(accept(listener.clone(), reception.clone()));
    }
    let http_addresses = bound(&site.listeners);
    site.start(&mut tasks, &service, &reception.transport);
    for line in &config.ignored {
        tracing::info!("{line}");
    }
    let announcement = announce(&config, &addresses);
    announce_restored(&service);
    Ok(Running {
        traces: Exporter::start(&service, config.traces.as_ref())?,
        service,
        addresses,
        http_addresses,
        sockets: listeners,
        listeners: tasks,
        connected,
        announcement,
        log_archive,
    })
}

/// Checks that the server could listen on its addresses.
///
/// # Errors
/// As [`start`].
pub(crate) async fn try_addresses(config: &Config, kept: &KeptListeners) -> anyhow::Result<()> {
    listen(config, kept).await?;
    http::Prepared::open(config).await.map(drop)
}

impl Running {
    /// Waits until another server has taken the store over.
    pub async fn taken_over(&self) {
        let store = self.service.store.clone();
        let waited =
            tokio::task::spawn_blocking(move || store.engine().sharing().await_take_over()).await;
        if !waited.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// The first listening address.
    pub fn address(&self) -> SocketAddr {
        match self.addresses.first() {
            Some(address) => *address,
            None => unreachable!("a server without a listener does not start"),
        }
    }

    /// All listening addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses of the status page.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// Waits until a stop is requested.
    pub async fn stop_requested(&self) {
        self.service.shutdown.requested().await;
    }
}

/// Does the first start if it is due: a first user, scripts.
async fn prepare(
    config: &Config,
    reception: &Reception,
    listeners: &[Arc<TcpListener>],
) -> anyhow::Result<()> {
    let (first, service) = (config.first_start.clone(), &reception.service);
    if service.store.is_secondary() || !first.is_due(service, config)? {
        return Ok(());
    }
    first.begin(service, config)?;
    let local = Reception {
        clients: ServedClients::Local,
        transport: Arc::new(Transport::plain()),
        ..reception.clone()
    };
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(accept(listener.clone(), local.clone()));
    }
    let port = listeners.first().and_then(|listener| listener.local_addr().ok());
    let (scripts, options) = (first.clone(), config.clone());
    let run = move || scripts.run_scripts(port.map_or(0, |address| address.port()), &options);
    tokio::task::spawn_blocking(run).await.context("running scripts was interrupted")??;
    tasks.shutdown().await;
    first.end(config)
}

/// The smallest limit of the address space: RocksDB reserves addresses for its tables, and aborts
/// the process if it cannot.
const LEAST_ADDRESSES: u64 = 400 << 20;

/// Refuses to start if the address space is too small.
fn check_addresses() -> anyhow::Result<()> {
    let Some(bytes) = address_space_bytes().filter(|bytes| *bytes < LEAST_ADDRESSES) else {
        return Ok(());
    };
    let text = format!("{} MB are allowed, {} are needed", bytes >> 20, LEAST_ADDRESSES >> 20);
    Err(anyhow!(text)).context(Failure::new(
        FailureKind::General,
        "cannot start within the limit of the address space",
        "raise the limit (ulimit -v, LimitAS of systemd); limits of control groups may be smaller",
    ))
}

/// Refuses to listen on all addresses without authorization, unless the configuration allows it.
fn check_open(config: &Config, address: SocketAddr) -> anyhow::Result<()> {
    let is_all = address.ip().to_canonical().is_unspecified();
    if config.authorization || config.allow_open || !is_all {
        return Ok(());
    }
    let text = "every client that reaches this machine could read and change all data";
    Err(anyhow!(text)).context(Failure::new(
        FailureKind::Options,
        "cannot listen on all addresses without authorization",
        "add --auth, name addresses with --bind_ip, or add --allowOpen if the network restricts access",
    ))
}

/// Logs a warning if clients of other machines have access without authorization.
fn warn_if_open(config: &Config, addresses: &[SocketAddr]) {
    if config.authorization || addresses.iter().all(|address| address.ip().is_loopback()) {
        return;
    }
    tracing::warn!(
        id = 22120,
        startupWarning = true,
        "Access control is not enabled for the database. Read and write access to data and configuration is unrestricted"
    );
}

/// Writes the address of this server for `--healthcheck`.
fn announce(config: &Config, addresses: &[SocketAddr]) -> Option<Announcement> {
    if !config.engine.has_folder() {
        return None;
    }
    let written = Announcement::write(config, addresses);
    let warn = |error| tracing::warn!(%error, "the file for --healthcheck cannot be written to the data folder; use --healthcheck with --port");
    written.map_err(warn).ok()
}

/// Logs what is due, if expiry is suspended because the data was restored. Counting may take long.
fn announce_restored(service: &Arc<Service>) {
    let suspension = service.store.expiry_suspension();
    if suspension.is_none_or(|suspension| suspension.reason != RESTORED) {
        return;
    }
    let service = service.clone();
    tokio::task::spawn_blocking(move || {
        let desc = "restored".into();
        let op = service.ops.begin(OpInfo { desc, op: "none", ..OpInfo::default() });
        match service.store.due_by_policy(op.op()) {
            Ok(policies) => {
                for (namespace, index, due) in policies {
                    tracing::warn!(
                        startupWarning = true,
                        ns = namespace,
                        index,
                        due,
                        "Expiry is suspended after a restore: ttlResume deletes the due documents of this policy"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "the documents that are due cannot be counted"),
        }
    });
}

/// Starts the watcher thread for commands that block threads of the runtime, and for commands whose
/// clients have disconnected.
fn watch_threads(service: &Arc<Service>) -> std::io::Result<()> {
    let (ops, runtime) = (Arc::downgrade(&service.ops), tokio::runtime::Handle::current());
    let service = Arc::downgrade(service);
    let run = move || {
        // Spawning a task wakes an idle thread, which polls for messages when it has no other task.
        let wake = || drop(runtime.spawn(async {}));
        let look = || service.upgrade().iter().for_each(|service| peer::end_abandoned(service));
        mayfly_work::watch(&ops, &wake, &look);
    };
    std::thread::Builder::new().name("watch".into()).spawn(run).map(drop)
}

/// The backlog of a listener: an application's pools open all connections at once. The system may
/// allow fewer.
const BACKLOG: u32 = 4096;

pub(crate) fn open_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    // A restart must not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bound(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

async fn listen(config: &Config, kept: &KeptListeners) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut port = config.port;
    for name in &config.bind {
        let name = if name == "*" { "0.0.0.0" } else { name };
        let resolved: Vec<SocketAddr> = tokio::net::lookup_host((name, port))
            .await
            .with_context(|| {
                let tried = format!("cannot resolve bind address '{name}'");
                Failure::new(FailureKind::Listen, tried, "correct net.bindIp or --bind_ip")
            })?
            .collect();
        for mut address in resolved {
            check_open(config, address)?;
            address.set_port(port);
            let listener = match kept.listener(address).map_or_else(|| open_listener(address), Ok) {
                Ok(listener) => listener,
                // `localhost` may resolve to IPv6 on a machine without it.
                Err(_) if address.is_ipv6() && !listeners.is_empty() => continue,
                Err(error) => return Err(listen_failed(address, error)),
            };
            // A free port is chosen once and is the same on every address.
            port = listener.local_addr().map_or(port, |bound| bound.port());
            listeners.push(listener);
        }
    }
    if listeners.is_empty() {
        let advice = "name one with --bind_ip, for example 127.0.0.1 for this machine only";
        return Err(anyhow!("no address is named").context(Failure::new(
            FailureKind::Options,
            "cannot listen",
            advice,
        )));
    }
    Ok(listeners)
}

fn listen_failed(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let (reason, advice) = match error.kind() {
        ErrorKind::AddrInUse => {
            let owner = processes::listening_on(address);
            let owner = owner.unwrap_or_else(|| "another process".to_owned());
            let advice = "stop that process, or choose another port with --port";
            (anyhow!("{owner}, uses this port"), advice)
        }
        ErrorKind::PermissionDenied => {
            (anyhow!(error), "ports below 1024 need privileges, choose another with --port")
        }
        ErrorKind::AddrNotAvailable => {
            (anyhow!(error), "name addresses of this machine with --bind_ip")
        }
        _ => (anyhow!(error), "choose another address with --bind_ip or another port with --port"),
    };
    reason.context(Failure::new(FailureKind::Listen, format!("cannot listen on {address}"), advice))
}

/// `host:port` of this server for other machines.
fn host(address: Option<&SocketAddr>) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "localhost" } else { name.trim() };
    format!("{name}:{}", address.map_or(0, SocketAddr::port))
}

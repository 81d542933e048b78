//! The binary mayflydb: reads the configuration, starts a server, and waits for the request to
//! stop.

mod allocators;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use mayfly_base::{Clock, SystemClock};
use mayfly_server::config::{EngineChoice, Flags, Layers, LogDestination, Task, shown_words};
use mayfly_server::daemon::{self, Background, PidFile};
use mayfly_server::failure::{self, FailureKind};
use mayfly_server::logging::LogLayer;
use mayfly_server::signals::Signals;
use mayfly_server::standby::{self, Turn};
use mayfly_server::supervisor::{self, Supervisor};
use mayfly_server::{
    Config, DRAIN, DatabaseClock, KeptListeners, Running, StartOptions, backup, check, copy,
    healthcheck, permissions, processor, start, status_task, storage_task,
};
use mayfly_service::LogVerbosity;
use mayfly_service::{Actor, LogRing, LogRotation, Service};
use mayfly_value::shell::Shell;
use tracing_subscriber::layer::SubscriberExt;

/// The idle time after which a blocking thread ends. The allocator returns a thread's freed memory
/// when the thread ends, so this is about how long the memory of a large sort or group stays
/// allocated.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The largest number of blocking threads in addition to the workers. Writers block while they wait
/// for other transactions; if they used all threads, the statements of these transactions would
/// wait, too.
const MOST_THREADS: usize = 4096;

/// How a run of the program has ended.
enum Ended {
    With(ExitCode),
    /// It begins again, as a server that waits for the store, with the sockets of its clients.
    ForStandby(KeptListeners),
}

fn main() -> ExitCode {
    let began = Instant::now();
    let ended = run(began).and_then(|ended| match ended {
        Ended::With(code) => Ok(code),
        Ended::ForStandby(kept) => Err(standby::begin_again(&kept)),
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mayflydb: {}", failure::sentence(&error));
            ExitCode::from(FailureKind::of(&error).exit_code())
        }
    }
}

fn run(began: Instant) -> anyhow::Result<Ended> {
    let listeners = KeptListeners::of_previous_program();
    processor::check()?;
    let flags = Flags::read()?;
    if let Some(ended) = run_task(flags.task.as_ref()) {
        return ended.map(|()| DONE);
    }
    let layers = Layers::collect(&flags, &environment())?;
    if flags.print_config {
        let mut out = std::io::stdout();
        out.write_all(layers.describe().as_bytes()).context("cannot write the configuration")?;
        return Ok(DONE);
    }
    let config = Config { upgrade: flags.upgrade, ..Config::from_layers(&layers)? };
    if flags.healthcheck {
        healthcheck::check(&config)?;
        return Ok(DONE);
    }
    if let Some(Task::Storage { action }) = &flags.task {
        storage_task::run(&config, *action, &mut std::io::stdout())?;
        return Ok(DONE);
    }
    let background = match (config.fork, daemon::is_background()) {
        (true, false) => {
            drop(listeners);
            return daemon::start().map(Ended::With);
        }
        (true, true) => Some(Background::enter()?),
        (false, _) => None,
    };
    if !config.honor_system_umask {
        permissions::restrict_new_files();
    }
    allocators::adapt(mayfly_service::usable_memory());
    let clock = DatabaseClock::new(Arc::new(SystemClock::new()));
    let log = Arc::new(LogRing::default());
    let set_level = begin_log(&config, &log, clock.clone())?;
    let _pid_file = config.pid_file.as_deref().map(PidFile::write).transpose()?;
    let parsed = layers.parsed();
    if !parsed.as_doc().is_empty() {
        let options = Shell(parsed.as_doc());
        tracing::info!(id = 21951, %options, "options that differ from the defaults");
    }
    let options = StartOptions {
        config: config.clone(),
        clock: clock.clone(),
        database_clock: Some(clock),
        log,
        argv: shown_words(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        parsed,
        background: true,
        listeners,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("worker")
        .thread_keep_alive(KEEP_ALIVE)
        .max_blocking_threads(MOST_THREADS)
        .on_thread_stop(mayfly_work::memory::report)
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(serve((options, &config), set_level, background, began));
    // A command that did not end in time must not keep the process alive.
    runtime.shutdown_background();
    // The reason is also logged, unless the log is on the same terminal.
    if let (Err(error), true) = (&ended, config.log.destination != LogDestination::StandardOutput) {
        tracing::error!("{}", failure::sentence(error));
    }
    ended
}

fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Runs a task that reads no configuration; `None` if there is none.
fn run_task(task: Option<&Task>) -> Option<anyhow::Result<()>> {
    let out = &mut std::io::stdout();
    Some(match task? {
        Task::Backup(flags) => backup::task::run(flags, out),
        Task::Restore(flags) => backup::restore::run(flags, out),
        Task::Copy(flags) => copy::run(flags, out),
        Task::Check(flags) => check::run(flags, out),
        Task::Status(flags) => status_task::run(flags, out),
        Task::Completions { shell } => {
            out.write_all(&Flags::completions(*shell)).context("cannot write the script")
        }
        Task::Manual => Flags::write_manual(out).context("cannot write the manual page"),
        Task::Storage { .. } => return None,
    })
}

/// For how long a primary that is asked to stop waits for its successor, whose takeover takes a
/// second. Service managers kill a server that takes ten seconds or more.
const LEFT_AT_STOP: Duration = Duration::from_secs(5);

const DONE: Ended = Ended::With(ExitCode::SUCCESS);

/// Starts a server, or waits for the store first; `None` if it was asked to stop meanwhile.
async fn begin(
    (mut options, config): (StartOptions, &Config),
    supervisor: &Supervisor,
    waits: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(Option<anyhow::Result<Running>>, Signals)> {
    if !config.storage_standby {
        // Until it has started, a signal ends the process at once.
        return Ok((Some(start(options).await), Signals::listen()?));
    }
    let mut signals = Signals::listen()?;
    let turn =
        standby::await_turn(config, (supervisor, &mut signals), &mut options.listeners, waits)
            .await?;
    let is_secondary = match turn {
        Turn::Open => false,
        Turn::Read => true,
        Turn::Stop => return Ok((None, signals)),
    };
    let options = StartOptions { config: Config { is_secondary, ..options.config }, ..options };
    let started = tokio::select! {
        started = start(options) => Some(started),
        () = signals.stop_requested() => None,
    };
    Ok((started, signals))
}

/// Starts a server, and waits until it has ended.
async fn serve(
    (options, config): (StartOptions, &Config),
    set_level: impl Fn(&LogVerbosity) + Send + Sync + 'static,
    mut background: Option<Background>,
    began: Instant,
) -> anyhow::Result<Ended> {
    let supervisor = Supervisor::find();
    let ready = || background.take().map_or(Ok(()), Background::ready);
    let (started, mut signals) = begin((options, config), &supervisor, ready).await?;
    let Some(started) = started else {
        tracing::info!("stopped");
        return Ok(DONE);
    };
    let running = match started {
        Ok(running) => running,
        // Another waiting server, or the owner that has come back, was faster.
        Err(error) if config.storage_standby && standby::waits_again(&error) => {
            tracing::warn!("{}; this server waits again", failure::sentence(&error));
            tokio::time::sleep(standby::BEFORE_AGAIN).await;
            return Ok(Ended::ForStandby(KeptListeners::default()));
        }
        Err(error) => return Err(error),
    };
    running.service.settings.on_log_level(set_level);
    log_ready(&running, config, began);
    if let Some(background) = background {
        background.ready()?;
    }
    supervisor.ready();
    let (service, cache_bytes) = (running.service.clone(), config.cache_bytes);
    tokio::task::spawn_blocking(move || log_limits(&service, cache_bytes));
    let end = tokio::select! {
        end = wait_for_end(&running, &supervisor, &mut signals) => end?,
        gone = owner_is_gone(&running, config) => gone.map(|()| End::StandsForOwner)?,
        never = supervisor.attend(&running.service) => never,
    };
    end_after(end, running, config, (&supervisor, &mut signals)).await
}

/// Ends the server for this reason.
async fn end_after(
    end: End,
    mut running: Running,
    config: &Config,
    (supervisor, signals): (&Supervisor, &mut Signals),
) -> anyhow::Result<Ended> {
    match end {
        End::Asked(_) if running.has_successor() => {
            supervisor.stopping();
            tracing::info!("stopping: another server becomes the primary first");
            let left = hand_over(&mut running, config, (supervisor, signals), LEFT_AT_STOP).await;
            running.stop_without_store(left.map(drop)).await?;
            tracing::info!("stopped");
            Ok(DONE)
        }
        End::Asked(grace) => {
            supervisor.stopping();
            tracing::info!("stopping: new connections are refused, running commands may finish");
            running.stop_within(grace).await?;
            tracing::info!("stopped");
            Ok(DONE)
        }
        End::HandsOver(longest) => {
            tracing::info!("another server is to become the primary; this one begins again");
            match hand_over(&mut running, config, (supervisor, signals), longest).await {
                Ok(true) => Ok(Ended::ForStandby(running.abandon().await)),
                left => {
                    supervisor.stopping();
                    running.stop_without_store(left.map(drop)).await?;
                    tracing::info!("stopped");
                    Ok(DONE)
                }
            }
        }
        End::StandsForOwner => {
            tracing::info!("the primary is gone; this server begins again as the primary");
            Ok(Ended::ForStandby(running.abandon().await))
        }
        End::TakenOver => {
            tracing::error!("another server has taken the store over");
            let kept = running.abandon().await;
            match config.storage_standby {
                true => Ok(Ended::ForStandby(kept)),
                false => Err(standby::ended()),
            }
        }
    }
}

/// Closes the store, and waits until another server owns it. Returns false if the server was asked
/// to stop meanwhile.
///
/// # Errors
/// The store did not close cleanly; those of [`standby::leave_to_others`].
async fn hand_over(
    running: &mut Running,
    config: &Config,
    (supervisor, signals): (&Supervisor, &mut Signals),
    longest: Duration,
) -> anyhow::Result<bool> {
    running.leave_store().await?;
    standby::leave_to_others(config, (supervisor, signals), longest).await
}

/// Installs the log; returns the function that changes its verbosity.
fn begin_log(
    config: &Config,
    ring: &Arc<LogRing>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<impl Fn(&LogVerbosity) + Send + Sync + 'static> {
    let layer = LogLayer::open(&config.log, ring, &clock, config.verbosity)?;
    let set_level = layer.level_setter();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).context("cannot install the log")?;
    Ok(set_level)
}

/// Logs what the server is ready to do, and within which limits.
fn log_ready(running: &Running, config: &Config, began: Instant) {
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let address = running.address();
    let reachable = match address.ip().is_unspecified() {
        true => format!("127.0.0.1:{}", address.port()),
        false => address.to_string(),
    };
    let data = match config.engine {
        EngineChoice::Rocksdb => {
            // The folder exists by now; if it cannot be resolved, the configured name is printed.
            let folder = std::fs::canonicalize(&config.db_path);
            format!("data in {}", folder.unwrap_or_else(|_| config.db_path.clone()).display())
        }
        EngineChoice::Postgres => "data in PostgreSQL".to_owned(),
        EngineChoice::Memory => "data in memory only".to_owned(),
    };
    tracing::info!(
        id = 23016,
        "mayflydb {} ready on {} (mongosh \"mongodb://{reachable}\"), {data}, started in {} ms",
        env!("CARGO_PKG_VERSION"),
        addresses.join(", "),
        began.elapsed().as_millis()
    );
}

/// Logs the limits of the process, and whether expiry keeps up, which takes a moment to count.
fn log_limits(service: &Service, cache_bytes: usize) {
    tracing::info!(
        format = mayfly_server::DATA_FORMAT,
        cacheMB = cache_bytes >> 20,
        memoryMB = mayfly_service::usable_memory() >> 20,
        openFiles = mayfly_server::open_files(),
        expiry = supervisor::expiry(service).unwrap_or_default(),
        "limits and the state of expiry"
    );
}

/// Why the server ends.
enum End {
    /// It was asked to; running commands may continue for this time.
    Asked(Duration),
    /// It was asked to step down, and leaves the store to another server for this time at most.
    HandsOver(Duration),
    /// Another server has taken the store over.
    TakenOver,
    /// The store that this server only reads has no owner, and this server is to become it.
    StandsForOwner,
}

/// Waits, on a secondary, until it is to replace the owner; for ever on other servers.
async fn owner_is_gone(running: &Running, config: &Config) -> anyhow::Result<()> {
    match running.service.store.is_secondary() {
        true => standby::owner_is_gone(config, &running.service).await,
        false => std::future::pending().await,
    }
}

/// Waits for SIGTERM, SIGINT, the command `shutdown`, or the loss of the store. Meanwhile SIGUSR1
/// rotates the log files, and SIGHUP reopens them and reads certificates again.
async fn wait_for_end(
    running: &Running,
    supervisor: &Supervisor,
    signals: &mut Signals,
) -> anyhow::Result<End> {
    let Signals { terminate, interrupt, rotate, reload } = signals;
    let service = &running.service;
    let mut taken_over = std::pin::pin!(running.taken_over());
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(End::Asked(service.settings.signaled_shutdown())),
            _ = interrupt.recv() => return Ok(End::Asked(service.settings.signaled_shutdown())),
            () = running.stop_requested() => return Ok(End::Asked(DRAIN)),
            longest = service.shutdown.hand_over_requested() => {
                return Ok(End::HandsOver(longest));
            }
            () = &mut taken_over => return Ok(End::TakenOver),
            _ = rotate.recv() => rotate_logs(service, LogRotation::Configured),
            _ = reload.recv() => {
                supervisor.reloading();
                rotate_logs(service, LogRotation::Reopen);
                reread_certificates(service);
                supervisor.ready();
            }
        }
    }
}

fn rotate_logs(service: &Service, how: LogRotation) {
    let audit = service.rotate_audit(Actor::System, how);
    for why in [service.log.rotate(how), audit].into_iter().filter_map(Result::err) {
        tracing::error!("log rotation failed: {why}");
    }
}

fn reread_certificates(service: &Service) {
    let Some(transport) = service.transport.get() else { return };
    match transport.rotate() {
        Ok(()) => tracing::info!("certificates were read again"),
        Err(error) => tracing::error!(
            "certificates could not be read again; the previous ones stay in use: {}",
            error.message()
        ),
    }
}

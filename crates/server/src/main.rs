//! The binary mayflydb: reads the configuration, starts a server, waits for the wish to stop.

mod allocators;

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use mayfly_base::{Clock, SystemClock};
use mayfly_server::config::{EngineChoice, Flags, Layers, shown_words};
use mayfly_server::failure::{self, Failure, FailureKind};
use mayfly_server::logging::{LogFormat, LogLayer};
use mayfly_server::{Config, Running, StartOptions, healthcheck, processor, start};
use mayfly_service::parameters::LogVerbosity;
use mayfly_service::{Actor, LogRing};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::layer::SubscriberExt;

/// How long a thread that did long work waits for more. The allocator gives back what a thread has freed when the thread ends,
/// so that this is about how long the memory of a large sort or group outlives it.
const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(2);
/// Most threads that wait beside the workers. Writers wait for the transactions of others; with all of them taken, the statements of those
/// would wait, too.
const MOST_THREADS: usize = 4096;

fn main() -> ExitCode {
    let began = Instant::now();
    match run(began) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mayflydb: {}", failure::sentence(&error));
            ExitCode::from(FailureKind::of(&error).exit_code())
        }
    }
}

fn run(began: Instant) -> anyhow::Result<()> {
    processor::check()?;
    let flags = Flags::read()?;
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let layers = Layers::collect(&flags, &environment)?;
    if flags.print_config {
        let mut out = std::io::stdout();
        return out
            .write_all(layers.describe().as_bytes())
            .context("cannot write the configuration");
    }
    let config = Config::from_layers(&layers)?;
    if flags.healthcheck {
        return healthcheck::check(config.port, config.tls.mode);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let log = Arc::new(LogRing::default());
    let set_level = begin_log(&config, &log, &clock)?;
    let options = StartOptions {
        config: config.clone(),
        clock,
        log,
        argv: shown_words(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        parsed: layers.parsed(),
        background: true,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("worker")
        .thread_keep_alive(KEEP_ALIVE)
        .max_blocking_threads(MOST_THREADS)
        .on_thread_stop(mayfly_base::memory::tell)
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(async {
        let running = start(options).await?;
        running.service.settings.on_log_level(set_level);
        say_ready(&running, &config, began);
        wait_for_end(&running).await?;
        tracing::info!("stopping: no new connections, running commands may finish");
        running.stop().await?;
        tracing::info!("stopped");
        Ok(())
    });
    // A command that did not end in time must not keep the process.
    runtime.shutdown_background();
    // Whoever looks for the reason looks into the log file; the standard error output has it in any case.
    if let (Err(error), Some(_)) = (&ended, &config.log_path) {
        tracing::error!("{}", failure::sentence(error));
    }
    ended
}

/// Installs the log; gives what changes its level.
fn begin_log(
    config: &Config,
    ring: &Arc<LogRing>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<impl Fn(&LogVerbosity) + Send + Sync + 'static> {
    let (out, format): (Box<dyn Write + Send>, LogFormat) = match &config.log_path {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            (Box::new(file.with_context(|| no_log(path))?), LogFormat::Json)
        }
        None => {
            let out = std::io::stdout();
            let format = if out.is_terminal() { LogFormat::Text } else { LogFormat::Json };
            (Box::new(out), format)
        }
    };
    let layer = LogLayer::new(out, format, ring.clone(), clock.clone(), config.verbosity);
    let set_level = layer.level_setter();
    if let Some(path) = &config.log_path {
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("mayflydb {version} starts, process {}", std::process::id());
        layer.begin(&line).with_context(|| no_log(path))?;
        ring.on_rotate(layer.rotator(path.clone()));
    }
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).context("cannot install the log")?;
    Ok(set_level)
}

fn no_log(path: &Path) -> Failure {
    Failure::new(
        FailureKind::General,
        format!("cannot write the log file {}", path.display()),
        "choose another with --logpath, in a folder that exists and has room",
    )
}

fn say_ready(running: &Running, config: &Config, began: Instant) {
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let address = running.address();
    let reachable = match address.ip().is_unspecified() {
        true => format!("127.0.0.1:{}", address.port()),
        false => address.to_string(),
    };
    let data = match config.engine {
        EngineChoice::Rocksdb => format!("data in {}", config.db_path.display()),
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

/// Waits for SIGTERM, SIGINT or the shutdown command; SIGUSR1 begins a new log file meanwhile.
async fn wait_for_end(running: &Running) -> anyhow::Result<()> {
    let hear = |kind| signal(kind).context("cannot listen to signals");
    let (mut terminate, mut interrupt) =
        (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let mut rotate = hear(SignalKind::user_defined1())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            () = running.stop_requested() => return Ok(()),
            _ = rotate.recv() => {
                let audit = running.service.rotate_audit(Actor::System);
                for why in [running.service.log.rotate(), audit].into_iter().filter_map(Result::err) {
                    tracing::error!("log rotation failed: {why}");
                }
            }
        }
    }
}

//! Values of parameters without another owner.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mayfly_scripts::ScriptLimits;
use parking_lot::Mutex;

use super::{LogVerbosity, MemoryParameters};

/// Less than the reference's 15 seconds: Docker kills a container 10 seconds after the signal.
const SIGNALED_SHUTDOWN_MS: i64 = 5_000;

/// Three months.
const KEYS_ROTATION_SECS: i64 = 7_776_000;

/// A function that is called with new log verbosities.
type LogLevelHook = Box<dyn Fn(&LogVerbosity) + Send + Sync>;

/// Whether queries may run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripts {
    /// Scripts run.
    Run,
    /// Commands with scripts fail.
    Refused,
}

/// Values of parameters without another owner.
pub struct Settings {
    pub(crate) log_verbosity: Mutex<LogVerbosity>,
    pub(crate) log_level_hook: std::sync::OnceLock<LogLevelHook>,
    pub(crate) scripts_enabled: AtomicBool,
    pub(crate) script_timeout_ms: AtomicI64,
    pub(crate) signaled_shutdown_ms: AtomicI64,
    pub(crate) honor_system_umask: AtomicBool,
    pub(crate) quiet: AtomicBool,
    pub(crate) automation_descriptor: Mutex<String>,
    pub(crate) keys_rotation_secs: AtomicI64,
    pub(crate) pool_matching: Mutex<&'static str>,
    pub(crate) limits_new_connections: AtomicBool,
    pub(crate) script_heap_mb: AtomicI64,
    pub(crate) any_script_heap_mb: AtomicI64,
    /// The memory parameters.
    pub memory: MemoryParameters,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            log_verbosity: Mutex::default(),
            log_level_hook: std::sync::OnceLock::new(),
            scripts_enabled: AtomicBool::new(true),
            script_timeout_ms: AtomicI64::new(60_000),
            signaled_shutdown_ms: AtomicI64::new(SIGNALED_SHUTDOWN_MS),
            honor_system_umask: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            automation_descriptor: Mutex::default(),
            keys_rotation_secs: AtomicI64::new(KEYS_ROTATION_SECS),
            pool_matching: Mutex::new("automatic"),
            limits_new_connections: AtomicBool::new(false),
            script_heap_mb: AtomicI64::new(100),
            any_script_heap_mb: AtomicI64::new(1100),
            memory: MemoryParameters::default(),
        }
    }
}

impl Settings {
    /// Whether the log leaves out lines about single connections.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Leaves out such lines: `systemLog.quiet`.
    pub fn be_quiet(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// The text that `hello` returns as `automationServiceDescriptor`.
    pub fn automation_descriptor(&self) -> String {
        self.automation_descriptor.lock().clone()
    }

    /// `logLevel`: 0 to 5.
    pub fn log_level(&self) -> i64 {
        self.log_verbosity.lock().all()
    }

    /// A copy of `logComponentVerbosity`, with the level of each component.
    pub fn log_verbosity(&self) -> LogVerbosity {
        self.log_verbosity.lock().clone()
    }

    /// Sets `logLevel`, which is the level of components without one of their own.
    pub fn set_log_level(&self, level: i64) {
        self.set_log_verbosity(self.log_verbosity().with_all(level));
    }

    /// Sets `logComponentVerbosity`, and passes it to the log's filter.
    pub fn set_log_verbosity(&self, verbosity: LogVerbosity) {
        if let Some(hook) = self.log_level_hook.get() {
            hook(&verbosity);
        }
        *self.log_verbosity.lock() = verbosity;
    }

    /// Whether the server runs scripts, and their limits.
    pub fn script_limits(&self) -> ScriptLimits {
        let any_mb = self.any_script_heap_mb.load(Ordering::Relaxed);
        let heap_mb = match self.script_heap_mb.load(Ordering::Relaxed) {
            0 => any_mb,
            heap_mb => heap_mb.min(any_mb),
        };
        ScriptLimits {
            enabled: self.scripts_enabled.load(Ordering::Relaxed),
            timeout_ms: self.script_timeout_ms.load(Ordering::Relaxed),
            heap_bytes: usize::try_from(heap_mb << 20).unwrap_or(usize::MAX),
        }
    }

    /// How long running commands may continue after SIGTERM or SIGINT.
    pub fn signaled_shutdown(&self) -> Duration {
        let ms = self.signaled_shutdown_ms.load(Ordering::Relaxed);
        Duration::from_millis(ms.unsigned_abs())
    }

    /// Sets whether the server runs scripts: `security.javascriptEnabled`.
    pub fn set_scripts(&self, scripts: Scripts) {
        self.scripts_enabled.store(scripts == Scripts::Run, Ordering::Relaxed);
    }

    /// Sets the function that changes the log's filter; only the first call has an effect.
    pub fn on_log_level(&self, hook: impl Fn(&LogVerbosity) + Send + Sync + 'static) {
        // A second hook would belong to a second subscriber, which a process cannot have.
        let _ = self.log_level_hook.set(Box::new(hook));
    }
}

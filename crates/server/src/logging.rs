//! The log: text on a terminal, JSON lines otherwise, and a copy in the ring for `getLog`.
//!
//! A JSON line has the reference's shape: `{"t": {"$date"}, "s", "c", "id", "ctx", "msg", "attr"}`.
//! Events may set `id` (the reference's number), `component` and `ctx`; their other fields are in
//! `attr`.

pub(crate) mod rotate;
pub(crate) mod system_log;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context as _;
use mayfly_base::Clock;
use mayfly_service::LogVerbosity;
use mayfly_service::{LogRing, LogRotation};
use mayfly_value::bson::DateTime;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use self::rotate::{LogOutput, Rotated};
use self::system_log::SystemLog;
use crate::config::{LogDestination, LogSettings};
use crate::failure::{Failure, FailureKind};

pub use rotate::RotateMethod;
pub use system_log::FACILITIES;

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    /// Text for a terminal.
    Text,
    /// JSON lines.
    Json,
}

/// The subscriber layer that writes the log.
pub struct LogLayer {
    out: rotate::Out,
    format: LogFormat,
    ring: Arc<LogRing>,
    clock: Arc<dyn Clock>,
    levels: Arc<Levels>,
}

fn no_log(path: &Path) -> Failure {
    Failure::new(
        FailureKind::General,
        format!("cannot write the log file {}", path.display()),
        "choose another with --logpath, in a folder that exists and has free space",
    )
}

/// The verbosity of the log.
struct Levels {
    /// The highest level of any component, which excludes most events without the lock.
    highest: AtomicI64,
    verbosity: Mutex<LogVerbosity>,
}

impl LogLayer {
    /// Opens the configured log and writes its first line, so that a log that cannot be written is
    /// detected before the server runs.
    ///
    /// # Errors
    /// A [`Failure`]: the file cannot be written, or the system's log cannot be reached.
    pub fn open(
        settings: &LogSettings,
        ring: &Arc<LogRing>,
        clock: &Arc<dyn Clock>,
        verbosity: i64,
    ) -> anyhow::Result<LogLayer> {
        let layer =
            |out, format| LogLayer::new(out, format, ring.clone(), clock.clone(), verbosity);
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("mayflydb {version} starts, process {}", std::process::id());
        match &settings.destination {
            LogDestination::StandardOutput => {
                let out = io::stdout();
                let format = if out.is_terminal() { LogFormat::Text } else { LogFormat::Json };
                Ok(layer(LogOutput::stream(Box::new(out)), format))
            }
            LogDestination::Syslog(facility) => {
                let failed = || {
                    let advice = "start it, or choose a file with --logpath";
                    Failure::new(FailureKind::General, system_log::TRIED, advice)
                };
                let daemon = SystemLog::of_system(facility, clock.clone()).with_context(failed)?;
                let layer = layer(LogOutput::stream(Box::new(daemon)), LogFormat::Json);
                layer.begin(&line).with_context(failed)?;
                Ok(layer)
            }
            LogDestination::File(path) => {
                // Only regular files are renamed, not a terminal or `/dev/null`.
                if !settings.append && std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
                    rotate::rename(path, &**clock).with_context(|| no_log(path))?;
                }
                let file = rotate::append_to(path).with_context(|| no_log(path))?;
                let layer = layer(LogOutput::file(file), LogFormat::Json);
                layer.begin(&line).with_context(|| no_log(path))?;
                let rotated = Rotated { path: path.clone(), method: settings.rotate };
                ring.on_rotate(layer.rotator(rotated));
                Ok(layer)
            }
        }
    }

    /// A log that writes to `out` and to the ring.
    fn new(
        out: LogOutput,
        format: LogFormat,
        ring: Arc<LogRing>,
        clock: Arc<dyn Clock>,
        verbosity: i64,
    ) -> LogLayer {
        let levels = Arc::new(Levels {
            highest: AtomicI64::new(verbosity),
            verbosity: Mutex::new(LogVerbosity::of_all(verbosity)),
        });
        LogLayer { out: Arc::new(Mutex::new(out)), format, ring, clock, levels }
    }

    /// A function that changes the verbosity, for `logLevel` and `logComponentVerbosity`.
    pub fn level_setter(&self) -> impl Fn(&LogVerbosity) + Send + Sync + 'static + use<> {
        let levels = self.levels.clone();
        move |verbosity| {
            *levels.verbosity.lock() = verbosity.clone();
            levels.highest.store(verbosity.highest(), Ordering::Relaxed);
        }
    }

    /// A function that rotates the log file, for `logRotate`.
    fn rotator(
        &self,
        rotated: Rotated,
    ) -> impl Fn(LogRotation) -> Result<(), String> + Send + Sync + 'static + use<> {
        let (out, clock) = (self.out.clone(), self.clock.clone());
        move |how| {
            let rotated = rotated.rotate(&out, how, &*clock, rotate::append_to);
            rotated.map(drop).map_err(|error| format!("{error:#}"))
        }
    }

    /// Writes the first line.
    ///
    /// # Errors
    /// The line could not be written.
    fn begin(&self, message: &str) -> io::Result<()> {
        let fields = Fields { message: message.to_owned(), ..Fields::default() };
        let time = time_text(self.clock.now_ms());
        let line = Line { time, level: Level::INFO, fields };
        let json = line.json(component("mayflydb"));
        let text = self.shown(&line, &json);
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.ring.push(json);
        Ok(())
    }

    fn shown(&self, line: &Line, json: &str) -> String {
        match self.format {
            LogFormat::Json => format!("{json}\n"),
            LogFormat::Text => line.text(),
        }
    }

    fn is_logged(&self, metadata: &Metadata<'_>) -> bool {
        let own = metadata.target().starts_with("mayfly");
        let needed = match *metadata.level() {
            Level::ERROR | Level::WARN => return true,
            Level::INFO => return own,
            Level::DEBUG => 1,
            Level::TRACE => 3,
        };
        if !own || self.levels.highest.load(Ordering::Relaxed) < needed {
            return false;
        }
        let component = component(metadata.target()).to_ascii_lowercase();
        self.levels.verbosity.lock().level(&component) >= needed
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The level can change at runtime, so the result must not be cached.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_logged(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now_ms = self.clock.now_ms();
        let line = Line { time: time_text(now_ms), level: *event.metadata().level(), fields };
        let component = component(event.metadata().target());
        let json = line.json(component);
        let text = self.shown(&line, &json);
        // An error of the log must not stop the server, and cannot be reported anywhere else.
        let _ = self.out.lock().write_all(text.as_bytes());
        if line.fields.attr.get("startupWarning") == Some(&Value::Bool(true)) {
            self.ring.push_startup_warning(json.clone());
        }
        self.ring.push(json);
    }
}

struct Line {
    time: String,
    level: Level,
    fields: Fields,
}

impl Line {
    fn json(&self, component: &str) -> String {
        let severity = match self.level {
            Level::ERROR => "E",
            Level::WARN => "W",
            Level::INFO => "I",
            Level::DEBUG => "D1",
            Level::TRACE => "D3",
        };
        let thread = std::thread::current();
        let ctx = self.fields.ctx.as_deref().or(thread.name()).unwrap_or("-");
        let component = self.fields.component.as_deref().unwrap_or(component);
        let mut line = json!({
            "t": {"$date": self.time}, "s": severity, "c": component, "id": self.fields.id,
            "ctx": ctx, "msg": self.fields.message,
        });
        if !self.fields.attr.is_empty() {
            line["attr"] = Value::Object(self.fields.attr.clone());
        }
        line.to_string()
    }

    fn text(&self) -> String {
        let mut text = format!("{} {:5} {}", self.time, self.level, self.fields.message);
        for (name, value) in &self.fields.attr {
            match value {
                Value::String(value) => text.push_str(&format!(" {name}={value}")),
                other => text.push_str(&format!(" {name}={other}")),
            }
        }
        text.push('\n');
        text
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    id: i64,
    ctx: Option<String>,
    component: Option<String>,
    attr: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("ctx", Value::String(text)) => self.ctx = Some(text),
            ("component", Value::String(text)) => self.component = Some(text),
            ("id", Value::Number(id)) => self.id = id.as_i64().unwrap_or(0),
            (name, value) => {
                self.attr.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

/// The reference's component for one of our crates.
fn component(target: &str) -> &'static str {
    match target.split("::").next().unwrap_or_default() {
        "mayfly_storage" if target.contains("::ttl") => "INDEX",
        "mayfly_storage" | "mayfly_kv_rocksdb" | "mayfly_kv" => "STORAGE",
        "mayfly_commands" => "COMMAND",
        "mayfly_query" | "mayfly_mql" => "QUERY",
        "mayfly_server" if target.ends_with("connection") || target.ends_with("accept") => {
            "NETWORK"
        }
        "mayfly_server" | "mayflydb" => "CONTROL",
        _ => "-",
    }
}

fn time_text(now_ms: i64) -> String {
    let whole = DateTime::from_millis(now_ms - now_ms.rem_euclid(1000));
    let text = whole.try_to_rfc3339_string().unwrap_or_default();
    format!("{}.{:03}+00:00", text.trim_end_matches('Z'), now_ms.rem_euclid(1000))
}

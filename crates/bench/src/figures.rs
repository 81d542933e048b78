//! What a load did and cost, as named figures: the columns of the table, the budgets, comparisons
//! and the JSON all speak of the same names.

use std::time::Instant;

use crate::latency::Recorder;
use crate::process::Process;
use crate::server::Target;

/// Operations in a second of the clock.
pub(crate) const RATE: &str = "rate";
/// CPU microseconds of the server for an operation, until the last answer.
pub(crate) const SERVER: &str = "server";
/// The same for what it did after the last answer until it was quiet (compaction, flushes).
pub(crate) const LATER: &str = "later";
/// CPU microseconds of the load generator for an operation.
pub(crate) const CLIENT: &str = "client";
/// Operations in a second of the server's CPU time.
pub(crate) const PER_CORE: &str = "rate per core";
pub(crate) const P50: &str = "p50";
pub(crate) const P95: &str = "p95";
pub(crate) const P99: &str = "p99";
pub(crate) const P999: &str = "p99.9";
pub(crate) const MAX: &str = "max";
/// Resident memory of the server when it was quiet again.
pub(crate) const RESIDENT: &str = "resident";
/// Most resident memory of the server during a load.
pub(crate) const PEAK: &str = "peak resident";
/// Bytes written to the disk for a byte of the user's data, until the server was quiet.
pub(crate) const WRITTEN: &str = "written";
/// Size of the folder of data.
pub(crate) const DISK: &str = "disk";

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// All figures of a load that ran once.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) figures: Vec<Figure>,
}

impl Measured {
    /// Adds a figure, or changes it.
    pub(crate) fn set(&mut self, name: &'static str, value: f64, unit: &'static str) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.value = value,
            None => self.figures.push(Figure { name, value, unit }),
        }
    }

    /// Adds a figure if it is known.
    pub(crate) fn set_known(&mut self, name: &'static str, value: Option<f64>, unit: &'static str) {
        if let Some(value) = value {
            self.set(name, value, unit);
        }
    }

    /// A figure's value.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Adds throughput and latencies.
    pub(crate) fn set_load(&mut self, seconds: f64, recorder: Recorder) {
        let count = recorder.done.count as f64;
        self.set(RATE, count / seconds, "/s");
        let latencies = &recorder.latencies;
        for (name, quantile) in [(P50, 0.5), (P95, 0.95), (P99, 0.99), (P999, 0.999)] {
            self.set(name, latencies.millis_at(quantile), "ms");
        }
        self.set(MAX, latencies.max_millis(), "ms");
        let corrected = latencies.corrected();
        self.set("corrected p99", corrected.millis_at(0.99), "ms");
        self.set("corrected p99.9", corrected.millis_at(0.999), "ms");
        self.set("operations", count, "");
        self.set("seconds", seconds, "s");
        if recorder.unasked > 0 {
            self.set("unasked", recorder.unasked as f64, "");
        }
    }
}

/// What server and load generator had used when a load began.
pub(crate) struct Stopwatch<'t> {
    target: &'t Target,
    pub(crate) began: Instant,
    server: Option<f64>,
    client: Option<f64>,
    written: Option<f64>,
}

impl<'t> Stopwatch<'t> {
    /// Begins now.
    pub(crate) fn start(target: &'t Target) -> Stopwatch<'t> {
        Stopwatch {
            target,
            server: target.cpu_seconds(),
            client: Process::own().cpu_seconds(),
            written: target.process.and_then(Process::written_bytes),
            began: Instant::now(),
        }
    }

    /// Seconds since then, and the figures of the CPU time for so many operations.
    pub(crate) fn stop(&self, count: u64) -> (f64, Measured) {
        let seconds = self.began.elapsed().as_secs_f64();
        let per = |before: Option<f64>, now: Option<f64>| {
            Some((now? - before?) * 1e6 / count.max(1) as f64)
        };
        let server = per(self.server, self.target.cpu_seconds());
        let mut measured = Measured::default();
        measured.set_known(SERVER, server, "us");
        measured.set_known(CLIENT, per(self.client, Process::own().cpu_seconds()), "us");
        let per_core = server.filter(|us| *us > 0.0).map(|us| 1e6 / us);
        measured.set_known(PER_CORE, per_core, "/s");
        (seconds, measured)
    }

    /// Waits until the server is quiet and adds what it did meanwhile, what it wrote and what it
    /// holds.
    pub(crate) fn settle(&self, measured: &mut Measured, count: u64, user_bytes: u64) {
        let later = self.target.settle() * 1e6 / count.max(1) as f64;
        let Some(process) = self.target.process else { return };
        measured.set(LATER, later, "us");
        measured.set_known(RESIDENT, process.resident_bytes().map(|bytes| bytes / 1e6), "MB");
        if user_bytes > 0 {
            let written = process.written_bytes().zip(self.written);
            let written = written.map(|(now, before)| (now - before) / user_bytes as f64);
            measured.set_known(WRITTEN, written, "bytes/byte");
        }
        measured.set_known(DISK, self.target.disk_bytes().map(|bytes| bytes / 1e6), "MB");
    }
}

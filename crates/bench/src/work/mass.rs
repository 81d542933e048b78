//! A mass expiry while YCSB A runs. Each second is measured, for the plot in
//! `docs/performance.md`.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mayfly_value::RawDoc;

use super::bulk::fill;
use super::ttl::monitor;
use super::{Plan, create_indexes, document_count, drop_collection, ycsb};
use crate::caller::{Caller, Turn};
use crate::client::Client;
use crate::figures::{Measured, RATE};
use crate::latency::Latencies;
use crate::load::{Load, run_during};
use crate::plot::{Course, svg};
use crate::server::Target;
use crate::wire::{Request, number_at};

const DUE: &str = "due";
/// Time between two lines.
const STEP: Duration = Duration::from_secs(1);
/// Time without expiry, before and after it.
const ALONE: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(1800);

/// The latencies since the last line.
type Since = Arc<Mutex<Latencies>>;

/// A caller whose latencies are collected for the present line, too.
struct Timed {
    inner: Box<dyn Caller>,
    asked: Instant,
    since: Since,
}

impl Caller for Timed {
    fn ask(&mut self, request: &mut Request) {
        self.inner.ask(request);
        self.asked = Instant::now();
    }

    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn> {
        let latency = self.asked.elapsed();
        self.since.lock().unwrap_or_else(PoisonError::into_inner).record(latency);
        self.inner.answer(reply)
    }
}

/// Expires `--documents` items with three further indexes while YCSB A runs on four connections.
/// `--csv` names the file with the lines.
pub(super) fn expire(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    drop_collection(&mut client, DUE)?;
    create_indexes(&mut client, DUE, &["at", "g", "y"], Some(("at", 0)))?;
    fill(target, DUE, plan.documents)?;
    ycsb::load(target, plan)?;
    target.settle();

    let since: Since = Arc::new(Mutex::new(Latencies::new()?));
    let askers = ycsb::askers_of_a(plan)?;
    let load = Load::new(plan, ycsb::CONNECTIONS, |number| {
        let inner = askers(number);
        Box::new(Timed { inner, asked: Instant::now(), since: Arc::clone(&since) })
    });
    let mut lines = Lines::new(target, since.clone(), plan.documents);
    let ((first, last), _) = run_during(target, &[&load], |_| {
        for _ in 0..ALONE {
            lines.add(&mut client)?;
        }
        monitor(&mut client, true)?;
        let first = lines.rows.len();
        while lines.add(&mut client)? > 0 {
            if lines.began.elapsed() > PATIENCE {
                bail!("documents are still there");
            }
        }
        let last = lines.rows.len();
        for _ in 0..ALONE {
            lines.add(&mut client)?;
        }
        Ok((first, last))
    })?;
    monitor(&mut client, false)?;
    if let Some(path) = &plan.csv {
        std::fs::write(path, lines.text()?).with_context(|| format!("{}", path.display()))?;
        let plot = path.with_extension("svg");
        let svg = lines.plot(first, last)?;
        std::fs::write(&plot, svg).with_context(|| format!("{}", plot.display()))?;
    }
    lines.summary(first, last)
}

/// The columns of the lines.
const NAMES: [&str; 10] = [
    "seconds",
    "expired",
    "expired/s",
    "ycsb/s",
    "p50",
    "p99",
    "written/s",
    "log",
    "resident",
    "disk",
];

/// What happened in one step.
struct Row {
    seconds: f64,
    left: u32,
    operations: f64,
    p50: f64,
    p99: f64,
    written: f64,
    log: f64,
    resident: f64,
    disk: f64,
}

struct Lines<'t> {
    target: &'t Target,
    since: Since,
    began: Instant,
    documents: u32,
    rows: Vec<Row>,
}

impl<'t> Lines<'t> {
    fn new(target: &'t Target, since: Since, documents: u32) -> Lines<'t> {
        Lines { target, since, began: Instant::now(), documents, rows: Vec::new() }
    }

    /// Waits for a step and records it; gives how many documents are left.
    fn add(&mut self, client: &mut Client) -> Result<u32> {
        if self.rows.is_empty() {
            self.began = Instant::now();
            *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Latencies::new()?;
        }
        let next = STEP * (self.rows.len() as u32 + 1);
        std::thread::sleep(next.saturating_sub(self.began.elapsed()));
        let latencies = {
            let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *since, Latencies::new()?)
        };
        let process = self.target.process.context("only for a server on this machine")?;
        let log = client.ask(|doc| {
            doc.append("collStats", "oplog.rs").append("$db", "local");
        });
        // Without a replica set the log has no name; its size is then left out.
        let log = log.ok().and_then(|stats| number_at(stats.as_doc(), &["size"]));
        let left = document_count(client, DUE)?;
        self.rows.push(Row {
            seconds: self.began.elapsed().as_secs_f64(),
            left,
            operations: latencies.count() as f64,
            p50: latencies.millis_at(0.5),
            p99: latencies.millis_at(0.99),
            written: process.written_bytes().unwrap_or(0.0),
            log: log.unwrap_or(0.0),
            resident: process.resident_bytes().unwrap_or(0.0),
            disk: self.target.disk_bytes().unwrap_or(0.0),
        });
        Ok(left)
    }

    /// Comma-separated: rates are per second of the step, latencies in milliseconds, sizes in MB.
    fn text(&self) -> Result<String> {
        let mut text = NAMES.join(",") + "\n";
        for line in self.lines() {
            let line = line.map(|value| format!("{value:.3}"));
            writeln!(text, "{}", line.join(","))?;
        }
        Ok(text)
    }

    /// The columns that [`NAMES`] lists, for each step.
    fn lines(&self) -> Vec<[f64; NAMES.len()]> {
        let (mut time, mut left) = (0.0, self.documents);
        let mut written = self.rows.first().map_or(0.0, |row| row.written);
        let mut lines = Vec::new();
        for row in &self.rows {
            let step = row.seconds - time;
            lines.push([
                row.seconds,
                f64::from(self.documents - row.left),
                f64::from(left - row.left) / step,
                row.operations / step,
                row.p50,
                row.p99,
                (row.written - written) / step / 1e6,
                row.log / 1e6,
                row.resident / 1e6,
                row.disk / 1e6,
            ]);
            (time, left, written) = (row.seconds, row.left, row.written);
        }
        lines
    }

    /// Plots of the rates, the latency and the sizes; the expiry lasts between the numbered steps.
    fn plot(&self, first: usize, last: usize) -> Result<String> {
        let lines = self.lines();
        let column = |at: usize| lines.iter().map(|line| line[at]).collect::<Vec<f64>>();
        let course = |(title, at)| Course { title, values: column(at) };
        let courses = [
            ("documents expired per second", 2),
            ("YCSB A: operations per second", 3),
            ("YCSB A: 99th percentile, ms", 5),
            ("MB written to disk per second", 6),
            ("operation log, MB", 7),
            ("resident memory, MB", 8),
        ];
        let marks = [first, last].map(|step| self.rows[step - 1].seconds);
        svg(&column(0), &courses.map(course), &marks)
    }

    /// Medians of the steps before the expiry, and of those of it, which are numbered so.
    fn summary(&self, first: usize, last: usize) -> Result<Measured> {
        let median = |rows: &[Row], figure: fn(&Row) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().context("no steps")
        };
        let (before, during) = (&self.rows[..first], &self.rows[first..last]);
        let seconds = during.last().context("no steps")?.seconds - before[first - 1].seconds;
        let mut measured = Measured::default();
        measured.set(RATE, f64::from(self.documents) / seconds, "/s");
        measured.set("YCSB A before", median(before, |row| row.operations)?, "/s");
        measured.set("YCSB A during", median(during, |row| row.operations)?, "/s");
        measured.set("p99 before", median(before, |row| row.p99)?, "ms");
        measured.set("p99 during", median(during, |row| row.p99)?, "ms");
        Ok(measured)
    }
}

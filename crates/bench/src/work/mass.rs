//! A mass expiry beside YCSB A, second by second: a line each for the plot in
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

/// Expires `--documents` items with three further indexes beside YCSB A on four connections.
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
    }
    lines.summary(first, last)
}

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
        let mut text =
            "seconds,expired,expired/s,ycsb/s,p50,p99,written/s,log,resident,disk\n".to_owned();
        let (mut time, mut left) = (0.0, self.documents);
        let mut written = self.rows.first().map_or(0.0, |row| row.written);
        for row in &self.rows {
            let step = row.seconds - time;
            let mb = |bytes: f64| bytes / 1e6;
            writeln!(
                text,
                "{:.1},{},{:.0},{:.0},{:.3},{:.3},{:.1},{:.1},{:.1},{:.1}",
                row.seconds,
                self.documents - row.left,
                f64::from(left - row.left) / step,
                row.operations / step,
                row.p50,
                row.p99,
                mb(row.written - written) / step,
                mb(row.log),
                mb(row.resident),
                mb(row.disk),
            )?;
            (time, left, written) = (row.seconds, row.left, row.written);
        }
        Ok(text)
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

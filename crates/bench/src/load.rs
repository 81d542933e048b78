//! Runs a load: some connections, each in a thread, each asking again as soon as it was answered.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::Client;
use crate::process::Process;
use crate::server::Target;

/// What a load did and cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Operations, or documents where the load counts those.
    pub(crate) count: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Milliseconds until the answer, of half and of 99 in 100 requests.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// CPU microseconds per operation, where they could be read.
    pub(crate) server_us: Option<f64>,
    pub(crate) client_us: Option<f64>,
    /// The same for what the server did after the last answer (compaction, flushes).
    pub(crate) later_us: Option<f64>,
    /// Figures of another kind: name, value, unit.
    pub(crate) extra: Vec<(&'static str, f64, &'static str)>,
}

/// Sum of the CPU seconds of server and client.
pub(crate) struct Stopwatch<'t> {
    target: &'t Target,
    began: Instant,
    server: Option<f64>,
    client: Option<f64>,
}

impl<'t> Stopwatch<'t> {
    /// Begins now.
    pub(crate) fn start(target: &'t Target) -> Stopwatch<'t> {
        let (server, client) = (target.cpu_seconds(), Process::own().cpu_seconds());
        Stopwatch { target, began: Instant::now(), server, client }
    }

    /// What it took since then; the latencies are in nanoseconds.
    pub(crate) fn stop(&self, count: u64, mut latencies: Vec<u64>) -> Measured {
        let seconds = self.began.elapsed().as_secs_f64();
        let per = |before: Option<f64>, now: Option<f64>| {
            Some((now? - before?) * 1e6 / count.max(1) as f64)
        };
        let server_us = per(self.server, self.target.cpu_seconds());
        let client_us = per(self.client, Process::own().cpu_seconds());
        latencies.sort_unstable();
        Measured {
            count,
            seconds,
            p50_ms: percentile(&latencies, 50),
            p99_ms: percentile(&latencies, 99),
            server_us,
            client_us,
            ..Measured::default()
        }
    }
}

/// One of a load's connections: does one request, gives how many operations that was.
pub(crate) type Step = Box<dyn FnMut(&mut Client) -> Result<u64> + Send>;

/// Runs a load for a time; `step` makes the work of each connection.
pub(crate) fn run(
    target: &Target,
    connections: usize,
    time: Duration,
    step: impl Fn(usize) -> Step,
) -> Result<Measured> {
    let stopping = AtomicBool::new(false);
    let ready = Barrier::new(connections + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..connections {
            let (mut client, mut step) = (target.client()?, step(number));
            let (stopping, ready) = (&stopping, &ready);
            threads.push(scope.spawn(move || -> Result<(u64, Vec<u64>)> {
                let mut latencies = Vec::with_capacity(1 << 16);
                let mut count = 0;
                // The first request finds out what the server does only once.
                let warm = step(&mut client);
                ready.wait();
                warm?;
                while !stopping.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    count += step(&mut client)?;
                    latencies.push(asked.elapsed().as_nanos() as u64);
                }
                Ok((count, latencies))
            }));
        }
        ready.wait();
        let watch = Stopwatch::start(target);
        std::thread::sleep(time);
        stopping.store(true, Ordering::Relaxed);
        let (mut count, mut latencies) = (0, Vec::new());
        for thread in threads {
            let (more, further) = match thread.join() {
                Ok(result) => result?,
                Err(_) => anyhow::bail!("a connection's thread panicked"),
            };
            count += more;
            latencies.extend(further);
        }
        let mut measured = watch.stop(count, latencies);
        let later = target.settle();
        measured.later_us = measured.server_us.map(|_| later * 1e6 / count.max(1) as f64);
        Ok(measured)
    })
}

/// The latency that so many of 100 requests do not exceed, in milliseconds.
pub(crate) fn percentile(sorted: &[u64], of_100: usize) -> f64 {
    let at = (sorted.len() * of_100 / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |nanos| *nanos as f64 / 1e6)
}

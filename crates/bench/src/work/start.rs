//! How long a server takes until its first answer, and what it costs while nobody asks.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Plan;
use crate::load::{Measured, percentile};
use crate::process::Process;
use crate::server::Target;

const STARTS: usize = 7;
/// What opening leaves to be done.
const CALM: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(10);

pub(super) fn start(target: &Target, _: &Plan) -> Result<Measured> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let began = Instant::now();
        let Some(started) = target.another() else {
            anyhow::bail!("only with --server");
        };
        started?;
        times.push(began.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    let extra =
        vec![("median", percentile(&times, 50), "ms"), ("slowest", percentile(&times, 100), "ms")];
    Ok(Measured { extra, ..Measured::default() })
}

pub(super) fn idle(target: &Target, _: &Plan) -> Result<Measured> {
    let fresh = target.another().transpose()?;
    let process = fresh.as_ref().unwrap_or(target).process;
    let Some(process) = process else { anyhow::bail!("the server runs elsewhere") };
    std::thread::sleep(CALM);
    let figures = |process: Process| (process.cpu_seconds(), process.written_bytes());
    let before = figures(process);
    std::thread::sleep(IDLE);
    let after = figures(process);
    let difference = |after: Option<f64>, before: Option<f64>| match (after, before) {
        (Some(after), Some(before)) => after - before,
        _ => f64::NAN,
    };
    let extra = vec![
        ("resident memory", process.resident_bytes().unwrap_or(f64::NAN) / 1e6, "MB"),
        ("CPU in 10 s", difference(after.0, before.0) * 1e3, "ms"),
        ("written in 10 s", difference(after.1, before.1), "bytes"),
    ];
    Ok(Measured { extra, ..Measured::default() })
}

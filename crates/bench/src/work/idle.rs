//! The cost of an idle server.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Plan;
use crate::figures::Measured;
use crate::process::Process;
use crate::server::Target;

/// The time that background work after opening takes.
const CALM: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(10);

pub(super) fn idle(target: &Target, _: &Plan) -> Result<Measured> {
    // A server that is already running is measured as it is.
    let fresh = target.another().ok();
    let process = fresh.as_ref().unwrap_or(target).process.context("the server runs elsewhere")?;
    std::thread::sleep(CALM);
    let figures = |process: Process| (process.cpu_seconds(), process.written_bytes());
    let before = figures(process);
    std::thread::sleep(IDLE);
    let after = figures(process);
    let difference = |after: Option<f64>, before: Option<f64>| Some(after? - before?);
    let cpu = difference(after.0, before.0).map(|seconds| seconds * 1e3 / IDLE.as_secs_f64());
    let mut measured = Measured::default();
    measured.set_known("idle resident", process.resident_bytes().map(|b| b / 1e6), "MB");
    measured.set_known("idle CPU", cpu, "ms/s");
    measured.set_known("idle writes", difference(after.1, before.1), "bytes");
    measured.set_known("idle threads", process.threads(), "");
    Ok(measured)
}

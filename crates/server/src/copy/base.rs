//! The base: the entries of one point, read by one thread and written by another.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use mayfly_kv::Engine;
use mayfly_storage::{CopyPhase, CopyState, CopyTarget, end_of_run};

use super::source::Source;
use super::{of_target, say};
use crate::backup::show::size;

/// Runs that were read and are still to be written.
const RUNS_AHEAD: usize = 2;
/// The interval of two lines about the progress.
const REPORT: Duration = Duration::from_secs(5);

/// Begins a copy into an engine, whose content is removed.
///
/// # Errors
/// A [`Failure`](crate::failure::Failure).
pub(super) fn begin(source: &mut Source, engine: Arc<dyn Engine>) -> anyhow::Result<CopyTarget> {
    let copy = mayfly_storage::new_uuid();
    let point = source.begin(copy)?;
    let state = CopyState {
        copy,
        store: point.store,
        time: point.time,
        phase: CopyPhase::Base,
        position: None,
    };
    let target = CopyTarget::begin(engine, state).map_err(|error| of_target(&error))?;
    // From now on no server opens the target.
    say(&format!("about {} are copied", size(point.bytes)));
    Ok(target)
}

/// Copies the entries after the position of the target.
///
/// # Errors
/// A [`Failure`](crate::failure::Failure).
pub(super) fn copy(source: &mut Source, mut target: CopyTarget) -> anyhow::Result<CopyTarget> {
    let copy = target.state().copy;
    let total = source.begin(copy)?.bytes;
    let mut position = target.state().position.clone();
    if let Some(position) = &position {
        say(&format!("the base goes on in the keyspace '{}'", position.keyspace.name()));
    }
    let (runs, read) = sync_channel::<anyhow::Result<Vec<u8>>>(RUNS_AHEAD);
    let mut progress = Progress::begin(total);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            loop {
                let next = source.entries(copy, position.as_ref()).and_then(|run| {
                    let Some(run) = run else { return Ok(None) };
                    position = end_of_run(&run).map_err(|error| of_target(&error))?;
                    Ok(Some(run))
                });
                let (sent, is_last) = match next {
                    Ok(Some(run)) => (runs.send(Ok(run)), false),
                    Ok(None) => return,
                    Err(error) => (runs.send(Err(error)), true),
                };
                // The writer may have ended with an error.
                if is_last || sent.is_err() {
                    return;
                }
            }
        });
        for run in read {
            let run = run?;
            let entries = target.write_run(&run).map_err(|error| of_target(&error))?;
            progress.add(run.len() as u64, entries);
        }
        anyhow::Ok(())
    })?;
    target.end_base().map_err(|error| of_target(&error))?;
    progress.report("the base is complete");
    Ok(target)
}

/// What was copied.
struct Progress {
    total: u64,
    bytes: u64,
    entries: u64,
    began: Instant,
    reported: Instant,
}

impl Progress {
    fn begin(total: u64) -> Progress {
        let now = Instant::now();
        Progress { total, bytes: 0, entries: 0, began: now, reported: now }
    }

    fn add(&mut self, bytes: u64, entries: u64) {
        self.bytes += bytes;
        self.entries += entries;
        if self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            let percent = (self.bytes.saturating_mul(100) / self.total.max(1)).min(99);
            self.report(&format!("about {percent} %"));
        }
    }

    fn report(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = self.bytes as f64 / seconds / 1e6;
        let (bytes, entries) = (size(self.bytes), self.entries);
        say(&format!("{what}: {bytes}, {entries} entries in {seconds:.1} s, {rate:.1} MB/s"));
    }
}

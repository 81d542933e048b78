//! Servers that wait for the store in PostgreSQL.
//!
//! Of several servers with `--storageStandby` over one database, the owner of the store serves
//! clients. The others listen on no address, so that drivers go to the owner at once. When the
//! owner is gone, one of them opens the store and begins to listen. A server whose store was taken
//! over begins again as a waiting one.
//!
//! With `--replSet`, the others serve reads as secondaries while they wait. When the owner is gone,
//! one of them begins again and becomes the owner, which is the primary. A primary that steps down
//! closes the store, waits until another server owns it, and begins again as a secondary. One that
//! is asked to stop does the same before it ends: its clients learn of the new primary from it.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use mayfly_kv_postgres::{OpenError, Waiting, WhenFree};
use mayfly_service::Service;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval};

use crate::config::EngineChoice;
use crate::failure::{Failure, FailureKind};
use crate::healthcheck::Announcement;
use crate::kept_listeners::KeptListeners;
use crate::signals::Signals;
use crate::supervisor::Supervisor;
use crate::{Config, daemon, database, start};

/// How often the wait is interrupted without a reason.
const SELDOM: Duration = Duration::from_secs(3600);

/// For how long a primary that steps down leaves the store to the other servers, whose takeover
/// takes a second. The store is not without a primary for longer if they have failed as well.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// Whether a server that waited for the store is to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The store has no owner.
    Open,
    /// Another server owns the store. This one reads it.
    Read,
    /// The server was asked to stop.
    Stop,
}

/// Waits for the store. When the server has to wait, `begun` is called, after its addresses were
/// tried, and the sockets of `kept` are closed.
///
/// # Errors
/// A [`Failure`] as of a start.
pub async fn await_turn(
    config: &Config,
    (supervisor, signals): (&Supervisor, &mut Signals),
    kept: &mut KeptListeners,
    begun: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Turn> {
    if config.engine != EngineChoice::Postgres {
        let advice = "add --storageEngine postgres, or leave --storageStandby out";
        let failure = Failure::new(FailureKind::Options, "cannot wait for the store", advice);
        return Err(anyhow!("only a store in PostgreSQL has several servers").context(failure));
    }
    // A port in use is reported now, not when the server is needed.
    start::try_addresses(config, kept).await?;
    let mut wait = Wait::begin(config, WhenFree::Open, supervisor);
    let (mut begun, mut announced) = (Some(begun), None);
    loop {
        let why = match wait.step(supervisor, signals).await? {
            Step::WaitsFor(Waiting::Owner(_)) if config.has_members() => {
                wait.end().await?;
                return Ok(Turn::Read);
            }
            Step::WaitsFor(why) => sentence(&why),
            Step::Free => return Ok(Turn::Open),
            Step::Stopped => return Ok(Turn::Stop),
        };
        // Clients go to another server at once.
        *kept = KeptListeners::default();
        tracing::info!("standby: {why}");
        if let Some(begun) = begun.take() {
            begun()?;
            supervisor.ready();
            announced = announced.or_else(|| announce(config));
        }
        supervisor.status(&format!("standby: {why}"));
    }
}

/// A wait for the store on a thread of its own, which ends when this is dropped.
struct Wait {
    thread: JoinHandle<anyhow::Result<bool>>,
    reasons: watch::Receiver<Option<Waiting>>,
    is_over: Arc<AtomicBool>,
    /// For the signs of life to the service manager.
    alive: Interval,
}

/// What has happened in a [`Wait`].
enum Step {
    /// The store can be opened.
    Free,
    /// There is another reason to wait.
    WaitsFor(Waiting),
    /// The server was asked to stop.
    Stopped,
}

impl Wait {
    fn begin(config: &Config, when_free: WhenFree, supervisor: &Supervisor) -> Wait {
        let (found, reasons) = watch::channel(None);
        let is_over = Arc::new(AtomicBool::new(false));
        let (config, ends) = (config.clone(), is_over.clone());
        let thread = tokio::task::spawn_blocking(move || {
            database::await_store(&config, &|| when_free, &mut |why| {
                found.send_if_modified(|last| last.replace(why.clone()).as_ref() != Some(why));
                !ends.load(Ordering::Acquire)
            })
        });
        let alive = tokio::time::interval(supervisor.alive_every().unwrap_or(SELDOM));
        Wait { thread, reasons, is_over, alive }
    }

    /// The next event. The wait is over after [`Step::Free`] and [`Step::Stopped`].
    async fn step(
        &mut self,
        supervisor: &Supervisor,
        signals: &mut Signals,
    ) -> anyhow::Result<Step> {
        loop {
            tokio::select! {
                ended = &mut self.thread => {
                    ended.context("waiting for the store was interrupted")??;
                    return Ok(Step::Free);
                }
                Ok(()) = self.reasons.changed() => {
                    let why = self.reasons.borrow_and_update().clone();
                    if let Some(why) = why {
                        return Ok(Step::WaitsFor(why));
                    }
                }
                _ = self.alive.tick() => supervisor.alive(),
                () = signals.stop_requested() => {
                    self.end().await?;
                    return Ok(Step::Stopped);
                }
            }
        }
    }

    /// Ends the wait, and closes its connection to the database.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.is_over.store(true, Ordering::Release);
        (&mut self.thread).await.context("waiting for the store was interrupted")?.map(drop)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Waits, on a secondary, until the store has no owner, and this server is to become it.
///
/// # Errors
/// A [`Failure`] as of a start.
pub async fn owner_is_gone(config: &Config, service: &Arc<Service>) -> anyhow::Result<()> {
    // The thread ends with the process if the server ends before.
    let (waited, service) = (config.clone(), service.clone());
    let waiting = tokio::task::spawn_blocking(move || {
        let when_free = || {
            let now = service.clock.monotonic_micros();
            match service.replica_set.get().is_some_and(|set| set.is_frozen(now)) {
                true => WhenFree::LeaveToOthers,
                false => WhenFree::StandForOwner,
            }
        };
        database::await_store(&waited, &when_free, &mut |_| true)
    });
    waiting.await.context("waiting for the store was interrupted")?.map(drop)
}

/// Waits until another server owns the store that this one has closed, or has owned it meanwhile,
/// until no other waits for it, or for this long, at most ten seconds. Returns false if the server
/// was asked to stop meanwhile.
///
/// # Errors
/// A [`Failure`] as of a start.
pub async fn leave_to_others(
    config: &Config,
    (supervisor, signals): (&Supervisor, &mut Signals),
    longest: Duration,
) -> anyhow::Result<bool> {
    let mut wait = Wait::begin(config, WhenFree::LeaveToOthers, supervisor);
    let until = Instant::now() + longest.min(LEFT_FOR);
    while let Ok(step) = tokio::time::timeout_at(until, wait.step(supervisor, signals)).await {
        match step? {
            Step::Free | Step::WaitsFor(Waiting::Owner(_)) => break,
            Step::WaitsFor(_) => {}
            Step::Stopped => return Ok(false),
        }
    }
    Ok(true)
}

/// Writes for `--healthcheck` that the server waits.
fn announce(config: &Config) -> Option<Announcement> {
    let warn = |error| tracing::warn!(%error, "the file for --healthcheck cannot be written to the data folder");
    Announcement::write_waiting(config).map_err(warn).ok()
}

fn sentence(why: &Waiting) -> String {
    match why {
        Waiting::Owner(owner) => format!("{owner} owns the store; this server takes it over later"),
        Waiting::Candidate => "another server is about to open the store".into(),
        Waiting::FormerOwner => {
            "PostgreSQL was restarted, and the owner of the store has some seconds to return".into()
        }
        Waiting::Database(why) => format!("the database cannot be reached: {why}"),
    }
}

/// Whether a start has failed because another server owns the store, or because the database went
/// away: then the server waits for the store again.
pub fn waits_again(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<OpenError>();
    matches!(error, Some(OpenError::InUse(_) | OpenError::Unavailable(_)))
}

/// The pause before a server whose start has failed waits for the store again.
pub const BEFORE_AGAIN: Duration = Duration::from_secs(1);

/// Executes the program again with the same arguments, so that it waits for the store. It gets the
/// sockets on which clients connect. Returns only if that fails.
pub fn begin_again(kept: &KeptListeners) -> anyhow::Error {
    let failed = |error: std::io::Error| anyhow!(error).context("cannot begin again as a standby");
    match std::env::current_exe() {
        Ok(program) => {
            let mut again = Command::new(program);
            // A process in the background begins another one, as the first one has.
            again.args(std::env::args_os().skip(1)).env_remove(daemon::MARK);
            kept.pass_on(&mut again);
            failed(again.exec())
        }
        Err(error) => failed(error),
    }
}

/// The failure of a server that does not wait for the store again.
pub fn ended() -> anyhow::Error {
    database::taken_over()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_another_server_is_no_other_failure() {
        let failed = |error: OpenError| {
            let failure = Failure::new(FailureKind::Folder, "cannot open the store", "wait");
            anyhow!(error).context(failure)
        };
        assert!(waits_again(&failed(OpenError::InUse("another".into()))));
        assert!(waits_again(&failed(OpenError::Unavailable("closed".into()))));
        assert!(!waits_again(&failed(OpenError::ReadOnly)));
        assert!(!waits_again(&anyhow!("another")));
    }
}

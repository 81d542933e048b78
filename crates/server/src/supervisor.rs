//! Notices for systemd (`sd_notify`): when the server is ready, reloads and stops, that it is
//! alive, and one line about expiry for `systemctl status`. Without systemd (`NOTIFY_SOCKET`)
//! nothing is sent.

use std::sync::Arc;
use std::time::Duration;

use mayfly_commands::{Incoming, dispatch};
use mayfly_service::{Connection, Service};
use mayfly_storage::ttl::DueCount;
use mayfly_value::DocBuilder;
use mayfly_work::OpCtx;
use sd_notify::NotifyState;

use crate::expiry_line::expiry_line;
use crate::expiry_state::Circumstances;

/// How often the line about expiry is sent.
const STATUS_EVERY: Duration = Duration::from_secs(10);
/// Due documents of a policy are counted up to this number, which takes 30 us.
const DUE_LIMIT: usize = 100;

/// The connection to systemd.
#[derive(Debug)]
pub struct Supervisor {
    /// How often it expects a sign of life; `None` without systemd or a watchdog.
    alive_every: Option<Duration>,
    is_there: bool,
}

impl Supervisor {
    /// The systemd that has started this process, if one has.
    pub fn find() -> Supervisor {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some();
        // It expects one within the time; half of it leaves room for a busy machine.
        let alive_every = sd_notify::watchdog_enabled().map(|time| time / 2);
        Supervisor { alive_every: alive_every.filter(|_| is_there), is_there }
    }

    /// The server accepts connections.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// How often systemd expects a sign of life; `None` if it expects none.
    pub fn alive_every(&self) -> Option<Duration> {
        self.alive_every
    }

    /// A sign of life, if systemd expects one.
    pub fn alive(&self) {
        if self.alive_every.is_some() {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// The line for `systemctl status`.
    pub fn status(&self, line: &str) {
        self.send(&[NotifyState::Status(line)]);
    }

    /// The server reads certificates and opens log files again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => {
                tracing::warn!(%error, "the service manager gets no notice of the reload")
            }
        }
    }

    /// The server refuses new connections, and lets running commands end.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Sends signs of life and the line about expiry, for as long as it is awaited. A server whose
    /// commands hang sends no more signs.
    pub async fn attend<T>(&self, service: &Arc<Service>) -> T {
        if !self.is_there {
            return std::future::pending().await;
        }
        let every = self.alive_every.unwrap_or(STATUS_EVERY).min(STATUS_EVERY);
        let mut ticks = tokio::time::interval(every);
        let mut since_status = STATUS_EVERY;
        loop {
            ticks.tick().await;
            since_status += every;
            let with_status = since_status >= STATUS_EVERY;
            let service = service.clone();
            let asked = move || if with_status { expiry(&service) } else { ping(&service) };
            let Ok(found) = tokio::task::spawn_blocking(asked).await else { continue };
            if with_status {
                since_status = Duration::ZERO;
                if let Some(line) = &found {
                    self.status(line);
                }
            }
            self.alive();
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.is_there
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!(%error, "a notice to the service manager was lost");
        }
    }
}

/// One sentence about expiry; `None` if the store cannot be read.
pub fn expiry(service: &Service) -> Option<String> {
    let store = &service.store;
    let op = OpCtx::detached(service.clock.clone());
    let mut reply = DocBuilder::new();
    store.append_ttl_status(&op, DueCount::UpTo(DUE_LIMIT), &mut reply).ok()?;
    let is_disk_nearly_full = store.engine_stats().room.is_some_and(|room| room.nearly_full);
    let around = Circumstances { is_disk_nearly_full, ..Circumstances::of(service) };
    Some(expiry_line(reply.finish().as_doc(), &around).1)
}

/// Whether a command is answered.
fn ping(service: &Arc<Service>) -> Option<String> {
    let mut command = DocBuilder::new();
    command.append("ping", 1).append("$db", "admin");
    let command = command.finish();
    let connection = Connection::detached(0, "");
    dispatch(service, &connection, &Incoming::new(command.as_doc()), DocBuilder::new());
    Some(String::new())
}

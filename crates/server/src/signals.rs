//! The signals that the server listens to.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals. None is lost between two waits.
pub struct Signals {
    /// SIGTERM, which asks the server to stop.
    pub terminate: Signal,
    /// SIGINT, which asks the server to stop.
    pub interrupt: Signal,
    /// SIGUSR1, after which the log files are rotated.
    pub rotate: Signal,
    /// SIGHUP, after which the log files are opened again, and the certificates read again.
    pub reload: Signal,
}

impl Signals {
    /// Begins to listen to the signals, which no longer end the process by themselves.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn listen() -> anyhow::Result<Signals> {
        let on = |kind| signal(kind).context("cannot listen to signals");
        Ok(Signals {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            rotate: on(SignalKind::user_defined1())?,
            reload: on(SignalKind::hangup())?,
        })
    }

    /// Waits for a request to stop.
    pub async fn stop_requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

//! Requests to stop by signals: SIGTERM and SIGINT.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals. None is lost between two waits.
pub struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Begins to listen to the signals, which no longer end the process by themselves.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn listen() -> anyhow::Result<Stops> {
        let on = |kind| signal(kind).context("cannot listen to signals");
        Ok(Stops {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of the signals.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

//! Ends of a running server: orderly ones, and those of a server whose store another one owns.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, anyhow};
use mayfly_base::ErrorCode;
use mayfly_service::Actor;

use super::{DRAIN, Running};
use crate::failure::{Failure, FailureKind};
use crate::kept_listeners::KeptListeners;

/// How long the server waits for killed commands.
const DRAIN_KILLED: Duration = Duration::from_secs(2);
/// The interval at which running commands are killed again.
const KILL_AGAIN: Duration = Duration::from_millis(50);

impl Running {
    /// Ends the server after another one has taken its store over, which cannot be closed. Clients
    /// get no more replies: they connect to the other server, or wait for the program that begins
    /// again with the sockets that are returned.
    pub async fn abandon(mut self) -> KeptListeners {
        self.listeners.shutdown().await;
        drop(self.announcement.take());
        KeptListeners::keep(&self.sockets)
    }

    /// Whether another member of the set can become its primary, which this server is.
    pub fn has_successor(&self) -> bool {
        let set = self.service.replica_set.get();
        !self.service.store.is_secondary() && set.is_some_and(|set| set.count() > 1)
    }

    /// Closes the store, so that another server can own it. Transactions end; commands that run
    /// have a second to end. The connections of clients stay open, and their commands get errors
    /// after which drivers look for the new primary.
    ///
    /// # Errors
    /// The store did not close cleanly.
    pub async fn leave_store(&mut self) -> anyhow::Result<()> {
        self.stop_archive().await;
        let service = self.service.clone();
        service.store.begin_to_hand_over();
        // Clients that wait for a change of the topology learn it.
        service.is_cut_off();
        let running: HashSet<i32> = service.ops.list().iter().map(|op| op.id()).collect();
        let code = ErrorCode::InterruptedDueToReplStateChange;
        service.sessions.transactions.abort(code, |_| true);
        let ended = async {
            while service.ops.list().iter().any(|op| running.contains(&op.id())) {
                tokio::time::sleep(KILL_AGAIN).await;
            }
        };
        // The others end with the store.
        let _ = tokio::time::timeout(DRAIN, ended).await;
        self.close_store().await
    }

    /// Waits until all connections have ended; returns false after the timeout. Commands that have
    /// run for longer than `grace` are killed, and after that time all commands. No connection
    /// begins another command after [`DRAIN`].
    async fn drained(&self, grace: Duration) -> bool {
        let of = |time: Duration| time.as_millis() / KILL_AGAIN.as_millis();
        for round in 0..of(grace + DRAIN_KILLED) {
            let longest = if round < of(grace) { grace } else { Duration::ZERO };
            for op in self.service.ops.list() {
                if u128::try_from(op.elapsed_micros()).is_ok_and(|it| it >= longest.as_micros()) {
                    op.kill(ErrorCode::InterruptedAtShutdown);
                }
            }
            if round >= of(grace.min(DRAIN)) {
                self.service.connections.list().iter().for_each(|one| one.close.request());
                // Their next statement is not accepted, and running commands may wait for them.
                let transactions = &self.service.sessions.transactions;
                transactions.abort_idle(ErrorCode::InterruptedAtShutdown);
            }
            if self.connected.drained(KILL_AGAIN).await {
                return true;
            }
        }
        false
    }

    /// Stops the server, as the command `shutdown` does.
    ///
    /// # Errors
    /// The store did not close cleanly.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop_within(DRAIN).await
    }

    /// Stops the server; running commands may continue for `grace`.
    ///
    /// # Errors
    /// The store did not close cleanly.
    pub async fn stop_within(mut self, grace: Duration) -> anyhow::Result<()> {
        self.end_connections(grace).await;
        let closed = self.close_store().await;
        self.end(closed).await
    }

    /// Stops a server that has [left its store](Running::leave_store), with what came of that.
    ///
    /// # Errors
    /// The error of `left`, or an audit event could not be written.
    pub async fn stop_without_store(mut self, left: anyhow::Result<()>) -> anyhow::Result<()> {
        self.end_connections(Duration::ZERO).await;
        self.end(left).await
    }

    async fn end_connections(&mut self, grace: Duration) {
        self.service.audit_stop(Actor::System);
        self.service.shutdown.begin();
        self.listeners.shutdown().await;
        self.sockets.clear();
        if !self.drained(grace).await {
            let ops = self.service.ops.list();
            let left: Vec<String> = ops.iter().take(5).map(|op| op.info().ns).collect();
            tracing::warn!(commands = ops.len(), on = ?left, "some commands did not end before the shutdown timeout");
        }
        let all = &self.service.sessions.transactions;
        all.abort(ErrorCode::InterruptedAtShutdown, |_| true);
    }

    async fn stop_archive(&mut self) {
        if let Some(archive) = self.log_archive.take() {
            // It waits for the last segment.
            let _ = tokio::task::spawn_blocking(move || archive.stop()).await;
        }
    }

    async fn close_store(&mut self) -> anyhow::Result<()> {
        self.stop_archive().await;
        let store = self.service.store.clone();
        let is_remote = store.engine().caps().is_remote;
        match tokio::task::spawn_blocking(move || store.close()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(anyhow!("{}", error.message())),
            Err(error) => Err(anyhow!(error)),
        }
        .context(match is_remote {
            false => Failure::new(
                FailureKind::Damage,
                "cannot close the data folder",
                "the next start recovers from the write-ahead log; see the messages before this one",
            ),
            true => Failure::new(
                FailureKind::General,
                "cannot close the store",
                "acknowledged writes are stored; the next start does what is left",
            ),
        })
    }

    async fn end(mut self, closed: anyhow::Result<()>) -> anyhow::Result<()> {
        drop(self.announcement.take());
        if let Some(traces) = self.traces.take() {
            traces.stop().await;
        }
        if self.service.audit.has_failed() {
            let advice = "free disk space for the audit log, or choose another with --auditPath";
            let failure = Failure::new(FailureKind::General, "stopped", advice);
            return Err(anyhow!("an audit event could not be written").context(failure));
        }
        closed
    }
}

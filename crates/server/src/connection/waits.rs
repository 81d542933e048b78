//! What a connection waits for between two runs of a command, and before a reply.

use std::time::Duration;

use mayfly_commands::Wait;
use mayfly_work::WaitingOp;

use super::{Disconnected, Served};
use crate::peer;

impl Served<'_> {
    /// Waits for the command's event, its timeout, the end of the server, or `killOp`. Returns the
    /// time that it waited.
    pub(super) async fn wait(
        &self,
        wait: &Wait,
        op: Option<&WaitingOp>,
    ) -> Result<Duration, Disconnected> {
        let service = self.service;
        let began = service.clock.monotonic_micros();
        let happens = async {
            match wait {
                Wait::Data(data) => data.awaited.wait_past(&service.store, data.seen).await,
                Wait::Topology { seen, .. } => service.topology.changed_from(*seen).await,
            }
        };
        let closed = async {
            match wait.cursor() {
                Some(id) => service.cursors.closed(id).await,
                None => std::future::pending().await,
            }
        };
        let killed = async {
            match op {
                Some(op) => op.killed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = happens => {}
            () = closed => {}
            () = killed => {}
            () = service.shutdown.begun() => {}
            () = self.connection.close.requested() => {}
            () = peer::gone(&self.stream), if !self.is_pipelined => return Err(Disconnected),
            () = tokio::time::sleep(wait.longest()) => {}
        }
        // A short wait counts as a millisecond, so that the command ends even if unrelated writes
        // wake it often.
        let waited = (service.clock.monotonic_micros() - began).max(1000);
        Ok(Duration::from_micros(waited.unsigned_abs()))
    }

    /// Delays a reply, at most until the end of the server.
    pub(super) async fn pause(&self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.service.shutdown.begun() => {}
            () = self.connection.close.requested() => {}
        }
    }
}

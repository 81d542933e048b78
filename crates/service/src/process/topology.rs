//! `topologyVersion`: the identity of the process, and how often its answer to `hello` has changed.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

/// The process id and the counter.
pub struct Topology {
    process_id: [u8; 12],
    counter: watch::Sender<i64>,
}

impl Topology {
    /// A new process: an ObjectId from the time, the system's process id and a count.
    pub(crate) fn new(now_ms: i64) -> Topology {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut process_id = [0; 12];
        process_id[..4].copy_from_slice(&((now_ms / 1000) as u32).to_be_bytes());
        process_id[4..8].copy_from_slice(&std::process::id().to_be_bytes());
        let count = COUNT.fetch_add(1, Ordering::Relaxed) ^ ((now_ms as u32) << 16);
        process_id[8..].copy_from_slice(&count.to_be_bytes());
        Topology { process_id, counter: watch::Sender::new(0) }
    }

    /// The `processId` of `topologyVersion`: another one after each start.
    pub fn process_id(&self) -> [u8; 12] {
        self.process_id
    }

    /// The `counter` of `topologyVersion`: it grows when the answer to `hello` changes.
    pub fn counter(&self) -> i64 {
        *self.counter.borrow()
    }

    /// Counts a change of the answer to `hello` and wakes waiting commands.
    pub fn changed(&self) {
        self.counter.send_modify(|counter| *counter += 1);
    }

    /// Waits until the counter differs from `seen`.
    pub async fn changed_from(&self, seen: i64) {
        let mut receiver = self.counter.subscribe();
        if receiver.wait_for(|counter| *counter != seen).await.is_err() {
            // The sender is a field of `self`, so this future ends with it.
            std::future::pending::<()>().await;
        }
    }
}

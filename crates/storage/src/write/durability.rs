//! Durability: one thread syncs the engine's write-ahead log for all waiting commits, and within
//! 100 ms for the others.
//!
//! A commit is in the write-ahead log when it returns. A client that asked for durability waits in
//! [`SyncGate::wait`]; the thread takes all waiters at once, syncs, and answers them together.
//! Without waiters and commits it sleeps: an idle server writes nothing. After a failed sync every
//! waiter gets the error, and the engine refuses further writes. After a panic the gate refuses
//! them, because the state of the disk is unknown ([`SyncGate::check`]).
//!
//! The gate has the timestamp of the operation log up to which everything survives a power cut
//! ([`SyncGate::is_durable`]). Reads that may only return durable data (read concern `majority` and
//! stronger ones, change streams) read the latest commits, and their reply waits for a sync when it
//! contains something newer than that timestamp. The alternative is to read as of the durable
//! timestamp: such a reply never waits, but it does not contain what the same client has just
//! written with `w: 1`, every read needs a snapshot that was taken at a sync, and a change stream
//! is up to 100 ms late. On a quiet server neither has a cost, because everything is durable; on a
//! busy one readers share the syncs of the writers: a waiter that needs only what a running sync
//! covers is answered with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::Engine;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::record::error::from_kv;

/// The longest time for which a commit that was acknowledged without a sync stays unsynced.
const LAZY_SYNC: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Queue {
    waiters: Vec<Waiter>,
    closing: bool,
}

struct Waiter {
    /// The timestamp up to which the log must be durable; `None` means all earlier commits.
    needs: Option<u64>,
    answer: oneshot::Sender<Result<()>>,
}

/// The queue of waiters, and the thread that syncs.
pub(crate) struct SyncGate {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Whether there are commits that no sync covers yet.
    dirty: AtomicBool,
    /// The timestamp up to which the operation log is complete.
    settled: Arc<AtomicU64>,
    /// The settled timestamp at the start of the last successful sync; 0 before the first one.
    durable: AtomicU64,
    /// Whether a sync panicked. Nothing more becomes durable then.
    panicked: AtomicBool,
}

impl SyncGate {
    /// Starts the gate of an engine; `settled` is the timestamp up to which the operation log is
    /// complete.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        settled: Arc<AtomicU64>,
    ) -> std::io::Result<SyncGate> {
        let shared = Arc::new(Shared {
            engine,
            queue: Mutex::default(),
            wake: Condvar::new(),
            dirty: AtomicBool::new(false),
            settled,
            durable: AtomicU64::new(0),
            panicked: AtomicBool::new(false),
        });
        let runner = shared.clone();
        let thread =
            std::thread::Builder::new().name("log-sync".into()).spawn(move || runner.run())?;
        Ok(SyncGate { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Notes a commit, which will be synced within [`LAZY_SYNC`].
    pub(crate) fn note_commit(&self) {
        if !self.shared.dirty.swap(true, Ordering::AcqRel) {
            // Taking the lock orders this before the thread's next check.
            drop(self.shared.queue.lock());
            self.shared.wake.notify_one();
        }
    }

    /// Checks that writes are possible.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary after a sync panicked, until the store is reopened.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Whether everything up to this timestamp of the operation log survives a crash of the
    /// machine.
    pub(crate) fn is_durable(&self, timestamp: u64) -> bool {
        self.shared.durable.load(Ordering::Acquire) >= timestamp
    }

    /// Waits until everything committed before this call is durable.
    pub(crate) async fn wait(&self) -> Result<()> {
        self.wait_for(None).await
    }

    /// Waits until everything up to this timestamp of the operation log is durable.
    pub(crate) async fn wait_up_to(&self, timestamp: u64) -> Result<()> {
        match self.is_durable(timestamp) {
            true => Ok(()),
            false => self.wait_for(Some(timestamp)).await,
        }
    }

    async fn wait_for(&self, needs: Option<u64>) -> Result<()> {
        let (answer, receiver) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if needs.is_some_and(|timestamp| self.is_durable(timestamp)) {
                return Ok(());
            }
            if queue.closing {
                // The thread takes no more waiters; without its sender, the waiter syncs itself.
                drop(answer);
            } else {
                queue.waiters.push(Waiter { needs, answer });
            }
        }
        self.shared.wake.notify_one();
        match receiver.await {
            Ok(result) => result,
            Err(_) => self.shared.sync(),
        }
    }

    /// Syncs outstanding commits and ends the thread.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the log-sync thread ended with a panic");
        }
    }
}

impl Shared {
    #[inline]
    fn check(&self) -> Result<()> {
        match self.panicked.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(refused()),
        }
    }

    fn run(&self) {
        let mut failing = false;
        loop {
            let (waiters, closing) = self.next_round();
            self.dirty.store(false, Ordering::Release);
            let result = catch_unwind(AssertUnwindSafe(|| self.sync())).unwrap_or_else(|_| {
                // The panic hook of the process has logged it.
                self.panicked.store(true, Ordering::Release);
                Err(refused())
            });
            // Logged once, and not for every waiter that is refused.
            if let Err(error) = &result
                && !failing
            {
                tracing::error!(%error, "syncing the log failed; writes are refused");
            }
            failing = result.is_err();
            for waiter in waiters.into_iter().chain(self.covered()) {
                // A waiter that is gone needs no answer.
                let _ = waiter.answer.send(result.clone());
            }
            if closing {
                return;
            }
        }
    }

    /// Waiters that came during the last sync and need only what it covers.
    fn covered(&self) -> Vec<Waiter> {
        let durable = self.durable.load(Ordering::Acquire);
        let covered = |waiter: &mut Waiter| waiter.needs.is_some_and(|needs| needs <= durable);
        self.queue.lock().waiters.extract_if(.., covered).collect()
    }

    fn sync(&self) -> Result<()> {
        self.check()?;
        // Read before the sync, which may not cover commits that happen meanwhile.
        let settled = self.settled.load(Ordering::Acquire);
        self.engine.sync().map_err(from_kv)?;
        self.durable.fetch_max(settled, Ordering::AcqRel);
        Ok(())
    }

    /// Sleeps until there is a reason to sync.
    fn next_round(&self) -> (Vec<Waiter>, bool) {
        let mut queue = self.queue.lock();
        loop {
            if !queue.waiters.is_empty() || queue.closing {
                return (std::mem::take(&mut queue.waiters), queue.closing);
            }
            if self.dirty.load(Ordering::Acquire) {
                if self.wake.wait_for(&mut queue, LAZY_SYNC).timed_out() {
                    return (std::mem::take(&mut queue.waiters), queue.closing);
                }
            } else {
                self.wake.wait(&mut queue);
            }
        }
    }
}

#[cold]
fn refused() -> Error {
    let text = "writes are refused: syncing the log ended with a panic";
    Error::new(ErrorCode::NotWritablePrimary, text)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use mayfly_base::testing::wait_until;
    use mayfly_kv::{EngineWrapper, KvError, KvResult, MemoryEngine};

    use super::*;

    /// Its syncs signal their start, and end on command.
    struct Slow {
        begun: Sender<()>,
        end: Mutex<Receiver<KvResult<()>>>,
        inner: MemoryEngine,
    }

    impl EngineWrapper for Slow {
        fn inner(&self) -> &dyn Engine {
            &self.inner
        }

        fn sync(&self) -> KvResult<()> {
            self.begun.send(()).unwrap();
            self.end.lock().recv().unwrap()
        }
    }

    #[test]
    fn a_sync_under_way_answers_whom_it_covers() {
        let ((begun, has_begun), (end, ends)) = (channel(), channel());
        let inner = MemoryEngine::new();
        let slow = Arc::new(Slow { begun, end: Mutex::new(ends), inner });
        let settled = Arc::new(AtomicU64::new(7));
        let gate = SyncGate::start(slow, settled.clone()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| runtime.block_on(gate.wait()));
            has_begun.recv().unwrap();
            assert!(!gate.is_durable(7));
            // Both arrive during the sync: it covers one of them and not the other.
            settled.store(8, Ordering::Release);
            let reader = threads.spawn(|| runtime.block_on(gate.wait_up_to(7)));
            let later = threads.spawn(|| runtime.block_on(gate.wait_up_to(8)));
            wait_until("both wait", || gate.shared.queue.lock().waiters.len() >= 2);
            end.send(Ok(())).unwrap();
            writer.join().unwrap().unwrap();
            reader.join().unwrap().unwrap();
            assert!(gate.is_durable(7) && !gate.is_durable(8));
            has_begun.recv().unwrap();
            end.send(Ok(())).unwrap();
            later.join().unwrap().unwrap();
            // A durable timestamp needs no wait, and a failed sync makes nothing durable.
            runtime.block_on(gate.wait_up_to(8)).unwrap();
            settled.store(9, Ordering::Release);
            let failed = threads.spawn(|| runtime.block_on(gate.wait_up_to(9)));
            has_begun.recv().unwrap();
            end.send(Err(KvError::Fenced("no disk".into()))).unwrap();
            assert!(failed.join().unwrap().is_err());
            assert!(!gate.is_durable(9));
            end.send(Ok(())).unwrap();
            gate.close();
        });
    }
    /// Its first sync panics.
    struct Panics(AtomicBool, MemoryEngine);

    impl EngineWrapper for Panics {
        fn inner(&self) -> &dyn Engine {
            &self.1
        }

        fn sync(&self) -> KvResult<()> {
            assert!(self.0.swap(true, Ordering::AcqRel), "the first one");
            Ok(())
        }
    }

    #[test]
    fn nothing_is_durable_after_a_panic() {
        let engine = Arc::new(Panics(AtomicBool::new(false), MemoryEngine::new()));
        let gate = SyncGate::start(engine, Arc::new(AtomicU64::new(7))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        gate.check().unwrap();
        for _ in 0..3 {
            let refused = runtime.block_on(gate.wait()).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::NotWritablePrimary);
            assert!(runtime.block_on(gate.wait_up_to(7)).is_err() && gate.check().is_err());
            assert!(!gate.is_durable(7));
        }
        gate.close();
    }
}

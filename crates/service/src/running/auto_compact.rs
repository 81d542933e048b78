//! `autoCompact`: a thread that makes the engine reclaim unused space, collection after collection.
//!
//! After each collection the thread rests as long as the compaction took, so that it uses at most
//! half of one core. As in the reference, the setting does not outlive the process.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::Collection;
use mayfly_work::OpInfo;

use crate::server::Service;
use crate::settings::Compaction;

/// The time from the end of a round to the next one.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(3600);
/// The interval at which a resting thread checks whether it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Service {
    /// Enables compaction in the background.
    ///
    /// # Errors
    /// 23 AlreadyInitialized when it is enabled with other options; 1 InternalError when the thread
    /// cannot be created.
    pub fn enable_auto_compact(self: &Arc<Service>, compaction: Compaction) -> Result<()> {
        let Some(thread) = self.auto_compact.enable(compaction)? else { return Ok(()) };
        let weak = Arc::downgrade(self);
        let run = move || {
            let is_current = |service: &Service| {
                service.auto_compact.is_current(thread) && !service.shutdown.has_begun()
            };
            while let Some(service) = weak.upgrade().filter(|it| is_current(it)) {
                service.compact_all(compaction, &|| is_current(&service));
                if compaction.runs_once {
                    service.auto_compact.end(thread);
                }
                drop(service);
                rest(BETWEEN_ROUNDS, &|| weak.upgrade().is_some_and(|it| is_current(&it)));
            }
        };
        std::thread::Builder::new().name("autoCompact".into()).spawn(run).map(drop).map_err(
            |error| {
                self.auto_compact.end(thread);
                Error::new(ErrorCode::InternalError, format!("no thread for autoCompact: {error}"))
            },
        )
    }

    /// Compacts all collections once.
    fn compact_all(&self, compaction: Compaction, may_continue: &dyn Fn() -> bool) {
        let mut freed = 0;
        for collection in self.store.collections(None) {
            if !may_continue() {
                return;
            }
            let began = self.clock.monotonic_micros();
            match self.compact_one(&collection, compaction) {
                Ok(bytes) => freed += bytes,
                Err(error) => {
                    let ns = collection.namespace();
                    tracing::warn!(namespace = %ns, %error, "autoCompact skips a collection");
                }
            }
            let took = self.clock.monotonic_micros().saturating_sub(began);
            rest(Duration::from_micros(took.unsigned_abs()), may_continue);
        }
        tracing::info!(freed_bytes = freed, "autoCompact has compacted all collections");
    }

    fn compact_one(&self, collection: &Collection, compaction: Compaction) -> Result<u64> {
        if self.store.engine_bytes(collection)? < compaction.target_bytes {
            return Ok(0);
        }
        let ns = collection.namespace().as_str().to_owned();
        // The data folder does not change while a client copies it.
        let Some(_writing) = self.store.fsync_lock.try_enter() else { return Ok(0) };
        let op = self.ops.begin(OpInfo { desc: "autoCompact".into(), ns, ..OpInfo::default() });
        self.store.compact(op.op(), collection)
    }
}

/// Waits for a time, or until it may not continue.
fn rest(time: Duration, may_continue: &dyn Fn() -> bool) {
    let mut left = time;
    while !left.is_zero() && may_continue() {
        let part = left.min(CHECK_INTERVAL);
        std::thread::sleep(part);
        left -= part;
    }
}

//! Primacy: whether this store expires documents and accepts writes. The primary of its data does,
//! a node that stepped down does not. Commands check it before they write; the TTL monitor checks
//! it here.

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::Result;

use super::Writer;

/// Until when the node is not the primary.
pub(crate) struct Primacy {
    /// In monotonic microseconds; at or before the present time if the node is the primary.
    away_until_micros: AtomicI64,
}

impl Default for Primacy {
    fn default() -> Primacy {
        Primacy { away_until_micros: AtomicI64::new(i64::MIN) }
    }
}

impl Writer {
    /// Whether the node is the primary of its data: it expires documents, and clients may write.
    /// One that has lost the store it shares with others is not.
    pub fn is_primary(&self) -> bool {
        let until = self.primacy.away_until_micros.load(Ordering::Acquire);
        let is_away = until != i64::MIN && self.clock.monotonic_micros() < until;
        !is_away && !self.engine().sharing().is_cut_off()
    }

    /// How long until the node becomes the primary again by itself, in milliseconds; `None` when it
    /// is.
    pub fn ms_until_primary(&self) -> Option<u64> {
        let until = self.primacy.away_until_micros.load(Ordering::Acquire);
        let left = until.saturating_sub(self.clock.monotonic_micros());
        // Rounded up, so that the node is the primary after a wait of this length.
        u64::try_from(left).ok().filter(|left| *left > 0).map(|left| left / 1000 + 1)
    }

    /// The node is not the primary as long as the store is open: it reads what another one writes.
    pub(crate) fn stay_secondary(&self) {
        self.primacy.away_until_micros.store(i64::MAX, Ordering::Release);
    }

    fn stays_secondary(&self) -> bool {
        self.primacy.away_until_micros.load(Ordering::Acquire) == i64::MAX
    }

    /// Steps down for this many seconds. A visit of the TTL monitor ends before its next unit.
    pub fn step_down(&self, seconds: i64) {
        if self.stays_secondary() {
            return;
        }
        let span = seconds.saturating_mul(1_000_000);
        let until = self.clock.monotonic_micros().saturating_add(span);
        self.primacy.away_until_micros.store(until, Ordering::Release);
    }

    /// Makes the node the primary again, unless it reads what another one writes.
    pub fn step_up(&self) {
        if self.stays_secondary() {
            return;
        }
        self.primacy.away_until_micros.store(i64::MIN, Ordering::Release);
    }

    /// Advances the operation log past a time that a client has from elsewhere. An entry without an
    /// operation preserves it across a restart.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn advance_time(&self, time: u64) -> Result<()> {
        if !self.oplog.clock.advance_to(time) {
            return Ok(());
        }
        self.change(|_, oplog| {
            oplog.note("the cluster time has advanced");
            Ok(())
        })
    }

    /// The newest timestamp of the operation log: seconds in the upper 32 bits, an increment in the
    /// lower 32.
    pub fn last_timestamp(&self) -> u64 {
        self.oplog.clock.last()
    }

    /// The cluster time at this wall time: not earlier than the newest timestamp, and earlier than
    /// the next one.
    pub fn cluster_time(&self, now_ms: i64) -> u64 {
        self.oplog.clock.now(now_ms)
    }
}

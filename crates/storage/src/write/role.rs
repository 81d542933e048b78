//! Whether this store expires documents and takes writes now: the primary of its data does, a node that stepped down does
//! not. Who may write is asked by whoever lets writers in; the TTL monitor asks here.

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::Result;

use super::Writer;

/// Until when a node is not the primary.
pub(crate) struct Primacy {
    /// Monotonic microseconds; at or before now means that it is the primary.
    away_until_micros: AtomicI64,
}

impl Default for Primacy {
    fn default() -> Primacy {
        Primacy { away_until_micros: AtomicI64::new(i64::MIN) }
    }
}

impl Writer {
    /// Whether it is the primary of its data: it expires documents, and clients may write.
    pub fn is_primary(&self) -> bool {
        let until = self.primacy.away_until_micros.load(Ordering::Acquire);
        until == i64::MIN || self.clock.monotonic_micros() >= until
    }

    /// How long until it is the primary again by itself, in milliseconds; nothing when it is.
    pub fn primary_in_ms(&self) -> Option<u64> {
        let until = self.primacy.away_until_micros.load(Ordering::Acquire);
        let left = until.saturating_sub(self.clock.monotonic_micros());
        // The next whole one, so that who waits so long finds it elected.
        u64::try_from(left).ok().filter(|left| *left > 0).map(|left| left / 1000 + 1)
    }

    /// From now on, for so many seconds, it is not the primary. A visit of the TTL monitor ends before its next unit.
    pub fn step_down(&self, seconds: i64) {
        let span = seconds.saturating_mul(1_000_000);
        let until = self.clock.monotonic_micros().saturating_add(span);
        self.primacy.away_until_micros.store(until, Ordering::Release);
    }

    /// It is the primary again at once.
    pub fn step_up(&self) {
        self.primacy.away_until_micros.store(i64::MIN, Ordering::Release);
    }

    /// Lets the operation log go on behind a time that a client knows from elsewhere, with an entry that does nothing: after a
    /// restart it still is in the past.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn advance_time(&self, time: u64) -> Result<()> {
        if !self.oplog.clock.advance_to(time) {
            return Ok(());
        }
        self.change(|_, oplog| {
            oplog.note("the cluster time has advanced");
            Ok(())
        })
    }

    /// The newest timestamp of the operation log: seconds in the high half, increment in the low half.
    pub fn last_timestamp(&self) -> u64 {
        self.oplog.clock.last()
    }
}

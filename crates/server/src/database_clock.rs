//! The clock of a store that several processes can share: that of the database.
//!
//! Machines have different times, and a document must not expire earlier because another machine
//! serves it. The server therefore measures by how much its own clock differs from the database's,
//! at the start and every ten seconds, and adds the difference. If the database does not answer,
//! the last difference applies. A jump of the database's clock suspends expiry as a jump of the
//! machine's does, because the time since the machine's boot does not jump with it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context;
use mayfly_base::Clock;
use mayfly_kv::Engine;

/// The interval of measurements.
const INTERVAL: Duration = Duration::from_secs(10);
/// Differences from which a start is worth a line in the log, in milliseconds.
const NOTABLE_MS: i64 = 1_000;
/// A measurement that took longer is not used, in microseconds: its error may be half of that.
const LONGEST_MEASUREMENT_MICROS: i64 = 1_000_000;

/// A clock that can be set by a database.
pub struct DatabaseClock {
    machine: Arc<dyn Clock>,
    /// The database's time minus the machine's.
    difference_ms: AtomicI64,
}

impl DatabaseClock {
    /// A clock that is not set yet, and shows the machine's time.
    pub fn new(machine: Arc<dyn Clock>) -> Arc<DatabaseClock> {
        Arc::new(DatabaseClock { machine, difference_ms: AtomicI64::new(0) })
    }

    /// Sets the clock by the store, and goes on every ten seconds if the store has a clock.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn follow(self: &Arc<Self>, engine: &Arc<dyn Engine>) -> anyhow::Result<()> {
        if !self.measure(&**engine) {
            return Ok(());
        }
        let difference_ms = self.difference_ms.load(Ordering::Relaxed);
        if difference_ms.abs() >= NOTABLE_MS {
            tracing::warn!(
                differenceMillis = difference_ms,
                "the clock of this machine differs from the database's, which is used"
            );
        }
        let (clock, engine) = (self.clone(), Arc::downgrade(engine));
        let run = move || clock.run(&engine);
        let thread = std::thread::Builder::new().name("database clock".into()).spawn(run);
        thread.context("cannot start a thread for the database's clock").map(drop)
    }

    /// Ends when the engine is gone.
    fn run(&self, engine: &Weak<dyn Engine>) {
        loop {
            std::thread::sleep(INTERVAL);
            let Some(engine) = engine.upgrade() else { return };
            self.measure(&*engine);
        }
    }

    /// Measures the difference; returns whether the store has a clock.
    fn measure(&self, engine: &dyn Engine) -> bool {
        let (wall_ms, began) = (self.machine.now_ms(), self.machine.monotonic_micros());
        match engine.wall_ms() {
            Ok(Some(database_ms)) => {
                let took = self.machine.monotonic_micros() - began;
                if took <= LONGEST_MEASUREMENT_MICROS {
                    let asked_ms = wall_ms + took / 2_000;
                    self.difference_ms.store(database_ms - asked_ms, Ordering::Relaxed);
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, "the database's clock could not be read");
                true
            }
        }
    }
}

impl Clock for DatabaseClock {
    fn now_ms(&self) -> i64 {
        self.machine.now_ms().saturating_add(self.difference_ms.load(Ordering::Relaxed))
    }

    fn monotonic_micros(&self) -> i64 {
        self.machine.monotonic_micros()
    }

    fn since_boot_micros(&self) -> i64 {
        self.machine.since_boot_micros()
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;
    use mayfly_kv::{EngineWrapper, KvError, KvResult, MemoryEngine};
    use parking_lot::Mutex;

    use super::*;

    /// An engine whose clock shows this time, or fails.
    struct Timed {
        inner: MemoryEngine,
        wall_ms: Mutex<Option<i64>>,
        /// Advanced while the clock is read.
        machine: Arc<ManualClock>,
        takes_ms: AtomicI64,
    }

    impl EngineWrapper for Timed {
        fn inner(&self) -> &dyn Engine {
            &self.inner
        }

        fn wall_ms(&self) -> KvResult<Option<i64>> {
            self.machine.advance_ms(self.takes_ms.load(Ordering::Relaxed));
            let wall_ms = *self.wall_ms.lock();
            wall_ms.map(Some).ok_or_else(|| KvError::Unavailable("no database".into()))
        }
    }

    #[test]
    fn the_clock_shows_the_time_of_the_database() {
        let machine = Arc::new(ManualClock::at_ms(1_000_000));
        let clock = DatabaseClock::new(machine.clone());
        assert!(!clock.measure(&MemoryEngine::new()));
        assert_eq!(clock.now_ms(), 1_000_000);
        let engine = Timed {
            inner: MemoryEngine::new(),
            wall_ms: Mutex::new(Some(5_000_000)),
            machine: machine.clone(),
            takes_ms: AtomicI64::new(20),
        };
        // The time was read half way between question and answer.
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 5_000_010);
        machine.advance_ms(500);
        assert_eq!(clock.now_ms(), 5_000_510);
        assert_eq!(clock.monotonic_micros(), machine.monotonic_micros());
        // Without an answer, and with one that took long, the difference stays.
        *engine.wall_ms.lock() = None;
        assert!(clock.measure(&engine));
        *engine.wall_ms.lock() = Some(1);
        engine.takes_ms.store(5_000, Ordering::Relaxed);
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 5_000_530 + 5_000);
        // The machine's clock is corrected: the next measurement finds the same time again.
        machine.set_wall_ms(0);
        *engine.wall_ms.lock() = Some(6_000_000);
        engine.takes_ms.store(0, Ordering::Relaxed);
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 6_000_000);
    }
}

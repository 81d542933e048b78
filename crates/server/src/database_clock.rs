//! The clock of a store that several processes can share: that of the database.
//!
//! Machines have different times, and a document must not expire earlier because another machine
//! serves it. The server therefore measures by how much its own clock differs from the database's,
//! at the start and every ten seconds, and adds the difference. If the database does not answer,
//! the last difference applies. A jump of the database's clock suspends expiry as a jump of the
//! machine's does, because the time since the machine's boot does not jump with it.
//!
//! A measurement is wrong by up to half of the time that it took, which is long on a busy machine.
//! A new difference therefore replaces the old one only if it is the more precise of the two, or if
//! both cannot be right. The old one becomes less precise with time, as clocks drift apart.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context;
use mayfly_base::Clock;
use mayfly_kv::{Engine, KvResult};
use parking_lot::Mutex;

/// The interval of measurements.
const INTERVAL: Duration = Duration::from_secs(10);
/// Differences from which a start is worth a line in the log, in milliseconds.
const NOTABLE_MS: i64 = 1_000;
/// A measurement that took longer is repeated, in microseconds.
const SHORT_MICROS: i64 = 5_000;
/// How often a measurement is made at most; the shortest one counts.
const ATTEMPTS: usize = 3;
/// What the rounding to milliseconds adds to the error of a measurement, in microseconds.
const ROUNDING_MICROS: i64 = 1_000;
/// Clocks drift apart by less than one part in this many.
const DRIFT: i64 = 10_000;

/// A clock that can be set by a database.
pub struct DatabaseClock {
    machine: Arc<dyn Clock>,
    /// The database's time minus the machine's.
    difference_ms: AtomicI64,
    /// The measurement that this is from; `None`: there was none.
    measured: Mutex<Option<Measurement>>,
}

/// By how much the clocks differ.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    difference_ms: i64,
    /// By how much that may be wrong.
    error_micros: i64,
    /// When it was made, by the monotonic clock.
    at_micros: i64,
}

impl Measurement {
    /// Whether it is to replace an earlier one.
    fn replaces(&self, earlier: &Measurement) -> bool {
        let drift = self.at_micros.saturating_sub(earlier.at_micros) / DRIFT;
        let earlier_error = earlier.error_micros.saturating_add(drift);
        let apart = self.difference_ms.abs_diff(earlier.difference_ms).saturating_mul(1_000);
        let errors = self.error_micros.saturating_add(earlier_error);
        self.error_micros <= earlier_error || apart > errors.unsigned_abs()
    }
}

impl DatabaseClock {
    /// A clock that is not set yet, and shows the machine's time.
    pub fn new(machine: Arc<dyn Clock>) -> Arc<DatabaseClock> {
        let (difference_ms, measured) = (AtomicI64::new(0), Mutex::new(None));
        Arc::new(DatabaseClock { machine, difference_ms, measured })
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
        let mut best: Option<Measurement> = None;
        for _ in 0..ATTEMPTS {
            match self.measure_once(engine) {
                Ok(Some(new)) => {
                    if best.is_none_or(|best| new.error_micros < best.error_micros) {
                        best = Some(new);
                    }
                    if new.error_micros <= SHORT_MICROS / 2 + ROUNDING_MICROS {
                        break;
                    }
                }
                Ok(None) => return false,
                Err(error) => {
                    tracing::debug!(%error, "the database's clock could not be read");
                    break;
                }
            }
        }
        let mut measured = self.measured.lock();
        if let Some(new) = best
            && measured.as_ref().is_none_or(|earlier| new.replaces(earlier))
        {
            self.difference_ms.store(new.difference_ms, Ordering::Relaxed);
            *measured = Some(new);
        }
        true
    }

    /// One measurement; `None`: the store has no clock.
    fn measure_once(&self, engine: &dyn Engine) -> KvResult<Option<Measurement>> {
        let (wall_ms, began) = (self.machine.now_ms(), self.machine.monotonic_micros());
        let Some(database_ms) = engine.wall_ms()? else { return Ok(None) };
        let at_micros = self.machine.monotonic_micros();
        let half = at_micros.saturating_sub(began) / 2;
        let difference_ms = database_ms.saturating_sub(wall_ms.saturating_add(half / 1_000));
        Ok(Some(Measurement { difference_ms, error_micros: half + ROUNDING_MICROS, at_micros }))
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
        /// For how long in the next calls; the last time is that of all further ones.
        takes_ms: Mutex<Vec<i64>>,
    }

    impl EngineWrapper for Timed {
        fn inner(&self) -> &dyn Engine {
            &self.inner
        }

        fn wall_ms(&self) -> KvResult<Option<i64>> {
            let mut takes_ms = self.takes_ms.lock();
            self.machine.advance_ms(takes_ms[0]);
            if takes_ms.len() > 1 {
                takes_ms.remove(0);
            }
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
            takes_ms: Mutex::new(vec![4]),
        };
        // The time was read half way between question and answer, which comes within 4 ms.
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 5_000_002);
        machine.advance_ms(498);
        assert_eq!(clock.now_ms(), 5_000_500);
        assert_eq!(clock.monotonic_micros(), machine.monotonic_micros());
        // Without an answer the difference stays.
        *engine.wall_ms.lock() = None;
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 5_000_504);
        // The machine's clock is corrected: the next measurement finds the same time again.
        machine.set_wall_ms(0);
        *engine.wall_ms.lock() = Some(6_000_000);
        *engine.takes_ms.lock() = vec![0];
        assert!(clock.measure(&engine));
        assert_eq!(clock.now_ms(), 6_000_000);
    }

    #[test]
    fn a_slow_measurement_does_not_replace_a_better_one() {
        let new = |difference_ms: i64, error_ms: i64, at_secs: i64| Measurement {
            difference_ms,
            error_micros: error_ms * 1_000,
            at_micros: at_secs * 1_000_000,
        };
        let exact = new(100, 2, 0);
        assert!(!new(400, 500, 10).replaces(&exact), "the exact one may be right");
        assert!(new(101, 2, 10).replaces(&exact), "clocks drift");
        assert!(!new(101, 4, 10).replaces(&exact));
        assert!(new(101, 4, 30).replaces(&exact));
        assert!(new(700, 500, 10).replaces(&exact), "one of the clocks was set");
        assert!(new(105, 4, 1).replaces(&new(0, 1_000, 0)), "it is the better one");
        assert!(new(i64::MAX, i64::MAX / 1_000, 1).replaces(&new(i64::MIN, 1, 0)));
    }

    #[test]
    fn the_shortest_of_slow_measurements_counts() {
        let machine = Arc::new(ManualClock::at_ms(1_000_000));
        let clock = DatabaseClock::new(machine.clone());
        let engine = Timed {
            inner: MemoryEngine::new(),
            wall_ms: Mutex::new(Some(5_000_000)),
            machine,
            takes_ms: Mutex::new(vec![800, 50, 200, 0]),
        };
        assert!(clock.measure(&engine));
        // The database showed its time in the middle of the second one, 225 ms ago.
        assert_eq!(clock.now_ms(), 5_000_225);
        assert_eq!(engine.takes_ms.lock().as_slice(), [0]);
    }
}

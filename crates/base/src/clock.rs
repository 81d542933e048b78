//! The [`Clock`] trait. Code receives its clock as an argument. [`SystemClock`] is the only reader
//! of the machine's clocks; tests use [`ManualClock`] and advance it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Wall time for what users see and expiry decides, and a monotonic time for durations.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01 UTC; may jump either way.
    fn now_ms(&self) -> i64;
    /// Microseconds since some fixed moment; never goes back.
    fn monotonic_micros(&self) -> i64;
    /// Microseconds since boot, including time the machine was suspended. Corrections of the wall
    /// clock do not affect it.
    fn since_boot_micros(&self) -> i64 {
        self.monotonic_micros()
    }
}

/// The machine's clocks.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn monotonic_micros(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    #[cfg(target_os = "linux")]
    fn since_boot_micros(&self) -> i64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        since.tv_sec.saturating_mul(1_000_000).saturating_add(since.tv_nsec / 1000)
    }
}

/// A clock that moves only when a test moves it.
#[derive(Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_micros: AtomicI64,
}

impl ManualClock {
    /// A clock whose wall time starts at this value.
    pub fn at_ms(wall_ms: i64) -> ManualClock {
        ManualClock { wall_ms: AtomicI64::new(wall_ms), monotonic_micros: AtomicI64::new(0) }
    }

    /// Advances both times by this many milliseconds.
    pub fn advance_ms(&self, by: i64) {
        self.wall_ms.fetch_add(by, Ordering::SeqCst);
        self.monotonic_micros.fetch_add(by.max(0) * 1000, Ordering::SeqCst);
    }

    /// Sets the wall clock only, as an operator's correction does.
    pub fn set_wall_ms(&self, to: i64) {
        self.wall_ms.store(to, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_micros(&self) -> i64 {
        self.monotonic_micros.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    #[test]
    fn the_time_since_boot_goes_with_the_others() {
        let clock = SystemClock::new();
        let (boot, monotonic) = (clock.since_boot_micros(), clock.monotonic_micros());
        wait_until("2 ms pass", || clock.monotonic_micros() - monotonic >= 2000);
        let passed = clock.since_boot_micros() - boot;
        assert!((1999..60_000_000).contains(&passed), "{passed}");
    }
}

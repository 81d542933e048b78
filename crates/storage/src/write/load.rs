//! Whether TTL deletions slow down clients: how long their commits take while a visit runs,
//! compared with before.
//!
//! The measure is deliberately cheap and rough: two moving averages over the commits of clients'
//! write units.

use std::sync::atomic::{AtomicI64, Ordering};

/// One commit moves an average by a sixteenth of the difference.
const WEIGHT: i64 = 16;
/// A smaller rise is ignored.
const NOISE_MICROS: i64 = 500;
/// Without a commit of a client for this long, visits do not pause.
const RECENT_MICROS: i64 = 100_000;
/// The longest single pause.
const LONGEST_PAUSE_MICROS: i64 = 5_000;

/// Averages of the duration of clients' commits, in microseconds.
#[derive(Default)]
pub(crate) struct ForegroundLoad {
    /// The average while no visit ran.
    quiet: AtomicI64,
    /// The average over all commits.
    lately: AtomicI64,
    /// When the last commit ended, on the monotonic clock.
    last: AtomicI64,
    /// The number of running visits.
    visits: AtomicI64,
}

/// A running visit; it ends when this is dropped.
pub(crate) struct VisitMark<'l>(&'l ForegroundLoad);

impl Drop for VisitMark<'_> {
    fn drop(&mut self) {
        self.0.visits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ForegroundLoad {
    /// Adds the duration of a client's unit, from its start to the end of its commit.
    pub(crate) fn note(&self, micros: i64, now_micros: i64) {
        move_towards(&self.lately, micros);
        if self.visits.load(Ordering::Relaxed) == 0 {
            move_towards(&self.quiet, micros);
        }
        self.last.store(now_micros, Ordering::Relaxed);
    }

    /// Starts a visit.
    pub(crate) fn visit(&self) -> VisitMark<'_> {
        self.visits.fetch_add(1, Ordering::Relaxed);
        VisitMark(self)
    }

    /// How long a visit should pause after a unit of this duration, in microseconds.
    pub(crate) fn pause_micros(&self, unit_micros: i64, now_micros: i64) -> i64 {
        if now_micros - self.last.load(Ordering::Relaxed) > RECENT_MICROS {
            return 0;
        }
        let (quiet, lately) =
            (self.quiet.load(Ordering::Relaxed), self.lately.load(Ordering::Relaxed));
        pause_micros(quiet, lately, unit_micros)
    }
}

/// Moves an average. Lost updates between threads only make it a little slower.
fn move_towards(average: &AtomicI64, micros: i64) {
    let now = average.load(Ordering::Relaxed);
    let step = (micros - now) / WEIGHT;
    average.store(if now == 0 { micros } else { now + step }, Ordering::Relaxed);
}

/// The pause is as long as the unit if commits take clearly longer than before, so that deletion
/// keeps at least half its speed.
fn pause_micros(quiet: i64, lately: i64, unit_micros: i64) -> i64 {
    let risen = lately > quiet.saturating_mul(2).saturating_add(NOISE_MICROS);
    if risen { unit_micros.clamp(0, LONGEST_PAUSE_MICROS) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_rise_makes_deletion_pause() {
        assert_eq!(pause_micros(100, 150, 800), 0);
        assert_eq!(pause_micros(100, 700, 800), 0);
        assert_eq!(pause_micros(100, 701, 800), 800);
        assert_eq!(pause_micros(100, 10_000, 80_000), LONGEST_PAUSE_MICROS);
        assert_eq!(pause_micros(5_000, 10_000, 800), 0);
    }

    #[test]
    fn the_time_of_commits_during_a_visit_is_no_baseline() {
        let load = ForegroundLoad::default();
        for at in 0..100 {
            load.note(50, at);
        }
        let mark = load.visit();
        for at in 100..400 {
            load.note(5_000, at);
        }
        assert_eq!(load.pause_micros(300, 400), 300);
        // Clients have stopped committing.
        assert_eq!(load.pause_micros(300, 400 + 2 * RECENT_MICROS), 0);
        drop(mark);
        for at in 400..800 {
            load.note(5_000, at);
        }
        // The higher duration has become the usual one.
        assert_eq!(load.pause_micros(300, 800), 0);
    }
}

//! The last hour of the TTL policies, for the lines in the page's table.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_service::observe::{Figure, Reading, figures};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::history::HOUR_MS;

/// The figures from which the lines are made.
const DUE: &str = "mayflydb_ttl_due_documents";
const DELETED: &str = "mayflydb_ttl_policy_deleted_documents_total";
/// The most documents that one answer counts, for all policies together, and the bounds of the
/// number that it counts for one policy.
const MOST_COUNTED: i64 = 100_000;
const LIMITS: (i64, i64) = (100, 10_000);
/// A line has a point every 30 s for an hour, or fewer if reading one takes long.
const POINT_MICROS: i64 = 30_000_000;
/// The longest time between two points, in microseconds.
const LONGEST_POINT_MICROS: i64 = 300_000_000;
/// The time between two points, as a multiple of the time that reading one takes. Due documents are
/// counted one by one, also when no page is open: this costs at most a 4,000th of a processor.
const LEAST_REST: i64 = 4_000;
const POINTS: usize = 120;

/// The database, the collection and the index of a policy.
type Key = (String, String, String);

/// The last hour of the policies. There are figures of 500 policies, so that it is limited.
#[derive(Default)]
pub(super) struct Policies {
    state: Mutex<State>,
    count: AtomicI64,
}

#[derive(Default)]
struct State {
    lines: HashMap<Key, Line>,
    /// When the next point is due, in monotonic microseconds.
    next: i64,
}

#[derive(Default)]
struct Line {
    points: VecDeque<Point>,
    /// The number of deletions at the latest point.
    deleted: i64,
}

#[derive(Clone, Copy)]
struct Point {
    at_ms: i64,
    due: i64,
    /// Deletions per second since the previous point.
    rate: f64,
}

impl Policies {
    /// The number of due documents up to which an answer counts each policy.
    pub(super) fn due_limit(&self) -> i64 {
        let count = self.count.load(Ordering::Relaxed).max(1);
        (MOST_COUNTED / count).clamp(LIMITS.0, LIMITS.1)
    }

    /// Adds a point to each line, if the last one is old enough.
    pub(super) fn record(&self, reading: &Reading<'_>) {
        let mut state = self.state.lock();
        let (now, now_ms) =
            (reading.service.clock.monotonic_micros(), reading.service.clock.now_ms());
        if now < state.next {
            return;
        }
        let (due, deleted) = (values(DUE, reading), values(DELETED, reading));
        state.next = now + interval(reading.service.clock.monotonic_micros() - now);
        state.lines.retain(|key, _| due.contains_key(key));
        self.count.store(due.len() as i64, Ordering::Relaxed);
        for (key, due) in due {
            let deleted = deleted.get(&key).copied().unwrap_or(0);
            state.lines.entry(key).or_default().add(now_ms, due, deleted);
        }
    }

    /// The line of a policy: times, due documents, and deletions per second.
    pub(super) fn line(&self, namespace: &str, index: &str) -> Value {
        let (db, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        let key = (db.to_owned(), collection.to_owned(), index.to_owned());
        let state = self.state.lock();
        let points = state.lines.get(&key).into_iter().flat_map(|line| &line.points);
        Value::Array(points.map(|it| json!([it.at_ms, it.due, it.rate])).collect())
    }
}

impl Line {
    fn add(&mut self, at_ms: i64, due: i64, deleted: i64) {
        let before = self.points.back().map_or(at_ms, |point| point.at_ms);
        let secs = (at_ms - before) as f64 / 1e3;
        let more = deleted.saturating_sub(self.deleted).max(0) as f64;
        let rate = if secs > 0.0 { (more / secs).round() } else { 0.0 };
        let is_old = |point: &Point| point.at_ms < at_ms - HOUR_MS;
        while self.points.len() == POINTS || self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
        self.points.push_back(Point { at_ms, due, rate });
        self.deleted = deleted;
    }
}

/// The time between two points, in microseconds, by the time that reading one took.
fn interval(took_micros: i64) -> i64 {
    (took_micros.max(0) * LEAST_REST).clamp(POINT_MICROS, LONGEST_POINT_MICROS)
}

fn values(name: &str, reading: &Reading<'_>) -> HashMap<Key, i64> {
    let mut found = HashMap::new();
    for row in figures().filter(|row: &&Figure| row.name == name) {
        row.read(reading, &mut |labels, value| {
            if let [db, collection, index] = labels {
                let key = ((*db).to_owned(), (*collection).to_owned(), (*index).to_owned());
                found.insert(key, value);
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_take_long_are_rare() {
        let secs = |took_micros| interval(took_micros) / 1_000_000;
        assert_eq!([0, 1_000, 20_000, 1_000_000].map(secs), [30, 30, 80, 300]);
        let mut line = Line::default();
        for at in 0..30 {
            line.add(at * 300_000, at, 0);
        }
        assert_eq!(line.points.len(), 13);
    }

    #[test]
    fn a_line_has_the_last_hour() {
        let mut line = Line::default();
        for at in 0..2 * POINTS as i64 {
            line.add(at * 30_000, at, at * 300);
        }
        assert_eq!(line.points.len(), POINTS);
        let last = line.points.back().unwrap();
        assert_eq!((last.due, last.rate), (2 * POINTS as i64 - 1, 10.0));
        // A server whose wall clock goes back has no negative rates.
        line.add(0, 0, 0);
        assert_eq!(line.points.back().unwrap().rate, 0.0);
    }
}

//! An axis of time: a ring of slots. All series with this axis have their points in its slots.

/// The times of the points, in monotonic microseconds.
pub(super) struct Axis {
    times: Vec<i64>,
    capacity: usize,
    next: usize,
    /// The time of the latest point, or of the start.
    latest: i64,
}

/// A new point of an axis.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The slot of the point.
    pub(super) slot: usize,
    /// The time in monotonic microseconds.
    pub(super) now: i64,
    /// The seconds since the previous point; zero for the first one.
    pub(super) elapsed_secs: f64,
}

impl Axis {
    pub(super) fn new(capacity: usize) -> Axis {
        Axis { times: Vec::with_capacity(capacity), capacity, next: 0, latest: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.times.len() == self.capacity
    }

    /// The time of the latest point, or of the start.
    pub(super) fn latest(&self) -> i64 {
        self.latest
    }

    /// Sets the time from which the first step counts.
    pub(super) fn start(&mut self, now: i64) {
        self.latest = now;
    }

    /// Adds a point, which takes the slot of the oldest one if the ring is full.
    pub(super) fn advance(&mut self, now: i64) -> Step {
        let elapsed = if self.latest == 0 { 0 } else { now.saturating_sub(self.latest) };
        let slot = self.next;
        match self.times.get_mut(slot) {
            Some(time) => *time = now,
            None => self.times.push(now),
        }
        self.next = (slot + 1) % self.capacity;
        self.latest = now;
        Step { slot, now, elapsed_secs: elapsed as f64 / 1e6 }
    }

    /// Times and slots of all points, ascending by time.
    pub(super) fn points(&self) -> impl Iterator<Item = (i64, usize)> {
        let oldest = if self.is_full() { self.next } else { 0 };
        let slots = (oldest..self.times.len()).chain(0..oldest);
        slots.map(|slot| (self.times[slot], slot))
    }
}

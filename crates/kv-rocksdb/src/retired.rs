//! Retired records: a merge operator marks a record's value without rewriting it, and scans learn
//! where long runs of retired records are.
//!
//! **The mark.** Retiring writes a merge operand of no bytes. When RocksDB reads or compacts the
//! key, [`mark`] copies the value and sets a bit in its first byte. A retirement therefore costs
//! the write of a key, and the document is rewritten only by the compactions that would rewrite it
//! anyway.
//!
//! **Runs.** Documents often expire in the order of their insertion, so that a collection begins
//! with a long run of retired records. A commit that retires more than [`WORTH_LEARNING`]
//! consecutive numbers notes them, and so does a scan that has stepped over as many. The runs are
//! kept in memory only. A later scan whose snapshot contains all of these retirements seeks to the
//! end of the run. A run contains only numbers that were seen as retired, and a
//! retired key is never put again, so a run stays true until its records are deleted, and after
//! that.

use std::collections::BTreeMap;
use std::ops::Bound;

use mayfly_kv::{Direction, RETIRED};
use parking_lot::RwLock;
use rocksdb::{MergeOperands, Options};

/// From this many consecutive numbers on a run is worth a seek.
pub(crate) const WORTH_LEARNING: usize = 64;
/// When more runs than this are known, all are forgotten.
const MOST_RUNS: usize = 16_384;
/// The length of a key with a number: an object's id and the number.
const KEY_BYTES: usize = 16;

/// A record's key as an object's id and a number; `None` for keys that do not have numbers.
fn numbered(key: &[u8]) -> Option<(u64, u64)> {
    let key: [u8; KEY_BYTES] = key.try_into().ok()?;
    let key = u128::from_be_bytes(key);
    Some(((key >> 64) as u64, key as u64))
}

fn key_of((object, number): (u64, u64)) -> [u8; KEY_BYTES] {
    (u128::from(object) << 64 | u128::from(number)).to_be_bytes()
}

/// Makes a family accept retirements.
pub(crate) fn accept(family: &mut Options) {
    let all_equal = |_: &[u8], _: Option<&[u8]>, _: &MergeOperands| Some(Vec::new());
    family.set_merge_operator("mayfly.retire", mark, all_equal);
}

/// The value with the mark. A key without a value is not left alone, because RocksDB takes a
/// failed merge for damage.
fn mark(_: &[u8], stored: Option<&[u8]>, _: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = stored.map_or_else(|| vec![0], <[u8]>::to_vec);
    value.iter_mut().take(1).for_each(|first| *first |= RETIRED);
    Some(value)
}

/// Runs of retired records that commits and scans have noted.
#[derive(Debug, Default)]
pub(crate) struct RetiredRuns {
    /// By object and first number.
    runs: RwLock<BTreeMap<(u64, u64), Run>>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The last number.
    last: u64,
    /// The sequence number up to which all of them were retired.
    by: u64,
}

impl RetiredRuns {
    /// The first and last number of the known run with this number, for a snapshot that contains
    /// all commits up to a sequence number.
    fn find(&self, (object, number): (u64, u64), holds: u64) -> Option<(u64, u64)> {
        let runs = self.runs.read();
        let ((_, first), run) = runs
            .range((object, 0)..=(object, number))
            .next_back()
            .filter(|(_, run)| run.last >= number)?;
        (run.by <= holds).then_some((*first, run.last))
    }

    /// Notes the long runs among these keys, which are sorted, and which a commit retired. The
    /// sequence number is that of the commit or a later one.
    pub(crate) fn note(&self, keys: &[&[u8]], by: u64) {
        let numbers = keys.iter().filter_map(|key| numbered(key));
        let mut run: Option<(u64, u64, u64)> = None;
        let note = |run: Option<(u64, u64, u64)>| {
            if let Some((object, first, last)) = run
                && last - first >= WORTH_LEARNING as u64
            {
                self.add(object, first, last, by);
            }
        };
        for (object, number) in numbers {
            match &mut run {
                Some((same, _, last)) if *same == object && last.checked_add(1) == Some(number) => {
                    *last = number;
                }
                _ => note(run.replace((object, number, number))),
            }
        }
        note(run);
    }

    /// Adds a run that a scan or a commit has found, and joins it with those that it touches.
    fn add(&self, object: u64, mut first: u64, mut last: u64, mut by: u64) {
        let mut runs = self.runs.write();
        let before = runs.range((object, 0)..=(object, first)).next_back();
        if let Some((&(_, start), run)) = before
            && run.last.saturating_add(1) >= first
        {
            if run.last >= last && run.by <= by {
                return;
            }
            (first, last, by) = (start, last.max(run.last), by.max(run.by));
        }
        loop {
            let from = (
                Bound::Included((object, first)),
                Bound::Included((object, last.saturating_add(1))),
            );
            let Some((&key, run)) = runs.range(from).next() else { break };
            (last, by) = (last.max(run.last), by.max(run.by));
            runs.remove(&key);
        }
        if runs.len() >= MOST_RUNS {
            runs.clear();
        }
        runs.insert((object, first), Run { last, by });
    }
}

/// The run of retired records that a scan is stepping over.
pub(crate) struct RunWalk<'r> {
    runs: &'r RetiredRuns,
    direction: Direction,
    /// The range of sequence numbers at which the snapshot was taken.
    holds: u64,
    within: u64,
    /// Object, first and last number.
    run: Option<(u64, u64, u64)>,
    /// How many of them the scan itself has stepped over.
    stepped: usize,
}

impl<'r> RunWalk<'r> {
    pub(crate) fn new(
        runs: &'r RetiredRuns,
        direction: Direction,
        (holds, within): (u64, u64),
    ) -> RunWalk<'r> {
        RunWalk { runs, direction, holds, within, run: None, stepped: 0 }
    }

    /// Notes a retired record. Returns the key to seek to if the record is in a known run: forward
    /// the key after the run, backward the first key of the run, which the scan comes before.
    pub(crate) fn step(&mut self, key: &[u8]) -> Option<[u8; KEY_BYTES]> {
        let at @ (object, number) = numbered(key)?;
        let goes_on = match (&mut self.run, self.direction) {
            (Some((same, _, last)), Direction::Forward)
                if *same == object && last.checked_add(1) == Some(number) =>
            {
                *last = number;
                true
            }
            (Some((same, first, _)), Direction::Backward)
                if *same == object && number.checked_add(1) == Some(*first) =>
            {
                *first = number;
                true
            }
            _ => false,
        };
        if goes_on {
            self.stepped += 1;
            // A run that another scan has noted may begin here.
            if !self.stepped.is_multiple_of(WORTH_LEARNING) {
                return None;
            }
        } else {
            self.end();
            self.run = Some((object, number, number));
            self.stepped = 1;
        }
        let (first, last) = self.runs.find(at, self.holds)?;
        let run = self.run.as_mut()?;
        (run.1, run.2) = (run.1.min(first), run.2.max(last));
        match self.direction {
            Direction::Forward => last.checked_add(1).map(|next| key_of((object, next))),
            Direction::Backward => Some(key_of((object, first))),
        }
    }

    /// Notes the run that ends here, if it is long.
    pub(crate) fn end(&mut self) {
        let stepped = std::mem::take(&mut self.stepped);
        if let Some((object, first, last)) = self.run.take()
            && stepped > 0
            && last - first >= WORTH_LEARNING as u64
        {
            self.runs.add(object, first, last, self.within);
        }
    }
}

impl Drop for RunWalk<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan at a sequence number over these numbers of object 7; returns how many it stepped
    /// over.
    fn walk(
        runs: &RetiredRuns,
        numbers: std::ops::Range<u64>,
        direction: Direction,
        at: u64,
    ) -> u64 {
        let mut walk = RunWalk::new(runs, direction, (at, at));
        let (mut steps, mut next) = (0, numbers.clone());
        loop {
            let number = match direction {
                Direction::Forward => next.next(),
                Direction::Backward => next.next_back(),
            };
            let Some(number) = number else { return steps };
            steps += 1;
            if let Some(key) = walk.step(&key_of((7, number))) {
                let (_, to) = numbered(&key).unwrap();
                next = match direction {
                    Direction::Forward => to..numbers.end.max(to),
                    Direction::Backward => numbers.start.min(to)..to,
                };
            }
        }
    }

    #[test]
    fn a_long_run_is_walked_once_and_skipped_by_later_snapshots() {
        use Direction::{Backward, Forward};
        for first in [Forward, Backward] {
            let runs = RetiredRuns::default();
            assert_eq!(walk(&runs, 100..1_100, first, 50), 1_000);
            for direction in [Forward, Backward] {
                assert_eq!(walk(&runs, 100..1_100, direction, 50), 1);
                assert_eq!(walk(&runs, 100..1_100, direction, 60), 1);
            }
            // An older snapshot may see some of them; it learns nothing that hides them.
            assert_eq!(walk(&runs, 100..300, Forward, 49), 200);
            // The run grows at both ends.
            assert_eq!(walk(&runs, 90..1_200, Forward, 70), 1 + 64 + 100 - 1);
            assert_eq!(walk(&runs, 90..1_200, Backward, 70), 1);
            assert_eq!(runs.runs.read().len(), 1);
        }
    }

    #[test]
    fn a_commit_notes_its_runs() {
        let runs = RetiredRuns::default();
        let numbers = (0..100).chain(150..180).chain(200..300).chain(300..400);
        let keys: Vec<_> = numbers.map(|number| key_of((7, number))).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        runs.note(&keys, 9);
        let found = |number, holds| runs.find((7, number), holds);
        assert_eq!((found(99, 9), found(99, 8)), (Some((0, 99)), None));
        assert_eq!((found(160, 9), found(399, 10)), (None, Some((200, 399))));
        runs.note(&keys[99..131], 10);
        assert_eq!(found(150, 10), None);
    }

    #[test]
    fn short_runs_and_keys_without_numbers_are_not_noted() {
        let runs = RetiredRuns::default();
        assert_eq!(walk(&runs, 0..60, Direction::Forward, 5), 60);
        let mut walk = RunWalk::new(&runs, Direction::Forward, (5, 5));
        for number in (0..1_000u64).step_by(2) {
            assert_eq!(walk.step(&key_of((7, number))), None);
        }
        assert_eq!(walk.step(b"7"), None);
        drop(walk);
        assert!(runs.runs.read().is_empty());
        for object in 0..=MOST_RUNS as u64 {
            runs.add(object, 0, 100, 1);
        }
        assert_eq!(runs.runs.read().len(), 1);
        assert_eq!(runs.find((MOST_RUNS as u64, 50), 1), Some((0, 100)));
        assert_eq!(runs.find((MOST_RUNS as u64, u64::MAX), 1), None);
    }
}

//! The frequency of a phrase whose words may be moved, by the method of Lucene.
//!
//! Each word of the phrase is a slot. The place of a slot is the position of its word, less the
//! word's place in the phrase: in an exact match all slots have the same place. The distance of a
//! match is the greatest place less the least one, and its part of the frequency is
//! `1 / (1 + distance)`.
//!
//! ```text
//!  phrase  "quick fox" with slop 1          document  "the quick brown fox"
//!  slots   quick - 0, fox - 1               places    1 - 0 = 1, 3 - 1 = 2: the distance is 1
//! ```
//!
//! 1. All slots are at the first positions of their words.
//! 2. The slot with the least place moves to its next positions, until its place is greater than
//!    that of the second slot. The least distance on the way is a match, if it is not greater than
//!    the slop.
//! 3. This is repeated until a slot has no further position.
//!
//! Slots of the same word must not use the same position of the document. If one moves to the
//! position of another one, the lesser of both moves on. As in Lucene, not all combinations of
//! positions are found.

use crate::watch::Watch;

/// A word of a phrase.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The number of its list of positions.
    pub(super) list: usize,
    /// Its place in the phrase.
    pub(super) offset: i32,
}

/// The matcher of one phrase.
pub(super) struct Sloppy {
    slots: Vec<Slot>,
    slop: i32,
    /// For each slot, the slots of the same word in the order of the phrase, with itself; empty if
    /// there is no other one.
    groups: Vec<Vec<usize>>,
    /// How many positions of its word each slot has passed.
    passed: Vec<usize>,
    places: Vec<i32>,
    /// The slots with their places, the least one last.
    queue: Vec<(i32, i32, usize)>,
    /// The greatest place.
    end: i32,
}

impl Sloppy {
    pub(super) fn new(slots: Vec<Slot>, slop: u32) -> Sloppy {
        let group = |slot: &Slot| -> Vec<usize> {
            let mut same: Vec<usize> =
                (0..slots.len()).filter(|other| slots[*other].list == slot.list).collect();
            same.sort_by_key(|other| slots[*other].offset);
            if same.len() > 1 { same } else { Vec::new() }
        };
        Sloppy {
            groups: slots.iter().map(group).collect(),
            passed: vec![0; slots.len()],
            places: vec![0; slots.len()],
            queue: Vec::with_capacity(slots.len()),
            end: i32::MIN,
            slop: i32::try_from(slop).unwrap_or(i32::MAX),
            slots,
        }
    }

    /// The frequency of the phrase, by the positions of its words.
    pub(super) fn frequency(&mut self, positions: &[Vec<u32>], watch: &Watch) -> f32 {
        let mut frequency = 0.0;
        if !self.start(positions) {
            return frequency;
        }
        let mut add = |distance: i32, slop: i32| {
            if distance <= slop {
                frequency += 1.0 / (1.0 + distance as f32);
            }
        };
        while let Some((least, _, slot)) = self.queue.pop() {
            let Some(next) = self.queue.last().map(|slot| slot.0) else { break };
            let mut distance = self.end - least;
            loop {
                if !self.step(slot, positions, watch) {
                    add(distance, self.slop);
                    return frequency;
                }
                if self.places[slot] > next {
                    break;
                }
                distance = distance.min(self.end - self.places[slot]);
            }
            self.push(slot);
            add(distance, self.slop);
        }
        frequency
    }

    /// Puts all slots to their first positions; those of the same word to one after another.
    fn start(&mut self, positions: &[Vec<u32>]) -> bool {
        self.end = i32::MIN;
        self.queue.clear();
        for slot in 0..self.slots.len() {
            let rank = self.groups[slot].iter().position(|other| *other == slot).unwrap_or(0);
            self.passed[slot] = rank;
            if !self.place(slot, positions) {
                return false;
            }
        }
        (0..self.slots.len()).for_each(|slot| self.push(slot));
        true
    }

    /// Reads the place of a slot; `false`: its word has no further position.
    fn place(&mut self, slot: usize, positions: &[Vec<u32>]) -> bool {
        let Slot { list, offset } = self.slots[slot];
        let Some(position) = positions[list].get(self.passed[slot]) else { return false };
        self.places[slot] = *position as i32 - offset;
        self.end = self.end.max(self.places[slot]);
        true
    }

    fn advance(&mut self, slot: usize, positions: &[Vec<u32>]) -> bool {
        self.passed[slot] += 1;
        self.place(slot, positions)
    }

    /// Moves a slot that is not in the queue to its next position, and others of the same word that
    /// are in its way. `false`: a word has no further position, or the search has ended.
    fn step(&mut self, slot: usize, positions: &[Vec<u32>], watch: &Watch) -> bool {
        if watch.take(1 + self.groups[slot].len()) || !self.advance(slot, positions) {
            return false;
        }
        let (mut current, mut moved) = (slot, Vec::new());
        while let Some(other) = self.same_position(current) {
            let rank = |slot: usize| (self.places[slot], self.slots[slot].offset);
            current = if rank(current) < rank(other) { current } else { other };
            if watch.take(self.groups[slot].len()) || !self.advance(current, positions) {
                return false;
            }
            if other != slot {
                moved.push(other);
            }
        }
        for other in moved {
            self.queue.retain(|queued| queued.2 != other);
            self.push(other);
        }
        true
    }

    /// Another slot of the same word at the same position.
    fn same_position(&self, slot: usize) -> Option<usize> {
        let position = |slot: usize| self.passed[slot];
        let group = self.groups[slot].iter().copied();
        group.filter(|other| *other != slot).find(|other| position(*other) == position(slot))
    }

    fn push(&mut self, slot: usize) {
        let entry = (self.places[slot], self.slots[slot].offset, slot);
        let at = self.queue.partition_point(|queued| *queued > entry);
        self.queue.insert(at, entry);
    }
}

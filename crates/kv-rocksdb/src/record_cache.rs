//! Whole records in front of the engine: what was read of late and more than once.
//!
//! A look-up in the engine costs 1.6 to 2.4 us though all its blocks are in memory (a filter, an index block, restart points, a
//! data block, for each level); here a tenth of that. And a block in the cache holds seven records beside the one that is asked
//! for: of records that lie scattered, far more fit here.
//!
//! What a reader is shown is what its snapshot holds:
//!
//! 1. An entry carries the sequence number as of which it was read. It serves that snapshot and later ones.
//! 2. A commit bars the sets of all records that it writes, before it writes them, and takes their entries out. When it is over it
//!    leaves its sequence number there and lifts the bar.
//! 3. Nothing is added to a set that is barred, or that a commit has left a later number in than the reader's.
//!
//! So while an entry is there, no commit on its record has become visible since it was read: such a commit would have taken it
//! out first, and nobody could have put it back but who reads later.
//!
//! Records that a policy hides are in here like others; who hides looks at the record. What is swept of a dropped collection
//! may stay until it is displaced: its keys are never asked for again.
//!
//! What it costs a write is less than a hundredth of its instructions. It pays where records lie scattered (YCSB E over hashed ids
//! takes half the CPU, a tenth less of a look-up by `_id`), and where a few records are asked for by turns; records that follow
//! each other are stepped through as quickly ([`crate::many`]), so long runs of them are read past it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// Bytes of a record's key: the collection, the number. Others are not kept.
const KEY_BYTES: usize = 16;
/// Memory for the records of one set.
const SET_BYTES: usize = 16 << 10;
/// Most entries of a set.
const SET_ENTRIES: usize = 64;
/// Memory of an entry beside its value, roughly.
const ENTRY_BYTES: usize = 72;
/// Larger values would displace too many others.
const MAX_VALUE: usize = SET_BYTES / 4;
/// Records that share a set by their numbers, a power of two.
const GROUP: u8 = 8;
/// Keys that were looked for in vain once, for each set.
const ASKED: usize = 32;

/// The cache.
pub(crate) struct RecordCache {
    sets: Box<[Mutex<Set>]>,
    /// Part of the hash of keys that were not here: those that come a second time are kept.
    asked: Box<[AtomicU32]>,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Set {
    /// Commits under way.
    barred: u32,
    /// The last commit's sequence number or a later one.
    stamp: u64,
    bytes: usize,
    /// Where the search for somebody to displace goes on.
    hand: usize,
    /// Part of each entry's hash, beside each other.
    marks: Vec<u32>,
    entries: Vec<Entry>,
}

struct Entry {
    key: [u8; KEY_BYTES],
    /// As of which sequence number it was read.
    read: u64,
    used: bool,
    value: Arc<[u8]>,
}

/// As of when a reader reads.
#[derive(Clone, Copy)]
pub(crate) enum AsOf {
    /// A snapshot: it holds everything up to the first number, and nothing beyond the second.
    Snapshot(u64, u64),
    /// Now.
    Latest,
}

/// What was found.
pub(crate) enum Look {
    Found(Arc<[u8]>),
    /// Nothing; what is read instead may be offered with this.
    Missing(Option<Offer>),
}

/// Leave to add a record.
pub(crate) struct Offer {
    hash: u64,
    key: [u8; KEY_BYTES],
    as_of: AsOf,
    /// The set's number at the look.
    stamp: u64,
}

/// Keeps sets barred while a commit is under way.
pub(crate) struct Bar<'c> {
    cache: &'c RecordCache,
    sets: Vec<usize>,
}

impl RecordCache {
    /// One that takes about so many bytes when it is full.
    pub(crate) fn new(bytes: usize) -> RecordCache {
        let sets = (bytes / SET_BYTES).max(1).next_power_of_two();
        let sets = if sets * SET_BYTES > bytes { (sets / 2).max(1) } else { sets };
        RecordCache {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            asked: (0..sets * ASKED).map(|_| AtomicU32::new(0)).collect(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// What the records in it take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The set of a key. Records with neighbouring numbers share one: they are often written together.
    fn set(&self, key: &[u8; KEY_BYTES]) -> usize {
        let mut group = *key;
        group[KEY_BYTES - 1] &= !(GROUP - 1);
        (hash(&group) >> 20) as usize & (self.sets.len() - 1)
    }

    /// Whether a key with this hash was looked for in vain lately.
    fn was_asked(&self, hash: u64) -> bool {
        let place = &self.asked[(hash >> 12) as usize & (self.asked.len() - 1)];
        let mark = mark(hash);
        place.load(Relaxed) == mark || {
            place.store(mark, Relaxed);
            false
        }
    }

    /// Looks for a record.
    pub(crate) fn look(&self, key: &[u8], as_of: AsOf) -> Look {
        let Ok(key) = <[u8; KEY_BYTES]>::try_from(key) else { return Look::Missing(None) };
        let hash = hash(&key);
        let mut set = self.sets[self.set(&key)].lock();
        if let Some(at) = set.find(&key, hash) {
            let entry = &mut set.entries[at];
            let serves = match as_of {
                AsOf::Snapshot(holds, _) => entry.read <= holds,
                AsOf::Latest => true,
            };
            if !serves {
                return Look::Missing(None);
            }
            entry.used = true;
            return Look::Found(Arc::clone(&entry.value));
        }
        let (stamp, barred) = (set.stamp, set.barred > 0);
        drop(set);
        let offered = !barred && self.was_asked(hash);
        Look::Missing(offered.then_some(Offer { hash, key, as_of, stamp }))
    }

    /// Adds a record that was read after the look that gave the offer. `now` is the engine's sequence number, asked for after
    /// the read.
    pub(crate) fn add(&self, offer: &Offer, value: &[u8], now: impl FnOnce() -> u64) {
        if value.len() > MAX_VALUE {
            return;
        }
        let read = match offer.as_of {
            AsOf::Snapshot(_, within) => within,
            AsOf::Latest => now(),
        };
        let mut set = self.sets[self.set(&offer.key)].lock();
        let changed = match offer.as_of {
            AsOf::Snapshot(holds, _) => set.stamp > holds,
            AsOf::Latest => set.stamp != offer.stamp,
        };
        if changed || set.barred > 0 || set.find(&offer.key, offer.hash).is_some() {
            return;
        }
        let bytes = value.len() + ENTRY_BYTES;
        // What the cache holds is not the reader's.
        mayfly_work::memory::elsewhere(|| {
            let displaced = set.make_room(bytes);
            set.bytes += bytes;
            self.bytes.fetch_add(bytes, Relaxed);
            self.bytes.fetch_sub(displaced, Relaxed);
            set.marks.push(mark(offer.hash));
            set.entries.push(Entry { key: offer.key, read, used: false, value: Arc::from(value) });
        });
    }

    /// To be called before these records are written, and kept until they are.
    pub(crate) fn bar<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Bar<'_> {
        let mut sets = Vec::new();
        for key in keys.filter_map(|key| <[u8; KEY_BYTES]>::try_from(key).ok()) {
            let at = self.set(&key);
            let mut set = self.sets[at].lock();
            if sets.last() != Some(&at) {
                sets.push(at);
                set.barred += 1;
            }
            if !set.entries.is_empty()
                && let Some(at) = set.find(&key, hash(&key))
            {
                self.bytes.fetch_sub(set.remove(at), Relaxed);
            }
        }
        Bar { cache: self, sets }
    }
}

impl Bar<'_> {
    /// The commit is over, however it ended; the engine's sequence number is this by now.
    pub(crate) fn lift(self, now: u64) {
        for at in self.sets {
            let mut set = self.cache.sets[at].lock();
            set.barred -= 1;
            set.stamp = set.stamp.max(now);
        }
    }
}

impl Set {
    fn find(&self, key: &[u8; KEY_BYTES], hash: u64) -> Option<usize> {
        let mark = mark(hash);
        let mut marks = self.marks.iter().enumerate();
        marks.find(|(at, one)| **one == mark && self.entries[*at].key == *key).map(|(at, _)| at)
    }

    /// Takes an entry out; gives its bytes.
    fn remove(&mut self, at: usize) -> usize {
        self.marks.swap_remove(at);
        let bytes = self.entries.swap_remove(at).value.len() + ENTRY_BYTES;
        self.bytes -= bytes;
        bytes
    }

    /// Displaces entries that were not used since the last search, until so many bytes fit; gives the bytes of those.
    fn make_room(&mut self, bytes: usize) -> usize {
        let mut displaced = 0;
        while self.bytes + bytes > SET_BYTES || self.entries.len() >= SET_ENTRIES {
            self.hand = if self.hand + 1 >= self.entries.len() { 0 } else { self.hand + 1 };
            let Some(entry) = self.entries.get_mut(self.hand) else { break };
            if !std::mem::replace(&mut entry.used, false) {
                displaced += self.remove(self.hand);
            }
        }
        displaced
    }
}

fn hash(key: &[u8; KEY_BYTES]) -> u64 {
    mayfly_kv::key_hash::key_hash(mayfly_kv::Keyspace::Record, key)
}

/// What of a hash stands for it.
fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Vec<u8> {
        [7_u64.to_be_bytes(), number.to_be_bytes()].concat()
    }

    fn now(cache: &RecordCache, number: u64) -> Option<Vec<u8>> {
        match cache.look(&key(number), AsOf::Latest) {
            Look::Found(value) => Some(value.to_vec()),
            Look::Missing(_) => None,
        }
    }

    /// Looks twice, so that it may be added.
    fn offer(cache: &RecordCache, number: u64, as_of: AsOf) -> Option<Offer> {
        let _ = cache.look(&key(number), as_of);
        match cache.look(&key(number), as_of) {
            Look::Found(_) => None,
            Look::Missing(offer) => offer,
        }
    }

    fn add(cache: &RecordCache, number: u64, as_of: AsOf, value: &[u8]) {
        if let Some(offer) = offer(cache, number, as_of) {
            cache.add(&offer, value, || 100);
        }
    }

    #[test]
    fn only_what_was_asked_for_twice_is_kept() {
        let cache = RecordCache::new(1 << 20);
        assert!(matches!(cache.look(&key(1), AsOf::Latest), Look::Missing(None)));
        assert!(matches!(cache.look(&key(1), AsOf::Latest), Look::Missing(Some(_))));
        assert!(matches!(cache.look(b"another key", AsOf::Latest), Look::Missing(None)));
    }

    #[test]
    fn a_snapshot_is_served_with_what_was_read_before_it() {
        let cache = RecordCache::new(1 << 20);
        add(&cache, 1, AsOf::Snapshot(10, 12), b"one");
        assert_eq!(now(&cache, 1).as_deref(), Some(&b"one"[..]));
        let found = |as_of| matches!(cache.look(&key(1), as_of), Look::Found(_));
        assert!(found(AsOf::Snapshot(12, 15)));
        assert!(!found(AsOf::Snapshot(11, 15)), "it may be older than what was read");
    }

    #[test]
    fn nothing_is_added_beside_a_commit_or_from_before_it() {
        let cache = RecordCache::new(1 << 20);
        let early = offer(&cache, 1, AsOf::Snapshot(10, 10));
        let latest = offer(&cache, 1, AsOf::Latest);
        add(&cache, 2, AsOf::Snapshot(10, 10), b"two");
        let (one, two) = (key(1), key(2));
        let bar = cache.bar([&one[..], &two[..]].into_iter());
        assert_eq!(now(&cache, 2), None, "taken out before it is written");
        assert!(offer(&cache, 2, AsOf::Latest).is_none());
        cache.add(early.as_ref().unwrap(), b"old", || 0);
        assert_eq!(now(&cache, 1), None);
        bar.lift(20);
        cache.add(early.as_ref().unwrap(), b"old", || 0);
        cache.add(latest.as_ref().unwrap(), b"old", || 20);
        assert_eq!(now(&cache, 1), None);
        add(&cache, 1, AsOf::Snapshot(20, 21), b"new");
        assert_eq!(now(&cache, 1).as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn it_takes_no_more_memory_than_it_was_given() {
        let cache = RecordCache::new(1 << 20);
        for number in 0..5_000 {
            add(&cache, number, AsOf::Latest, &[1; 1000]);
            // One that is used all the time stays.
            if number >= 8 {
                assert!(now(&cache, 3).is_some(), "after {number}");
            }
        }
        assert!((700_000..=1 << 20).contains(&cache.bytes()), "{}", cache.bytes());
        let written: Vec<_> = (0..5_000).map(key).collect();
        cache.bar(written.iter().map(Vec::as_slice)).lift(200);
        assert_eq!(cache.bytes(), 0);
        add(&cache, 1, AsOf::Latest, &vec![1; MAX_VALUE + 1]);
        assert_eq!(now(&cache, 1), None, "a large value displaces nobody");
    }
}

//! A cache of whole records, for those that were read recently and more than once.
//!
//! A look-up in the engine costs 1.6 to 2.4 us even if all its blocks are in memory (a filter, an
//! index block, restart points, a data block, for each level); here a tenth of that. And a block in
//! the cache holds seven more records than the one requested: of scattered records, far more fit
//! here.
//!
//! A read returns the version of its snapshot:
//!
//! 1. An entry carries the sequence number as of which it was read. It serves that snapshot and
//!    later ones.
//! 2. Before a commit writes its records, it invalidates their sets: it blocks additions and
//!    removes the entries of its records. After the write it stores its sequence number in the sets
//!    and unblocks them.
//! 3. Nothing is added to a blocked set, or to one with a later sequence number than the reader's.
//!
//! So while an entry exists, no commit of its record has become visible since it was read: such a
//! commit would have removed it, and only a later reader could have added it again.
//!
//! Records that a policy hides are cached like others; the reader applies the policy to the record.
//! Swept records of a dropped collection may stay until they are displaced: their keys are never
//! requested again.
//!
//! A look-up never waits for another thread: if its set is locked, it is a miss, and nothing is
//! added after it. It mostly waits for memory: for its set, its entry, its value. A set begins with
//! a byte for each of its entries, which excludes nearly all others, in the cache line of its lock.
//! A reader of many records touches all of their sets first ([`RecordCache::touch`]), so that the
//! processor fetches them at the same time. Once it takes locks, it fetches one after the other.
//!
//! The cost for a write is less than a hundredth of its instructions. The cache pays off where
//! records are scattered (YCSB E over hashed ids takes half the CPU, a tenth less for a look-up by
//! `_id`), and where a few records are read alternately. Stepping through adjacent records is as
//! fast ([`crate::many`]); therefore long runs of them bypass the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::counts;

/// Length of a record's key: collection, number. Other keys are not cached.
const KEY_BYTES: usize = 16;
/// Memory for the records of one set.
const SET_BYTES: usize = 16 << 10;
/// Most entries of a set.
const SET_ENTRIES: usize = 64;
/// Approximate memory of an entry without its value.
const ENTRY_BYTES: usize = 72;
/// Largest cached value; larger ones would displace too many others.
const MAX_VALUE: usize = SET_BYTES / 4;
/// How many records with adjacent numbers share a set; a power of two.
const GROUP: u8 = 8;
/// Recently missed keys remembered for each set.
const ASKED: usize = 32;

/// The cache: a table of sets with a lock each.
pub(crate) struct RecordCache {
    sets: Box<[AlignedSet]>,
    /// Marks of the hashes of recently missed keys: a key that is missed a second time is cached.
    asked: Box<[AtomicU32]>,
    bytes: AtomicUsize,
}

/// A set in cache lines that a processor fetches together.
#[derive(Default)]
#[repr(align(128))]
struct AlignedSet(Mutex<Set>);

struct Set {
    /// A part of each entry's hash, never 0; 0 after the last one.
    tags: [u8; SET_ENTRIES],
    /// Number of commits in progress on records of this set.
    pending_commits: u32,
    /// The sequence number of the last commit, or a later one.
    stamp: u64,
    bytes: usize,
    /// The position of the clock hand that finds entries to displace.
    hand: usize,
    entries: Vec<Entry>,
}

impl Default for Set {
    fn default() -> Set {
        Set {
            tags: [0; SET_ENTRIES],
            pending_commits: 0,
            stamp: 0,
            bytes: 0,
            hand: 0,
            entries: Vec::new(),
        }
    }
}

struct Entry {
    key: [u8; KEY_BYTES],
    /// The sequence number as of which it was read.
    read: u64,
    used: bool,
    value: Arc<[u8]>,
}

/// The state that a reader reads.
#[derive(Clone, Copy)]
pub(crate) enum AsOf {
    /// A snapshot: it contains all commits up to the first number, and none after the second.
    Snapshot(u64, u64),
    /// The latest state.
    Latest,
}

/// The result of a look-up.
pub(crate) enum CacheLookup {
    Found(Arc<[u8]>),
    /// A miss; the record that is then read from the engine may be added with this.
    Missing(Option<Offer>),
}

/// The place of a key in the cache.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    hash: u64,
    set: usize,
    key: [u8; KEY_BYTES],
}

/// Permission to add a record after a miss.
pub(crate) struct Offer {
    place: Place,
    as_of: AsOf,
    /// The set's sequence number at the look-up.
    stamp: u64,
}

/// Blocks additions to sets while a commit is in progress.
pub(crate) struct Invalidation<'c> {
    cache: &'c RecordCache,
    /// The first set; most commits write one record.
    first: Option<usize>,
    others: Vec<usize>,
}

impl RecordCache {
    /// A cache of at most about this many bytes.
    pub(crate) fn new(bytes: usize) -> RecordCache {
        let sets = (bytes / SET_BYTES).max(1).next_power_of_two();
        let sets = if sets * SET_BYTES > bytes { (sets / 2).max(1) } else { sets };
        RecordCache {
            sets: (0..sets).map(|_| AlignedSet::default()).collect(),
            asked: (0..sets * ASKED).map(|_| AtomicU32::new(0)).collect(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Memory of the cached records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The set of a key. Records with adjacent numbers share one, because they are often written
    /// together.
    fn set(&self, key: &[u8; KEY_BYTES]) -> usize {
        let mut group = *key;
        group[KEY_BYTES - 1] &= !(GROUP - 1);
        (hash(&group) >> 20) as usize & (self.sets.len() - 1)
    }

    /// Whether a key with this hash was missed recently.
    fn was_asked(&self, hash: u64) -> bool {
        let place = &self.asked[(hash >> 12) as usize & (self.asked.len() - 1)];
        let mark = mark(hash);
        place.load(Relaxed) == mark || {
            place.store(mark, Relaxed);
            false
        }
    }

    /// The place of a key; `None` if keys of this length are not cached.
    pub(crate) fn place(&self, key: &[u8]) -> Option<Place> {
        let key = <[u8; KEY_BYTES]>::try_from(key).ok()?;
        Some(Place { hash: hash(&key), set: self.set(&key), key })
    }

    /// Makes the processor fetch a set that is going to be searched, without waiting for it.
    #[inline]
    pub(crate) fn touch(&self, place: &Place) {
        std::hint::black_box(self.sets[place.set].0.is_locked());
    }

    /// Looks up a record.
    pub(crate) fn lookup(&self, key: &[u8], as_of: AsOf) -> CacheLookup {
        match self.place(key) {
            Some(place) => self.lookup_at(place, as_of),
            None => CacheLookup::Missing(None),
        }
    }

    /// Looks up the record at a place. Never waits: a set that another thread is using counts as
    /// one without the record.
    pub(crate) fn lookup_at(&self, place: Place, as_of: AsOf) -> CacheLookup {
        let found = self.find(place, as_of);
        match &found {
            CacheLookup::Found(_) => counts::record_hit(),
            CacheLookup::Missing(_) => counts::record_miss(),
        }
        found
    }

    fn find(&self, place: Place, as_of: AsOf) -> CacheLookup {
        let Place { hash, key, .. } = place;
        // Waiting could take as long as the holder of the lock has no processor; reading from the
        // engine takes 2 us.
        let Some(mut set) = self.sets[place.set].0.try_lock() else {
            return CacheLookup::Missing(None);
        };
        if let Some(at) = set.find(&key, hash) {
            let entry = &mut set.entries[at];
            let serves = match as_of {
                AsOf::Snapshot(holds, _) => entry.read <= holds,
                AsOf::Latest => true,
            };
            if !serves {
                return CacheLookup::Missing(None);
            }
            entry.used = true;
            return CacheLookup::Found(Arc::clone(&entry.value));
        }
        let (stamp, pending_commits) = (set.stamp, set.pending_commits > 0);
        drop(set);
        let offered = !pending_commits && self.was_asked(hash);
        CacheLookup::Missing(offered.then_some(Offer { place, as_of, stamp }))
    }

    /// Adds a record that was read after the look-up that returned the offer. `now` returns the
    /// engine's sequence number, and is called after the read.
    pub(crate) fn add(&self, offer: &Offer, value: &[u8], now: impl FnOnce() -> u64) {
        if value.len() > MAX_VALUE {
            return;
        }
        let read = match offer.as_of {
            AsOf::Snapshot(_, within) => within,
            AsOf::Latest => now(),
        };
        let Place { hash, set, key } = offer.place;
        let mut set = self.sets[set].0.lock();
        let changed = match offer.as_of {
            AsOf::Snapshot(holds, _) => set.stamp > holds,
            AsOf::Latest => set.stamp != offer.stamp,
        };
        if changed || set.pending_commits > 0 || set.find(&key, hash).is_some() {
            return;
        }
        let bytes = value.len() + ENTRY_BYTES;
        // Cached bytes are not charged to the reader's operation.
        mayfly_work::memory::uncharged(|| {
            let displaced = set.make_room(bytes);
            set.bytes += bytes;
            self.bytes.fetch_add(bytes, Relaxed);
            self.bytes.fetch_sub(displaced, Relaxed);
            let at = set.entries.len();
            set.tags[at] = tag(hash);
            set.entries.push(Entry { key, read, used: false, value: Arc::from(value) });
        });
    }

    /// Removes these records, and blocks additions to their sets until the guard is finished.
    /// Called before the records are written.
    pub(crate) fn invalidate<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Invalidation<'_> {
        let (mut first, mut others) = (None, Vec::new());
        for key in keys.filter_map(|key| <[u8; KEY_BYTES]>::try_from(key).ok()) {
            let at = self.set(&key);
            let mut set = self.sets[at].0.lock();
            if others.last().copied().or(first) != Some(at) {
                match first {
                    None => first = Some(at),
                    Some(_) => others.push(at),
                }
                set.pending_commits += 1;
            }
            if !set.entries.is_empty()
                && let Some(at) = set.find(&key, hash(&key))
            {
                self.bytes.fetch_sub(set.remove(at), Relaxed);
            }
        }
        Invalidation { cache: self, first, others }
    }
}

impl Invalidation<'_> {
    /// Ends the block after the commit, whether it succeeded or not. `now` is the engine's current
    /// sequence number.
    pub(crate) fn finish(self, now: u64) {
        for at in self.first.into_iter().chain(self.others) {
            let mut set = self.cache.sets[at].0.lock();
            set.pending_commits -= 1;
            set.stamp = set.stamp.max(now);
        }
    }
}

impl Set {
    fn find(&self, key: &[u8; KEY_BYTES], hash: u64) -> Option<usize> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        let wanted = u64::from(tag(hash)) * LOW;
        for (word, tags) in self.tags.chunks_exact(8).enumerate() {
            let differs = tags.try_into().map_or(u64::MAX, u64::from_le_bytes) ^ wanted;
            // The high bit of each byte that is 0, and perhaps of bytes after it.
            let mut equal = differs.wrapping_sub(LOW) & !differs & (LOW << 7);
            while equal != 0 {
                let at = word * 8 + equal.trailing_zeros() as usize / 8;
                if self.entries.get(at).is_some_and(|entry| entry.key == *key) {
                    return Some(at);
                }
                equal &= equal - 1;
            }
            if word * 8 + 8 >= self.entries.len() {
                break;
            }
        }
        None
    }

    /// Removes an entry and returns its bytes.
    fn remove(&mut self, at: usize) -> usize {
        let last = self.entries.len() - 1;
        self.tags.swap(at, last);
        self.tags[last] = 0;
        let bytes = self.entries.swap_remove(at).value.len() + ENTRY_BYTES;
        self.bytes -= bytes;
        bytes
    }

    /// Displaces entries that were not used since the hand last passed them, until this many bytes
    /// fit; returns the bytes displaced.
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

/// The part of a hash in its set; never 0.
fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// The part of a hash that is stored for a missed key; never 0.
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
        match cache.lookup(&key(number), AsOf::Latest) {
            CacheLookup::Found(value) => Some(value.to_vec()),
            CacheLookup::Missing(_) => None,
        }
    }

    /// Misses twice, so that the record may be added.
    fn offer(cache: &RecordCache, number: u64, as_of: AsOf) -> Option<Offer> {
        let _ = cache.lookup(&key(number), as_of);
        match cache.lookup(&key(number), as_of) {
            CacheLookup::Found(_) => None,
            CacheLookup::Missing(offer) => offer,
        }
    }

    fn add(cache: &RecordCache, number: u64, as_of: AsOf, value: &[u8]) {
        if let Some(offer) = offer(cache, number, as_of) {
            cache.add(&offer, value, || 100);
        }
    }

    #[test]
    fn a_record_is_cached_when_it_was_missed_twice() {
        let cache = RecordCache::new(1 << 20);
        assert!(matches!(cache.lookup(&key(1), AsOf::Latest), CacheLookup::Missing(None)));
        assert!(matches!(cache.lookup(&key(1), AsOf::Latest), CacheLookup::Missing(Some(_))));
        assert!(matches!(cache.lookup(b"another key", AsOf::Latest), CacheLookup::Missing(None)));
    }

    #[test]
    fn a_look_up_does_not_wait_for_a_set_in_use() {
        let cache = RecordCache::new(1 << 20);
        add(&cache, 1, AsOf::Latest, b"one");
        let place = cache.place(&key(1)).unwrap();
        let in_use = cache.sets[place.set].0.lock();
        for _ in 0..2 {
            let lookup = cache.lookup(&key(1), AsOf::Latest);
            assert!(matches!(lookup, CacheLookup::Missing(None)), "the engine has it");
        }
        drop(in_use);
        assert_eq!(now(&cache, 1).as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn a_snapshot_is_served_by_entries_read_before_it() {
        let cache = RecordCache::new(1 << 20);
        add(&cache, 1, AsOf::Snapshot(10, 12), b"one");
        assert_eq!(now(&cache, 1).as_deref(), Some(&b"one"[..]));
        let found = |as_of| matches!(cache.lookup(&key(1), as_of), CacheLookup::Found(_));
        assert!(found(AsOf::Snapshot(12, 15)));
        assert!(!found(AsOf::Snapshot(11, 15)), "it may be older than what was read");
    }

    #[test]
    fn nothing_is_added_during_a_commit_or_from_before_it() {
        let cache = RecordCache::new(1 << 20);
        let early = offer(&cache, 1, AsOf::Snapshot(10, 10));
        let latest = offer(&cache, 1, AsOf::Latest);
        add(&cache, 2, AsOf::Snapshot(10, 10), b"two");
        let (one, two) = (key(1), key(2));
        let invalidation = cache.invalidate([&one[..], &two[..]].into_iter());
        assert_eq!(now(&cache, 2), None, "taken out before it is written");
        assert!(offer(&cache, 2, AsOf::Latest).is_none());
        cache.add(early.as_ref().unwrap(), b"old", || 0);
        assert_eq!(now(&cache, 1), None);
        invalidation.finish(20);
        cache.add(early.as_ref().unwrap(), b"old", || 0);
        cache.add(latest.as_ref().unwrap(), b"old", || 20);
        assert_eq!(now(&cache, 1), None);
        add(&cache, 1, AsOf::Snapshot(20, 21), b"new");
        assert_eq!(now(&cache, 1).as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn small_records_fill_a_set() {
        let cache = RecordCache::new(SET_BYTES);
        for number in 0..1_000_u64 {
            add(&cache, number, AsOf::Latest, &number.to_be_bytes());
        }
        let found: Vec<u64> = (0..1_000).filter(|number| now(&cache, *number).is_some()).collect();
        assert_eq!(found.len(), SET_ENTRIES);
        for number in &found {
            assert_eq!(now(&cache, *number), Some(number.to_be_bytes().to_vec()));
        }
        // Whatever is removed, the others are still found.
        let (gone, left) = found.split_at(30);
        let gone: Vec<_> = gone.iter().map(|number| key(*number)).collect();
        cache.invalidate(gone.iter().map(Vec::as_slice)).finish(200);
        let still = left.iter().filter(|number| now(&cache, **number).is_some()).count();
        assert_eq!((still, cache.bytes()), (left.len(), left.len() * (8 + ENTRY_BYTES)));
    }

    #[test]
    fn it_takes_no_more_memory_than_it_was_given() {
        let cache = RecordCache::new(1 << 20);
        for number in 0..5_000 {
            add(&cache, number, AsOf::Latest, &[1; 1000]);
            // An entry in constant use stays.
            if number >= 8 {
                assert!(now(&cache, 3).is_some(), "after {number}");
            }
        }
        assert!((700_000..=1 << 20).contains(&cache.bytes()), "{}", cache.bytes());
        let written: Vec<_> = (0..5_000).map(key).collect();
        cache.invalidate(written.iter().map(Vec::as_slice)).finish(200);
        assert_eq!(cache.bytes(), 0);
        add(&cache, 1, AsOf::Latest, &vec![1; MAX_VALUE + 1]);
        assert_eq!(now(&cache, 1), None, "a large value displaces nothing");
    }
}

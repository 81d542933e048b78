//! Write-conflict detection: snapshot isolation for engines that have snapshots and atomic batches
//! but no transactions.
//!
//! The tracker maps the hash of a key to its owner (the transaction that wrote it and has not
//! ended) and to the number of the last commit that wrote it. First writer wins: a claim fails when
//! another transaction owns the key, or when the key's last commit number is greater than the
//! number at which the claiming transaction began. Two keys with the same hash conflict falsely;
//! the transaction body is then run again.
//!
//! # Why no conflict is missed
//!
//! The order of steps is the whole proof.
//!
//! * Begin: (B1) read the commit counter as `c` and register it as active, under one mutex; (B2)
//!   take the snapshot.
//! * Write: (W) claim the key under its shard's mutex.
//! * Commit: (C1) write the batch to the engine; (C2) take the next number `n`; (C3) leave the
//!   active ones; (C4) for each key, under its shard's mutex, give up ownership and note `n`.
//!
//! Let T commit key k, and let X claim k with a snapshot that lacks T's write, so B2 of X came
//! before C1 of T.
//!
//! 1. X claims while T owns k: X fails. T claims while X owns k: T fails. Otherwise X claims after
//!    C4 of T.
//! 2. B1 of X came before B2 of X, before C1 of T, before C2 of T: so `c < n`.
//! 3. At C3 and C4 of T, X was registered (B1 came before) and has not ended (it claims later). So
//!    the oldest active number is at most `c < n`, C4 keeps `n` instead of forgetting the key, and
//!    X finds `n > c`: it fails.
//!
//! False conflicts are possible: a transaction that begins between C1 and C2 sees T's write in its
//! snapshot and still fails on k. That window is microseconds wide.
//!
//! # Why memory stays small
//!
//! A number `n` is needed only by active transactions with `c < n`; later ones begin at `n` or
//! above, or take their snapshot after the check that found them missing, hence after C1. With
//! short transactions C4 usually drops the entry at once. Entries that it keeps go into a queue per
//! shard, and each visit to the shard prunes those that no active transaction needs. A transaction
//! that stays open during many writes would still make the queues grow, so they are bounded: beyond
//! [`REMEMBERED_MAX`] keys the oldest are dropped, and transactions that began before them fail
//! with [`KvError::TooOld`].
//!
//! No mutex here is held over IO, and none while taking another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use crate::key_hash::{HashedKeys, key_hash};
use crate::{Guard, Keyspace, KvError, KvResult};

/// Most keys whose last commit is remembered for old transactions; about 64 bytes each.
pub const REMEMBERED_MAX: usize = 1 << 20;

const SHARDS: usize = 64;
/// The owner of an unowned key.
const NO_OWNER: u64 = 0;
/// Queue entries that one visit to a shard prunes at most, so that no single write pays for a long
/// queue.
const PRUNED_PER_VISIT: usize = 4;

/// The state shared by the transactions of an engine.
pub struct ConflictTracker {
    shards: Box<[Shard]>,
    active: Mutex<Active>,
    /// The smallest number at which an active transaction began; all ones when there is none.
    oldest: AtomicU64,
    committed: AtomicU64,
    next_owner: AtomicU64,
    remembered: AtomicUsize,
    shard_max: usize,
}

/// Aligned, so that neighbours do not share a cache line.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    map: HashMap<u64, Key, HashedKeys>,
    /// (commit number, key) of entries that only old transactions need; nearly ascending.
    remembered: VecDeque<(u64, u64)>,
    /// Entries of commits up to this number may have been dropped while still needed.
    floor: u64,
}

#[derive(Default)]
struct Key {
    owner: u64,
    last_commit: u64,
}

impl ConflictTracker {
    /// A tracker without commits.
    pub fn new() -> Arc<ConflictTracker> {
        ConflictTracker::with_limit(REMEMBERED_MAX)
    }

    fn with_limit(remembered_max: usize) -> Arc<ConflictTracker> {
        Arc::new(ConflictTracker {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            active: Mutex::default(),
            oldest: AtomicU64::new(u64::MAX),
            committed: AtomicU64::new(0),
            next_owner: AtomicU64::new(NO_OWNER + 1),
            remembered: AtomicUsize::new(0),
            shard_max: remembered_max / SHARDS,
        })
    }

    /// Step B1. The caller must take the engine's snapshot after this call.
    pub fn begin(self: &Arc<Self>) -> Claims {
        let begun_at = {
            let mut active = self.active.lock();
            let begun_at = self.committed.load(SeqCst);
            active.enter(begun_at);
            self.oldest.store(active.oldest(), SeqCst);
            begun_at
        };
        let owner = self.next_owner.fetch_add(1, SeqCst);
        Claims { tracker: Arc::clone(self), owner, begun_at, held: Vec::new(), ended: false }
    }

    /// Keys that are owned or remembered now; for tests and statistics.
    pub fn tracked_keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().map.len()).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<Keys> {
        // Not the highest or lowest bits: the map inside the shard uses those.
        &self.shards[(hash >> 40) as usize % SHARDS].0
    }

    fn claim(&self, owner: u64, begun_at: u64, hash: u64) -> KvResult<Claim> {
        let mut keys = self.shard(hash).lock();
        self.prune(&mut keys, PRUNED_PER_VISIT);
        if begun_at < keys.floor {
            return Err(KvError::TooOld);
        }
        let key = keys.map.entry(hash).or_default();
        if key.owner == owner {
            return Ok(Claim::Repeated);
        }
        if key.owner != NO_OWNER || key.last_commit > begun_at {
            return Err(KvError::Conflict);
        }
        key.owner = owner;
        Ok(Claim::First)
    }

    /// Step C3.
    fn leave(&self, begun_at: u64) {
        let mut active = self.active.lock();
        active.leave(begun_at);
        self.oldest.store(active.oldest(), SeqCst);
    }

    /// Step C4 for one key; without a number after a rollback.
    fn release(&self, hash: u64, number: Option<u64>) {
        let mut keys = self.shard(hash).lock();
        self.prune(&mut keys, PRUNED_PER_VISIT);
        let Some(key) = keys.map.get_mut(&hash) else {
            unreachable!("an owned key stays in the map until its owner releases it")
        };
        key.owner = NO_OWNER;
        key.last_commit = number.unwrap_or(key.last_commit);
        let last_commit = key.last_commit;
        if last_commit <= self.oldest.load(SeqCst) {
            keys.map.remove(&hash);
            return;
        }
        keys.remembered.push_back((last_commit, hash));
        self.remembered.fetch_add(1, SeqCst);
        if keys.remembered.len() > self.shard_max {
            let (number, hash) = keys.remembered.pop_front().unwrap_or_default();
            self.remembered.fetch_sub(1, SeqCst);
            keys.floor = keys.floor.max(number);
            keys.forget(number, hash);
        }
    }

    fn prune(&self, keys: &mut Keys, max: usize) {
        if keys.remembered.is_empty() {
            return;
        }
        let oldest = self.oldest.load(SeqCst);
        for _ in 0..max {
            match keys.remembered.front() {
                Some(&(number, hash)) if number <= oldest => {
                    keys.remembered.pop_front();
                    self.remembered.fetch_sub(1, SeqCst);
                    keys.forget(number, hash);
                }
                _ => break,
            }
        }
        if keys.remembered.is_empty() && keys.map.capacity() > 1024 {
            keys.remembered.shrink_to_fit();
            keys.map.shrink_to_fit();
        }
    }

    /// Prunes every shard once no transaction is active, so that an idle engine retains nothing.
    fn prune_idle(&self) {
        if self.remembered.load(SeqCst) > 0 && self.oldest.load(SeqCst) == u64::MAX {
            for shard in &self.shards {
                self.prune(&mut shard.0.lock(), usize::MAX);
            }
        }
    }
}

impl Keys {
    fn forget(&mut self, number: u64, hash: u64) {
        if self.map.get(&hash).is_some_and(|key| key.owner == NO_OWNER && key.last_commit == number)
        {
            self.map.remove(&hash);
        }
    }
}

enum Claim {
    First,
    Repeated,
}

/// The claims of one transaction. Dropping them rolls back.
pub struct Claims {
    tracker: Arc<ConflictTracker>,
    owner: u64,
    begun_at: u64,
    held: Vec<u64>,
    ended: bool,
}

impl Claims {
    /// Step W, with the hash from [`key_hash`].
    pub fn claim(&mut self, hash: u64) -> KvResult<()> {
        if let Claim::First = self.tracker.claim(self.owner, self.begun_at, hash)? {
            self.held.push(hash);
        }
        Ok(())
    }

    /// Steps C2 to C4. Call it after the engine has applied the batch, and also when the outcome is
    /// unknown.
    pub fn publish(mut self) {
        // A transaction without claims publishes no number, because it protects no key.
        let number =
            (!self.held.is_empty()).then(|| self.tracker.committed.fetch_add(1, SeqCst) + 1);
        self.end(number);
    }

    fn end(&mut self, number: Option<u64>) {
        self.ended = true;
        self.tracker.leave(self.begun_at);
        for hash in self.held.drain(..) {
            self.tracker.release(hash, number);
        }
        self.tracker.prune_idle();
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if !self.ended {
            self.end(None);
        }
    }
}

/// The numbers at which active transactions began, with how many began at each; ascending, because
/// a number is read and entered under one mutex.
#[derive(Default)]
struct Active {
    begun: VecDeque<(u64, u32)>,
    /// How many entries have a count of zero; they follow an older one that is still active.
    gone: usize,
}

impl Active {
    fn enter(&mut self, begun_at: u64) {
        match self.begun.back_mut() {
            Some((last, count)) if *last == begun_at => {
                self.gone -= usize::from(*count == 0);
                *count += 1;
            }
            _ => self.begun.push_back((begun_at, 1)),
        }
    }

    fn leave(&mut self, begun_at: u64) {
        let at = self.begun.partition_point(|(number, _)| *number < begun_at);
        let count = &mut self.begun[at].1;
        *count -= 1;
        self.gone += usize::from(*count == 0);
        while let Some((_, 0)) = self.begun.front() {
            self.begun.pop_front();
            self.gone -= 1;
        }
        if self.gone > 64 && self.gone > self.begun.len() / 2 {
            self.begun.retain(|(_, count)| *count > 0);
            self.gone = 0;
        }
    }

    fn oldest(&self) -> u64 {
        self.begun.front().map_or(u64::MAX, |(number, _)| *number)
    }
}

/// Claims a key for a write. `claims` is `None` in a transaction that only reads.
///
/// # Errors
/// `Invalid` in a transaction that only reads, `Conflict` for a key that another one has written.
#[inline]
pub fn claim(
    claims: &mut Option<Claims>,
    keyspace: Keyspace,
    key: &[u8],
    guard: Guard,
) -> KvResult<()> {
    let Some(claims) = claims else {
        return Err(KvError::Invalid("a write in a read-only transaction".into()));
    };
    match guard {
        Guard::Checked => claims.claim(key_hash(keyspace, key)),
        Guard::Derived => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_writer_wins_and_a_rollback_gives_up_the_key() {
        let tracker = ConflictTracker::new();
        let (mut a, mut b) = (tracker.begin(), tracker.begin());
        a.claim(1).unwrap();
        a.claim(1).unwrap();
        assert_eq!(b.claim(1), Err(KvError::Conflict));
        drop(a);
        b.claim(1).unwrap();
        b.publish();
        assert_eq!(tracker.tracked_keys(), 0);
    }

    #[test]
    fn a_commit_is_remembered_while_an_older_transaction_lives() {
        let tracker = ConflictTracker::new();
        let (mut old, mut writer) = (tracker.begin(), tracker.begin());
        writer.claim(7).unwrap();
        writer.publish();
        tracker.begin().claim(7).unwrap();
        assert_eq!(old.claim(7), Err(KvError::Conflict));
        assert_eq!(tracker.tracked_keys(), 1);
        drop(old);
        assert_eq!(tracker.tracked_keys(), 0);
    }

    #[test]
    fn a_long_transaction_does_not_make_memory_grow() {
        let tracker = ConflictTracker::with_limit(SHARDS * 4);
        let mut old = tracker.begin();
        for n in 0..10_000_u64 {
            let mut writer = tracker.begin();
            writer.claim(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).unwrap();
            writer.publish();
        }
        assert!(tracker.tracked_keys() <= SHARDS * 4, "{}", tracker.tracked_keys());
        assert!(tracker.active.lock().begun.len() < 256);
        assert_eq!(old.claim(0), Err(KvError::TooOld), "key 0 was forgotten");
        drop(old);
        assert_eq!(tracker.tracked_keys(), 0);
        assert_eq!(tracker.remembered.load(SeqCst), 0);
    }
}

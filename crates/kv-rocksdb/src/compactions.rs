//! What writes and compactions have to do with each other: waiting for a compaction that needs the
//! disk's room, not waiting for one that has none, and compactions that fail.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::write_buffer::WriteBuffer;
use mayfly_kv::{Keyspace, KvError, KvResult};
use mayfly_work::current;
use rocksdb::properties;

use crate::counts::Counts;
use crate::options;
use crate::room::{self, CompactionRoom};
use crate::store::Store;

/// How often a commit checks whether compactions have finished: for two seconds in total.
const MAX_STALL_POLLS: u32 = 1000;
/// The interval between two of these checks.
const STALL_POLL: Duration = Duration::from_millis(2);
/// How often compactions may fail while a commit waits for them. RocksDB tries again every second.
const FAILED_AGAIN: u64 = 1;
/// Numbers of level-0 files at which RocksDB slows writes down, and at which it stops them: its
/// defaults.
const STALLING_FILES: (&str, &str) = ("20", "36");
const NEVER_STALLING_FILES: (&str, &str) = ("100000", "100000");

/// What is known of an open store's compactions.
pub(crate) struct CompactionWatch {
    /// The count of background errors at the last check.
    seen_errors: AtomicU64,
    /// The number of checks in a row that found new ones.
    failed_checks: AtomicU8,
    stalls_writes: AtomicBool,
}

impl Default for CompactionWatch {
    fn default() -> CompactionWatch {
        CompactionWatch {
            seen_errors: AtomicU64::new(0),
            failed_checks: AtomicU8::new(0),
            stalls_writes: AtomicBool::new(true),
        }
    }
}

/// The wait of a commit for compactions.
pub(crate) struct Stall<'s> {
    counts: &'s Counts,
    clock: &'s SystemClock,
    since: i64,
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.counts.stalled(self.clock.monotonic_micros() - self.since);
    }
}

impl Store {
    /// Notes whether compactions have room again after one has failed.
    pub(crate) fn look_at_compactions(&self) {
        if self.room.compactions_lack_room() && self.room.fits(self.compaction_bytes()) {
            self.room.note_compactions(CompactionRoom::Enough);
        }
    }

    /// Waits, for a limited time, while the compaction of level 0 would not fit on the disk.
    ///
    /// # Errors
    /// [`KvError::Unavailable`] if a compaction failed meanwhile: if writes continued, files would
    /// accumulate in level 0 until RocksDB stops all writes, also deletions.
    pub(crate) fn let_compactions_go_first(&self) -> KvResult<()> {
        if self.room.fits(self.compaction_bytes()) {
            return Ok(());
        }
        let errors = self.background_errors();
        let _stall = self.begin_stall();
        let failed = current::wait(|| {
            for _ in 0..MAX_STALL_POLLS {
                std::thread::sleep(STALL_POLL);
                if self.room.fits(self.compaction_bytes()) {
                    return false;
                }
                if self.background_errors() > errors {
                    return true;
                }
            }
            false
        });
        if failed { Err(self.room.refuse_for_compactions()) } else { Ok(()) }
    }

    /// An estimate of the bytes that the compaction of level 0 writes.
    fn compaction_bytes(&self) -> u64 {
        let of_family = |keyspace| {
            let text = self.db.property_value_cf(&self.family(keyspace), properties::LEVELSTATS);
            level_0_and_base(&text.ok().flatten().unwrap_or_default())
        };
        Keyspace::ALL.map(of_family).iter().sum()
    }

    /// The number of failed flushes and compactions.
    pub(crate) fn background_errors(&self) -> u64 {
        let errors = self.db.property_int_value(properties::BACKGROUND_ERRORS);
        errors.ok().flatten().unwrap_or(0)
    }

    /// Waits briefly for compactions that a commit must wait for. `errors` is the number of failed
    /// ones when the wait began. Deletions do not wait for compactions that fail because the disk
    /// is full, because only deletions make room. If they have to wait all the same, for a flush
    /// that fails, the store is reopened, as it is for other commits.
    pub(crate) fn wait_for_compactions(&self, errors: u64, buffer: &WriteBuffer) -> KvResult<()> {
        let failed = self.background_errors().saturating_sub(errors);
        let may_pass =
            self.compactions.stalls_writes.load(Ordering::Relaxed) && !room::adds(buffer);
        if failed > 0 && may_pass && !self.room.fits(self.compaction_bytes()) {
            self.room.note_compactions(CompactionRoom::Lacking);
            self.stall_writes(false);
        } else if failed > FAILED_AGAIN {
            self.health.note_failed_compactions();
            let text = "the disk is full: writes wait for compactions, which have no room";
            return Err(KvError::Unavailable(text.to_owned()));
        }
        // The commit builds its batch again, and has to include the mark of the last sync again.
        self.repeat_mark();
        current::wait(|| std::thread::sleep(STALL_POLL));
        Ok(())
    }

    /// Counts a commit that waits for compactions, with the time until the value is dropped.
    pub(crate) fn begin_stall(&self) -> Stall<'_> {
        let clock = self.health.clock();
        Stall { counts: &self.counts, clock, since: clock.monotonic_micros() }
    }

    /// Whether compactions have failed since the last check. If they fail repeatedly, the store is
    /// marked for reopening.
    pub(crate) fn check_background_errors(&self) -> bool {
        let errors = self.background_errors();
        let fails = self.compactions.seen_errors.swap(errors, Ordering::Relaxed) < errors;
        let looks = match fails {
            true => self.compactions.failed_checks.fetch_add(1, Ordering::Relaxed),
            false => self.compactions.failed_checks.swap(0, Ordering::Relaxed),
        };
        if fails && looks > 0 {
            self.health.note_failed_compactions();
        }
        fails
    }

    /// Sets whether writes wait for compactions. They must not while only deletions give
    /// compactions the room that they need. Then files with garbage are also rewritten at once.
    pub(crate) fn stall_writes(&self, stall: bool) {
        if self.compactions.stalls_writes.swap(stall, Ordering::Relaxed) == stall {
            return;
        }
        let (slowdown, stop) = if stall { STALLING_FILES } else { NEVER_STALLING_FILES };
        let delay = if stall { options::RECLAIM_DELAY } else { "0" };
        let values = [
            ("level0_slowdown_writes_trigger", slowdown),
            ("level0_stop_writes_trigger", stop),
            (options::DELAY_OPTION, delay),
        ];
        for keyspace in Keyspace::ALL {
            let values = if options::is_rewritten_late(keyspace) { &values } else { &values[..2] };
            if let Err(error) = self.db.set_options_cf(&self.family(keyspace), values) {
                self.compactions.stalls_writes.store(!stall, Ordering::Relaxed);
                tracing::warn!(%error, "cannot change whether writes wait for compactions");
            }
        }
    }
}

/// Bytes of level 0, and of the level that it is compacted into, from lines of level, files and
/// megabytes.
fn level_0_and_base(text: &str) -> u64 {
    let mut levels = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let level = words.next()?.parse::<u32>().ok()?;
        Some((level, words.nth(1)?.parse::<u64>().ok()? << 20))
    });
    match levels.next() {
        Some((0, bytes @ 1..)) => {
            bytes + levels.map(|(_, bytes)| bytes).find(|bytes| *bytes > 0).unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::level_0_and_base;

    #[test]
    fn the_compaction_of_level_0_is_estimated() {
        let text =
            "Level Files Size(MB)\n--------------------\n  0 FIRST\n  1 0 0\n  5 3 7\n  6 9 90\n";
        let of = |first: &str| level_0_and_base(&text.replace("FIRST", first));
        assert_eq!(of("4        12"), 19 << 20);
        assert_eq!((of("0 0"), of("x"), level_0_and_base("")), (0, 0, 0));
    }
}

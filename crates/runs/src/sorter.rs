//! External merge sort.
//!
//! 1. Entries are collected in an arena.
//! 2. When the owner calls [`Sorter::spill`], the entries in memory are sorted and written to a
//!    run, which is a file.
//! 3. When a level has [`MAX_RUNS`] runs, they are merged into one of the next level, so that the
//!    number of open files stays small.
//! 4. At the end all runs and the entries in memory are merged.
//!
//! Equal keys stay in the order of insertion: runs of a higher level are older than those of a
//! lower one.
//!
//! A sorter can be limited to the first `keep` entries (top-k). It then drops the others
//! periodically, and from then on ignores new entries that come after all of the kept ones.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use mayfly_base::Result;
use mayfly_work::scratch::FileOwner;

use crate::arena::{Arena, HEADER};
use crate::file::{ScratchFile, finish, write_entry, writer};
use crate::{Check, Merge, Spilled};

/// Most runs of one level, and of the last merge: each is an open file.
const MAX_RUNS: usize = if cfg!(test) { 4 } else { 64 };
/// Entries between two calls of the check.
const CHECK_EVERY: u64 = 4096;
/// A top-k sorter drops entries when it has this many more than twice `keep`.
const EXTRA_ENTRIES: usize = 1024;

/// Collects entries in any order.
#[derive(Debug, Default)]
pub struct Sorter {
    memory: Arena,
    /// Runs by level, the oldest first within each.
    levels: Vec<Vec<ScratchFile>>,
    folder: Option<PathBuf>,
    owner: FileOwner,
    /// Top-k: the number of entries to keep.
    keep: Option<usize>,
    /// Top-k: `keep` entries are known that do not come after this key.
    worst: Option<Vec<u8>>,
    len: u64,
    spilled: Spilled,
}

impl Sorter {
    /// An empty sorter.
    pub fn new() -> Sorter {
        Sorter::default()
    }

    /// An empty top-k sorter for the first `keep` entries. The merge may return slightly more.
    pub fn first(keep: usize) -> Sorter {
        Sorter { keep: Some(keep), ..Sorter::default() }
    }

    /// An empty sorter whose files belong to the server, so that the limit of an operation does not
    /// apply to them.
    pub fn of_server() -> Sorter {
        Sorter { owner: FileOwner::Server, ..Sorter::default() }
    }

    /// Number of entries pushed, including dropped ones.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no entry was pushed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of the sorter in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.memory_bytes()
    }

    /// Whether entries were spilled to files.
    pub fn is_in_files(&self) -> bool {
        self.folder.is_some()
    }

    /// The amount written to files.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_parts(key, &[value]);
    }

    /// Adds an entry whose value is the concatenation of parts.
    pub fn push_parts(&mut self, key: &[u8], value: &[&[u8]]) {
        self.len += 1;
        if self.worst.as_ref().is_some_and(|worst| key >= worst.as_slice()) {
            return;
        }
        self.memory.push(key, value);
        if let Some(keep) = self.keep
            && self.memory.len() >= keep.saturating_mul(2).saturating_add(EXTRA_ENTRIES)
        {
            self.cut_to(keep, usize::MAX);
        }
    }

    /// Whether an entry with this key can be among the first `keep`. Others need not be pushed.
    pub fn wants(&self, key: &[u8]) -> bool {
        self.worst.as_ref().is_none_or(|worst| key < worst.as_slice())
    }

    /// Drops entries in memory that are not among the first `keep`.
    pub fn cut(&mut self) {
        if let Some(keep) = self.keep {
            self.cut_to(keep, 0);
        }
    }

    fn cut_to(&mut self, keep: usize, unused: usize) {
        if let Some(worst) = self.memory.cut(keep, unused)
            && self.worst.as_ref().is_none_or(|known| worst < known.as_slice())
        {
            self.worst = Some(worst.to_vec());
        }
    }

    /// Writes the entries in memory to a run in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed, errors of the check.
    pub fn spill(&mut self, folder: &Path, check: &Check<'_>) -> Result<()> {
        self.cut();
        if self.memory.len() == 0 {
            return Ok(());
        }
        check()?;
        self.memory.sort();
        let mut run = Run::of(self.owner, folder)?;
        for (key, value) in self.memory.entries() {
            run.push(key, value, check)?;
        }
        self.memory.clear();
        self.put(run, folder, check)
    }

    /// Adds a run whose entries count as newer than all others.
    ///
    /// # Errors
    /// Errors of [`Sorter::spill`].
    pub fn push_run(&mut self, run: Run, folder: &Path, check: &Check<'_>) -> Result<()> {
        self.spill(folder, check)?;
        self.len += run.spilled.records;
        self.put(run, folder, check)
    }

    fn put(&mut self, run: Run, folder: &Path, check: &Check<'_>) -> Result<()> {
        self.folder.get_or_insert_with(|| folder.to_owned());
        self.spilled.add(run.spilled);
        let mut run = finish(run.out)?;
        for level in 0.. {
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(run);
            if self.levels[level].len() < MAX_RUNS {
                break;
            }
            let runs = std::mem::take(&mut self.levels[level]);
            run = self.merged(runs, folder, check)?;
        }
        Ok(())
    }

    /// Returns all entries in order.
    ///
    /// # Errors
    /// Errors of [`Sorter::spill`].
    pub fn merge(mut self, check: &Check<'_>) -> Result<Merge> {
        self.cut();
        let levels = std::mem::take(&mut self.levels);
        let mut runs: Vec<ScratchFile> = levels.into_iter().rev().flatten().collect();
        while let Some(folder) = self.folder.as_deref()
            && runs.len() > MAX_RUNS
        {
            // Newer runs are smaller.
            let count = (runs.len() - MAX_RUNS + 1).clamp(2, MAX_RUNS);
            let last = runs.split_off(runs.len() - count);
            runs.push(self.merged(last, folder, check)?);
        }
        Merge::of(runs, self.memory)
    }

    /// Merges these runs into one, limited to `keep` entries if set.
    fn merged(
        &self,
        runs: Vec<ScratchFile>,
        folder: &Path,
        check: &Check<'_>,
    ) -> Result<ScratchFile> {
        let mut merge = Merge::of(runs, Arena::default())?;
        let mut out = writer(self.owner, folder)?;
        let (mut number, most) = (0u64, self.keep.map_or(u64::MAX, |keep| keep as u64));
        while number < most
            && let Some((key, value)) = merge.next()?
        {
            if number.is_multiple_of(CHECK_EVERY) {
                check()?;
            }
            number += 1;
            write_entry(&mut out, key, value)?;
        }
        finish(out)
    }
}

/// A run being written, for an owner whose entries are sorted already.
#[derive(Debug)]
pub struct Run {
    out: BufWriter<ScratchFile>,
    spilled: Spilled,
}

impl Run {
    /// An empty run in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn new(folder: &Path) -> Result<Run> {
        Run::of(FileOwner::Operation, folder)
    }

    fn of(owner: FileOwner, folder: &Path) -> Result<Run> {
        let spilled = Spilled { spills: 1, ..Spilled::default() };
        Ok(Run { out: writer(owner, folder)?, spilled })
    }

    /// Appends an entry, whose key must not be less than the previous one.
    ///
    /// # Errors
    /// Errors of [`Sorter::spill`].
    pub fn push(&mut self, key: &[u8], value: &[u8], check: &Check<'_>) -> Result<()> {
        self.spilled.records += 1;
        if self.spilled.records.is_multiple_of(CHECK_EVERY) {
            check()?;
        }
        self.spilled.bytes += (key.len() + value.len()) as u64;
        self.spilled.file_bytes += (HEADER + key.len() + value.len()) as u64;
        write_entry(&mut self.out, key, value)
    }

    /// Finishes writing: the file, and the amount written.
    pub(crate) fn finish(self) -> Result<(ScratchFile, Spilled)> {
        Ok((finish(self.out)?, self.spilled))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use mayfly_base::{Error, ErrorCode};
    use proptest::prelude::*;

    use super::*;

    fn folder() -> PathBuf {
        std::env::temp_dir()
    }

    /// Sorts with a sorter that spills whenever it has more than `budget` bytes.
    fn sorted(
        budget: usize,
        keep: Option<usize>,
        entries: &[(Vec<u8>, u32)],
    ) -> Vec<(Vec<u8>, u32)> {
        let mut sorter = keep.map_or_else(Sorter::new, Sorter::first);
        for (key, value) in entries {
            let value = value.to_le_bytes();
            let (first, second) = value.split_at(2);
            sorter.push_parts(key, &[first, second]);
            if sorter.memory_bytes() >= budget {
                sorter.spill(&folder(), &|| Ok(())).unwrap();
            }
        }
        assert_eq!(sorter.len(), entries.len() as u64);
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        let mut out = Vec::new();
        loop {
            let over = merge.is_over();
            let Some((key, value)) = merge.next().unwrap() else {
                assert!(over);
                return out;
            };
            assert!(!over);
            out.push((key.to_vec(), u32::from_le_bytes(value.try_into().unwrap())));
        }
    }

    proptest! {
        #[test]
        fn entries_are_sorted_and_equal_ones_keep_their_order(
            keys in prop::collection::vec(prop::collection::vec(0..3u8, 0..20), 0..300),
            budget in 1..20_000usize,
        ) {
            let entries: Vec<_> = keys.into_iter().zip(0..).collect();
            let mut expected = entries.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!(&sorted(budget, None, &entries), &expected);
            prop_assert_eq!(&sorted(usize::MAX, None, &entries), &expected);
        }

        #[test]
        fn the_first_entries_are_those_of_all(
            keys in prop::collection::vec(prop::collection::vec(0..4u8, 0..4), 0..4000),
            keep in 1..60usize,
            budget in 1..20_000usize,
        ) {
            let entries: Vec<_> = keys.into_iter().zip(0..).collect();
            let mut expected = entries.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            expected.truncate(keep);
            for budget in [budget, usize::MAX] {
                let mut found = sorted(budget, Some(keep), &entries);
                found.truncate(keep);
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn large_values_are_returned_unchanged() {
        let mut sorter = Sorter::new();
        for n in 0..50u8 {
            sorter.push(&[50 - n], &vec![n; usize::from(n) * 10_000]);
            if n % 7 == 0 {
                sorter.spill(&folder(), &|| Ok(())).unwrap();
            }
        }
        let spilled = sorter.spilled();
        assert_eq!((spilled.spills, spilled.records), (8, 50));
        assert_eq!(spilled.file_bytes, spilled.bytes + 8 * 50);
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        for n in (0..50u8).rev() {
            let (key, value) = merge.next().unwrap().unwrap();
            assert_eq!((key, value), (&[50 - n][..], &vec![n; usize::from(n) * 10_000][..]));
        }
        assert!(merge.is_over() && merge.next().unwrap().is_none());
    }

    #[test]
    fn pushed_runs_come_after_earlier_entries() {
        let mut sorter = Sorter::new();
        sorter.push(b"b", b"first");
        let mut run = Run::new(&folder()).unwrap();
        for key in [b"a", b"b", b"c"] {
            run.push(key, b"then", &|| Ok(())).unwrap();
        }
        sorter.push_run(run, &folder(), &|| Ok(())).unwrap();
        sorter.push(b"b", b"last");
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = merge.next().unwrap() {
            found.push([key, value].concat());
        }
        assert_eq!(found, [&b"athen"[..], b"bfirst", b"bthen", b"blast", b"cthen"]);
    }

    #[test]
    fn a_merge_continues_after_its_memory_was_spilled() {
        let mut sorter = Sorter::new();
        sorter.push(b"b", b"first");
        sorter.spill(&folder(), &|| Ok(())).unwrap();
        for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"b", b"4")] {
            sorter.push(key, value);
        }
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        let mut found = vec![merge.next().unwrap().unwrap().1.to_vec()];
        let spilled = merge.spill(&folder(), &|| Ok(())).unwrap();
        assert_eq!((spilled.spills, spilled.records), (1, 3), "the first one was returned");
        assert_eq!(merge.spill(&folder(), &|| Ok(())).unwrap(), Spilled::default());
        while let Some((_, value)) = merge.next().unwrap() {
            found.push(value.to_vec());
        }
        assert_eq!(found, [&b"1"[..], b"first", b"2", b"4", b"3"]);
        assert!(merge.is_over());
    }

    #[test]
    fn dropped_entries_take_no_memory() {
        let mut sorter = Sorter::first(10);
        for n in (0..100_000u32).rev() {
            sorter.push(&n.to_be_bytes(), &[7; 100]);
            assert!(sorter.memory_bytes() < 500_000, "{}", sorter.memory_bytes());
        }
        sorter.cut();
        assert!(sorter.wants(&8u32.to_be_bytes()) && !sorter.wants(&9u32.to_be_bytes()));
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        for n in 0..10u32 {
            assert_eq!(merge.next().unwrap().unwrap().0, n.to_be_bytes());
        }
    }

    #[test]
    fn an_error_of_the_check_ends_a_merge() {
        let asked = Cell::new(0);
        let check = || {
            asked.set(asked.get() + 1);
            match asked.get() {
                // Four runs are written, then they are merged.
                6.. => Err(Error::new(ErrorCode::Interrupted, "killed")),
                _ => Ok(()),
            }
        };
        let mut sorter = Sorter::new();
        let stopped = (0..100u8).find_map(|n| {
            sorter.push(&[n], &[]);
            sorter.spill(&folder(), &check).err()
        });
        assert_eq!(stopped.unwrap().code(), ErrorCode::Interrupted);
    }
}

//! Power cuts: computes what a folder contains after one, from a copy of the folder and a journal
//! of the calls since the copy (`tests/torture/files.c`).
//!
//! The model: a sync of a file makes earlier writes durable, and a sync of a folder the names in
//! it. Everything else may be lost in a power cut:
//!
//! * each page of 4096 bytes of a file has its content at the last sync, or after any of the later
//!   writes. The length is any between the length at the last sync and the present one; missing
//!   bytes below it are zeros. Writes that a *failed* sync should have made durable may be lost
//!   even if a later sync succeeds.
//! * each creation, rename, link and removal of a name happened or did not, independently of the
//!   others; a rename is atomic. File systems with a journal lose less: ext4 and XFS apply changes
//!   of names in order, and a sync of a file includes those before it. Both variants are tried.
//!
//! `sync_file_range` makes nothing durable. Writes by `mmap` are not recorded; RocksDB does none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const PAGE_BYTES: usize = 4096;
const HEAD_BYTES: usize = 32;

const OPENED: u32 = 1;
const WRITTEN: u32 = 2;
const TRUNCATED: u32 = 3;
const RENAMED: u32 = 4;
const UNLINKED: u32 = 5;
const LINKED: u32 = 6;
const MADE: u32 = 7;
const SYNC_BEGAN: u32 = 8;
const SYNC_ENDED: u32 = 9;
const SYNC_FAILED: u32 = 10;
const ZEROED: u32 = 11;

/// `O_TRUNC`, which has the same value on all supported processors.
const O_TRUNC: u64 = 0o1000;

/// Which unsynced bytes of a file survive.
#[derive(Clone, Copy, Debug)]
enum Bytes {
    Gone,
    Kept,
    /// Those written before some time.
    Cut,
    /// Each page independently.
    Torn,
}

/// A description of a power cut.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// The variant of the model, as text.
    pub(crate) what: String,
    /// The number of completed syncs.
    pub(crate) syncs: usize,
    /// The number of files with unsynced bytes.
    pub(crate) unsynced: usize,
    /// The number of unsynced changes of names.
    pub(crate) names: usize,
}

enum Change {
    Write { at: usize, bytes: std::ops::Range<usize> },
    Resize(usize),
    Zero { at: usize, length: usize },
}

/// A file, independent of its names.
#[derive(Default)]
struct Inode {
    /// The file in the copy of the folder, until it is read into `durable`.
    base: Option<PathBuf>,
    durable: Vec<u8>,
    /// Changes since the last sync.
    pending: Vec<Change>,
    /// The number of changes before the pending ones.
    applied: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(usize),
}

type Names = BTreeMap<PathBuf, Node>;

/// A change of names that no sync covers yet.
#[derive(Debug)]
struct NameChange {
    /// Its position in the journal.
    number: usize,
    remove: Option<PathBuf>,
    insert: Option<(PathBuf, Node)>,
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        if let Some(path) = &self.remove {
            names.remove(path);
        }
        if let Some((path, node)) = &self.insert {
            names.insert(path.clone(), *node);
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        let inserted = self.insert.as_ref().map(|(path, _)| path);
        [self.remove.as_ref(), inserted].into_iter().flatten().any(|it| it.parent() == Some(folder))
    }
}

enum Handle {
    File(usize),
    Folder(PathBuf),
}

struct Disk<'j> {
    journal: &'j [u8],
    inodes: Vec<Inode>,
    names: Names,
    durable: Names,
    pending: Vec<NameChange>,
    recorded: usize,
    handles: BTreeMap<u64, Handle>,
    /// For each sync under way: the number of changes of the file, and of names, before it.
    syncs: BTreeMap<u64, (usize, usize)>,
    /// Whether a sync of a file includes all earlier changes of names.
    is_ordered: bool,
    random: SmallRng,
}

/// Fills the folder `to` with what a power cut leaves of a folder that was equal to `base` when the
/// journal began.
///
/// # Errors
/// Errors of the file system, and an invalid journal.
pub(crate) fn cut_power(
    folder: &Path,
    base: &Path,
    journal: &Path,
    to: &Path,
    seed: u64,
) -> io::Result<Cut> {
    let journal = fs::read(journal).unwrap_or_default();
    let mut random = SmallRng::seed_from_u64(seed);
    let is_ordered = random.random_bool(0.5);
    let mut disk = Disk {
        journal: &journal,
        inodes: Vec::new(),
        names: Names::new(),
        durable: Names::new(),
        pending: Vec::new(),
        recorded: 0,
        handles: BTreeMap::new(),
        syncs: BTreeMap::new(),
        is_ordered,
        random,
    };
    disk.take_over(base, folder)?;
    disk.durable = disk.names.clone();
    let syncs = disk.replay()?;
    let mut cut = disk.cut(folder, to)?;
    cut.syncs = syncs;
    Ok(cut)
}

impl Disk<'_> {
    fn take_over(&mut self, from: &Path, folder: &Path) -> io::Result<()> {
        self.names.insert(folder.to_owned(), Node::Folder);
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.take_over(&entry.path(), &path)?;
            } else {
                self.inodes.push(Inode { base: Some(entry.path()), ..Inode::default() });
                self.names.insert(path, Node::File(self.inodes.len() - 1));
            }
        }
        Ok(())
    }

    fn replay(&mut self) -> io::Result<usize> {
        let journal = self.journal;
        let (mut at, mut syncs) = (0, 0);
        let word =
            |at: usize| u64::from_le_bytes(journal[at..at + 8].try_into().unwrap_or_default());
        while at + HEAD_BYTES <= journal.len() {
            let event = word(at) as u32;
            let bytes = (word(at) >> 32) as usize;
            let (file, place, length) = (word(at + 8), word(at + 16), word(at + 24) as usize);
            let data = at + HEAD_BYTES..at + HEAD_BYTES + bytes;
            at = data.end;
            // The last record of a killed process may be incomplete.
            if data.end > journal.len() {
                break;
            }
            syncs += usize::from(event == SYNC_ENDED);
            self.event(event, file, place, length, data)?;
        }
        Ok(syncs)
    }

    fn event(
        &mut self,
        event: u32,
        file: u64,
        place: u64,
        length: usize,
        data: std::ops::Range<usize>,
    ) -> io::Result<()> {
        let at = place as usize;
        match event {
            OPENED => {
                let path = self.paths(data).remove(0);
                let handle = match self.names.get(&path) {
                    Some(Node::Folder) => Handle::Folder(path),
                    Some(Node::File(inode)) => {
                        let inode = *inode;
                        if place & O_TRUNC != 0 {
                            self.change(inode, Change::Resize(0))?;
                        }
                        Handle::File(inode)
                    }
                    None => {
                        self.inodes.push(Inode::default());
                        let inode = self.inodes.len() - 1;
                        self.rename(None, Some((path, Node::File(inode))));
                        Handle::File(inode)
                    }
                };
                self.handles.insert(file, handle);
            }
            WRITTEN => self.change_of(file, Change::Write { at, bytes: data })?,
            TRUNCATED => self.change_of(file, Change::Resize(at))?,
            ZEROED => self.change_of(file, Change::Zero { at, length })?,
            RENAMED | LINKED => {
                let mut paths = self.paths(data);
                let (to, from) = (paths.pop().unwrap_or_default(), paths.remove(0));
                let Some(node @ Node::File(_)) = self.names.get(&from).copied() else {
                    return Err(io::Error::other(format!("{} is no file", from.display())));
                };
                self.rename((event == RENAMED).then_some(from), Some((to, node)));
            }
            UNLINKED => {
                let path = self.paths(data).remove(0);
                self.rename(Some(path), None);
            }
            MADE => {
                let path = self.paths(data).remove(0);
                self.rename(None, Some((path, Node::Folder)));
            }
            SYNC_BEGAN => {
                let changes = match self.handles.get(&file) {
                    Some(Handle::File(inode)) => {
                        self.inodes[*inode].applied + self.inodes[*inode].pending.len()
                    }
                    _ => 0,
                };
                self.syncs.insert(place, (changes, self.recorded));
            }
            SYNC_ENDED | SYNC_FAILED => {
                let (changes, names) = self.syncs.remove(&place).unwrap_or_default();
                self.synced(file, changes, names, event == SYNC_ENDED);
            }
            _ => return Err(io::Error::other(format!("event {event}"))),
        }
        Ok(())
    }

    fn paths(&self, data: std::ops::Range<usize>) -> Vec<PathBuf> {
        let text = String::from_utf8_lossy(&self.journal[data]);
        text.trim_end_matches('\0').split('\0').map(PathBuf::from).collect()
    }

    fn rename(&mut self, remove: Option<PathBuf>, insert: Option<(PathBuf, Node)>) {
        let change = NameChange { number: self.recorded, remove, insert };
        change.apply(&mut self.names);
        self.recorded += 1;
        self.pending.push(change);
    }

    fn change_of(&mut self, file: u64, change: Change) -> io::Result<()> {
        match self.handles.get(&file) {
            Some(Handle::File(inode)) => self.change(*inode, change),
            _ => Err(io::Error::other(format!("a write to {file}, which is not open"))),
        }
    }

    fn change(&mut self, inode: usize, change: Change) -> io::Result<()> {
        let inode = &mut self.inodes[inode];
        if let Some(base) = inode.base.take() {
            inode.durable = fs::read(base)?;
        }
        inode.pending.push(change);
        Ok(())
    }

    fn synced(&mut self, file: u64, changes: usize, names: usize, well: bool) {
        let folder = match self.handles.get(&file) {
            Some(Handle::File(inode)) => {
                // It is unknown what a failed sync has written; what it has not written is not
                // synced again.
                let is_lost = !well && self.random.random_bool(0.5);
                let inode = &mut self.inodes[*inode];
                if well || is_lost {
                    let count = changes.saturating_sub(inode.applied);
                    for change in inode.pending.drain(..count) {
                        if well {
                            apply(&mut inode.durable, &change, self.journal);
                        }
                    }
                    inode.applied = inode.applied.max(changes);
                }
                None
            }
            Some(Handle::Folder(path)) => Some(path.clone()),
            None => None,
        };
        if !well || (folder.is_none() && !self.is_ordered) {
            return;
        }
        let ordered = self.is_ordered;
        let covers = |change: &NameChange| {
            change.number < names
                && (ordered || folder.as_ref().is_some_and(|folder| change.is_in(folder)))
        };
        let (done, left) = std::mem::take(&mut self.pending).into_iter().partition(covers);
        self.pending = left;
        let done: Vec<NameChange> = done;
        done.iter().for_each(|change| change.apply(&mut self.durable));
    }

    /// Removes what a power cut loses, and writes the rest to the folder.
    fn cut(mut self, folder: &Path, to: &Path) -> io::Result<Cut> {
        let mut cut = Cut { names: self.pending.len(), ..Cut::default() };
        let kept = self.random.random_range(0..=self.pending.len());
        let mode = self.random.random_range(0..3);
        for (at, change) in self.pending.iter().enumerate() {
            let survives = match mode {
                0 => false,
                _ if self.is_ordered => at < kept,
                _ => self.random.random_bool(0.5),
            };
            if survives {
                change.apply(&mut self.durable);
            }
        }
        let modes = [Bytes::Gone, Bytes::Kept, Bytes::Cut, Bytes::Torn];
        let weights = [1, 1, 2, 4, 3];
        let chosen = self.random.random_range(0..weights.iter().sum::<i32>());
        let mut below = 0;
        let chosen = weights.iter().position(|weight| {
            below += weight;
            chosen < below
        });
        let all = chosen.and_then(|at| modes.get(at));
        cut.what = format!(
            "names {} ({mode}), bytes {}",
            if self.is_ordered { "in order" } else { "each by itself" },
            all.map_or("differ by file".into(), |mode| format!("{mode:?}"))
        );
        let mut written = BTreeSet::new();
        fs::create_dir_all(to)?;
        for (path, node) in std::mem::take(&mut self.durable) {
            let Ok(inside) = path.strip_prefix(folder) else { continue };
            let target = to.join(inside);
            // Its folder was lost.
            if !target.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match node {
                Node::Folder => fs::create_dir_all(&target)?,
                Node::File(number) => {
                    let inode = &self.inodes[number];
                    if let Some(base) = &inode.base {
                        fs::copy(base, &target)?;
                        continue;
                    }
                    cut.unsynced +=
                        usize::from(!inode.pending.is_empty() && written.insert(number));
                    let mode = all.or(modes.choose(&mut self.random)).copied();
                    let bytes = survivors(
                        inode,
                        mode.unwrap_or(Bytes::Gone),
                        self.journal,
                        &mut self.random,
                    );
                    fs::write(&target, bytes)?;
                }
            }
        }
        Ok(cut)
    }
}

fn apply(content: &mut Vec<u8>, change: &Change, journal: &[u8]) {
    match change {
        Change::Write { at, bytes } => {
            let end = at + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at..end].copy_from_slice(&journal[bytes.clone()]);
        }
        Change::Resize(length) => content.resize(*length, 0),
        Change::Zero { at, length } => {
            let end = (at + length).min(content.len());
            if *at < end {
                content[*at..end].fill(0);
            }
        }
    }
}

/// The content of a file after a power cut.
fn survivors(inode: &Inode, mode: Bytes, journal: &[u8], random: &mut SmallRng) -> Vec<u8> {
    let mut content = inode.durable.clone();
    let apply_some = |content: &mut Vec<u8>, count: usize| {
        inode.pending[..count].iter().for_each(|change| apply(content, change, journal));
    };
    match mode {
        Bytes::Gone => {}
        Bytes::Kept => apply_some(&mut content, inode.pending.len()),
        Bytes::Cut => {
            let count = random.random_range(0..=inode.pending.len());
            apply_some(&mut content, count);
            if let Some(Change::Write { at, bytes }) = inode.pending.get(count) {
                let length = random.random_range(0..=bytes.len());
                let bytes = bytes.start..bytes.start + length;
                apply(&mut content, &Change::Write { at: *at, bytes }, journal);
            }
        }
        Bytes::Torn => {
            apply_some(&mut content, inode.pending.len());
            let synced = inode.durable.len();
            let (least, most) = (synced.min(content.len()), synced.max(content.len()));
            let some = random.random_range(0..=inode.pending.len());
            let mut between = inode.durable.clone();
            apply_some(&mut between, some);
            let length = match random.random_range(0..4) {
                0 => content.len(),
                1 => random.random_range(least..=most),
                2 => (random.random_range(least..=most) / PAGE_BYTES * PAGE_BYTES).max(least),
                _ => between.len().clamp(least, most),
            };
            content.resize(length, 0);
            for start in (0..length).step_by(PAGE_BYTES) {
                let page = start..(start + PAGE_BYTES).min(length);
                let older = match random.random_range(0..3) {
                    0 => continue,
                    1 => &between,
                    _ => &inode.durable,
                };
                let has = page.start.min(older.len())..page.end.min(older.len());
                let there = has.len();
                content[page.start..page.start + there].copy_from_slice(&older[has]);
                content[page.start + there..page.end].fill(0);
            }
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: u32, file: u64, at: u64, length: u64, data: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(event.to_le_bytes());
        record.extend((data.len() as u32).to_le_bytes());
        for word in [file, at, length] {
            record.extend(word.to_le_bytes());
        }
        record.extend(data);
        record
    }

    /// Synced bytes survive every cut, and the model allows every result.
    #[test]
    fn a_cut_takes_only_what_was_not_synced() {
        let place = tempfile::tempdir().unwrap();
        let (base, journal) = (place.path().join("base"), place.path().join("journal"));
        fs::create_dir(&base).unwrap();
        fs::write(base.join("old"), "old").unwrap();
        let calls = [
            record(OPENED, 1, 0o100, 0, b"/d/a\0"),
            record(WRITTEN, 1, 0, 5000, &[1; 5000]),
            record(SYNC_BEGAN, 1, 1, 0, b""),
            record(WRITTEN, 1, 5000, 4000, &[2; 4000]),
            record(SYNC_ENDED, 1, 1, 0, b""),
            record(OPENED, 2, 0, 0, b"/d\0"),
            record(SYNC_BEGAN, 2, 2, 0, b""),
            record(SYNC_ENDED, 2, 2, 0, b""),
            record(RENAMED, 0, 0, 0, b"/d/a\0/d/b\0"),
            record(UNLINKED, 0, 0, 0, b"/d/old\0"),
        ];
        fs::write(&journal, calls.concat()).unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let to = place.path().join(format!("to{seed}"));
            let cut = cut_power(Path::new("/d"), &base, &journal, &to, seed).unwrap();
            assert_eq!((cut.syncs, cut.names), (2, 2));
            let (a, b) = (to.join("a"), to.join("b"));
            assert!(a.exists() != b.exists(), "a rename happens or does not");
            let bytes = fs::read(if a.exists() { &a } else { &b }).unwrap();
            assert!(bytes[..5000].iter().all(|byte| *byte == 1), "seed {seed}: it was synced");
            assert!((5000..=9000).contains(&bytes.len()));
            assert!(bytes[5000..].iter().all(|byte| [0, 2].contains(byte)));
            let holes = bytes[5000..].contains(&0);
            seen.insert((a.exists(), to.join("old").exists(), bytes.len() == 9000, holes));
        }
        assert!(seen.len() > 8, "{seen:?}");
        assert!(!seen.iter().all(|(.., holes)| *holes));
    }
}

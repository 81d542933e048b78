//! Truncates the unsynced end of the write-ahead log at its first break, before RocksDB reads it.
//!
//! After a power cut, unsynced data may survive in any order: pages of the log after a missing
//! page, and a later log file although the end of the previous one is lost. RocksDB would replay
//! such a log with a hole: it skips zeros up to the next block, and continues with the next file
//! wherever the last one ends. A record that updates a document would then be applied without the
//! one that inserted it. Therefore this module reads the log first and cuts it where it first
//! breaks.
//!
//! A break may instead be damage to synced, acknowledged data; then the store must not open. Two
//! facts distinguish them:
//!
//! * *Marks*. The first commit after a sync records which sequence numbers the sync covered
//!   ([`mark`]). A break before a sequence number that a mark covers is damage. A mark is valid
//!   only for its own run of the process, because sequence numbers that a cut removed are used
//!   again.
//! * A power cut leaves a prefix of the data followed by zeros, at least up to the end of a page.
//!   Anything else is damage.
//!
//! ```text
//! block of 32 KB:  record record ...                 a record never begins in the last 6 bytes
//! record:          checksum 4, length 2, kind 1, payload
//! kinds:           1 whole, 2 first part, 3 middle, 4 last part, 130 properties of the previous log file
//! payload:         sequence number 8, operations 4, the operations; a mark is the first of them
//! kind 130:        number of the log file 8, its bytes 8, its last sequence number 8
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::open_error::OpenError;

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
const PAGE_BYTES: usize = 4096;
/// Zeros at the end of a page that are too many to be part of a document.
const GAP_BYTES: usize = 64;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
const PREDECESSOR: u8 = 130;

/// The header of a batch: its sequence number and its number of operations.
const BATCH_HEADER_BYTES: usize = 12;
/// The kind of an operation that writes nothing.
const LOG_DATA: u8 = 3;
const MARK: &[u8; 8] = b"mfSynced";
/// Length of a mark.
pub(crate) const MARK_BYTES: usize = MARK.len() + 16;
/// The bytes read from the beginning of a batch.
const HEAD_BYTES: usize = BATCH_HEADER_BYTES + 2 + MARK_BYTES;

/// A mark: everything after the first and up to the second sequence number is durable.
pub(crate) fn mark(after: u64, upto: u64) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(MARK);
    mark[8..16].copy_from_slice(&after.to_le_bytes());
    mark[16..].copy_from_slice(&upto.to_le_bytes());
    mark
}

/// The properties of the previous log file, as recorded in a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Predecessor {
    number: u64,
    bytes: u64,
}

/// The content of a log file as far as it was read.
#[derive(Clone, Debug, Default)]
struct LogFile {
    path: PathBuf,
    number: u64,
    bytes: u64,
    /// The offset after its last whole record.
    end: u64,
    predecessor: Option<Predecessor>,
    /// Sequence number of its first record.
    first: Option<u64>,
    /// The sequence number after its last whole record.
    next: Option<u64>,
    broken: bool,
    /// Its break has the shape that a power cut leaves.
    torn: bool,
    /// The first sequence number found after the break.
    salvaged: Option<u64>,
    /// Marks: the sequence number that each begins at, and the last one it covers.
    marks: BTreeMap<u64, u64>,
}

impl LogFile {
    fn has_content(&self) -> bool {
        self.next.is_some() || self.broken || self.predecessor.is_some()
    }

    fn covers(&self, sequence: u64) -> bool {
        self.marks.iter().any(|(after, upto)| *after < sequence && sequence <= *upto)
    }
}

/// Cuts the logs of a folder that no process has open. `lock` ensures that before the first cut.
pub(crate) fn cut<L>(
    folder: &Path,
    lock: impl FnOnce() -> Result<L, OpenError>,
) -> Result<(), OpenError> {
    if !find_cuts(&read_all(folder)?)?.is_empty() {
        let _lock = lock()?;
        // Read again, because another process may have written to the log until now.
        let files = read_all(folder)?;
        for (at, cut) in find_cuts(&files)? {
            let LogFile { path, bytes, .. } = &files[at];
            let file = path.display();
            match cut {
                Cut::To(end) => {
                    warn!(
                        %file,
                        bytes,
                        end,
                        "the write-ahead log is unreadable from this offset on, and is cut there; no record shows that a sync covered more"
                    );
                    let open = OpenOptions::new().write(true).open(path);
                    open.and_then(|open| open.set_len(end))
                }
                Cut::Remove => {
                    warn!(%file, bytes, "a write-ahead log without a readable record is removed");
                    fs::remove_file(path)
                }
            }
            .map_err(|error| OpenError::of_file(path, &error))?;
        }
    }
    sync_all(folder)
}

/// Makes the log durable: RocksDB continues from what was read here, which must still exist after
/// the next power cut.
fn sync_all(folder: &Path) -> Result<(), OpenError> {
    for (_, path) in log_files(folder)? {
        File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|error| OpenError::of_file(&path, &error))?;
    }
    Ok(())
}

fn log_files(folder: &Path) -> Result<BTreeMap<u64, PathBuf>, OpenError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(OpenError::of_file(folder, &error)),
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|error| OpenError::of_file(folder, &error))?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log"));
        if let Some(number) = number.and_then(|digits| digits.parse().ok()) {
            files.insert(number, path);
        }
    }
    Ok(files)
}

fn read_all(folder: &Path) -> Result<Vec<LogFile>, OpenError> {
    let read = |(number, path): (u64, PathBuf)| {
        read(number, &path).map_err(|error| OpenError::of_file(&path, &error))
    };
    log_files(folder)?.into_iter().map(read).collect()
}

/// The change to a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Truncates it to this many bytes.
    To(u64),
    /// Removes it.
    Remove,
}

/// Whether RocksDB failed to begin this log file and continued the previous one. The next file that
/// was begun names its predecessor, and RocksDB would refuse the folder with a file between the
/// two.
fn was_never_begun(file: &LogFile, later: &[LogFile]) -> bool {
    let is_empty = file.next.is_none() && file.salvaged.is_none();
    is_empty
        && later
            .iter()
            .find_map(|later| later.predecessor)
            .is_some_and(|said| said.number < file.number)
}

/// The files to cut, and where.
fn find_cuts(files: &[LogFile]) -> Result<Vec<(usize, Cut)>, OpenError> {
    let mut cuts = Vec::new();
    let mut begun = Vec::new();
    for (at, file) in files.iter().enumerate() {
        match was_never_begun(file, &files[at + 1..]) {
            true => cuts.push((at, Cut::Remove)),
            false => begun.push((at, file)),
        }
    }
    let mut next = None;
    for (place, &(at, file)) in begun.iter().enumerate() {
        // The next sequence number after all files so far.
        next = file.next.or(next);
        let later = &begun[place + 1..];
        let follower =
            later.iter().map(|(_, it)| it).find(|file| file.bytes > 0 && file.has_content());
        let follows = follower.map(|follower| match follower.predecessor {
            // The first file of its run: earlier files were replayed and are not needed any more.
            None => true,
            Some(said) => {
                said.number != file.number
                    || said.bytes == file.end
                    // Its recorded length includes a failed append; the next append has the same
                    // sequence number.
                    || matches!((follower.first, next), (Some(first), Some(next)) if first <= next)
            }
        });
        let is_damaged = || {
            Err(OpenError::Damaged(format!(
                "the log {} is damaged at byte {}",
                file.path.display(),
                file.end
            )))
        };
        match (file.broken, follows) {
            (false, None | Some(true)) => continue,
            // The break is the end of a failed append, or of an earlier run.
            (true, Some(true)) if file.torn => cuts.push((at, Cut::To(file.end))),
            (true, _) if !file.torn => return is_damaged(),
            _ => {
                let rest = &begun[place..];
                let missing =
                    next.or_else(|| rest.iter().find_map(|(_, it)| it.salvaged?.checked_sub(1)));
                if missing.is_some_and(|missing| rest.iter().any(|(_, it)| it.covers(missing))) {
                    return is_damaged();
                }
                cuts.extend((file.bytes > file.end).then_some((at, Cut::To(file.end))));
                let later = later.iter().filter(|(_, it)| it.bytes > 0);
                cuts.extend(later.map(|(at, _)| (*at, Cut::To(0))));
                break;
            }
        }
    }
    Ok(cuts)
}

fn read(number: u64, path: &Path) -> io::Result<LogFile> {
    let mut input = File::open(path)?;
    let bytes = input.metadata()?.len();
    let file = LogFile { path: path.to_owned(), number, bytes, ..LogFile::default() };
    let mut reader = Reader { file, part: None };
    let (mut block, mut at) = (Vec::with_capacity(BLOCK_BYTES), 0);
    let mut broken = None;
    loop {
        block.clear();
        (&mut input).take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            break;
        }
        let found = reader.block(&block, at);
        if broken.is_none()
            && let Some(place) = found
        {
            broken = Some(at + place as u64);
        }
        at += block.len() as u64;
    }
    // The last record is incomplete.
    if broken.is_none() && reader.part.is_some() {
        broken = Some(bytes);
    }
    if let Some(place) = broken {
        reader.file.broken = true;
        reader.file.torn = is_torn(path, reader.file.end, place, bytes)?;
    }
    Ok(reader.file)
}

/// Whether the break has the shape that a power cut leaves: the file ends, or a page ends with
/// zeros. The broken record begins at `start`; its wrong fragment, at `place`.
fn is_torn(path: &Path, start: u64, place: u64, bytes: u64) -> io::Result<bool> {
    let content = fs::read(path)?;
    let (start, place) = (start as usize, place as usize);
    if content.get(place..).is_none_or(|rest| rest.iter().take(HEADER_BYTES).all(|byte| *byte == 0))
    {
        return Ok(true);
    }
    let length = usize::from(u16::from_le_bytes([
        content.get(place + 4).copied().unwrap_or(0),
        content.get(place + 5).copied().unwrap_or(0),
    ]));
    let record_end = place + HEADER_BYTES + length;
    if record_end > bytes as usize {
        return Ok(true);
    }
    // The pages of the record.
    let first = start / PAGE_BYTES;
    let zeros = |page: usize| {
        let end = ((page + 1) * PAGE_BYTES).min(content.len());
        let from = end.saturating_sub(GAP_BYTES).max(page * PAGE_BYTES);
        content[from..end].iter().all(|byte| *byte == 0)
    };
    Ok((first..=record_end.saturating_sub(1) / PAGE_BYTES).any(zeros))
}

struct Reader {
    file: LogFile,
    /// The beginning of a record whose last fragment was not read yet.
    part: Option<Vec<u8>>,
}

impl Reader {
    /// Reads a block and returns the offset of its first break. After a break only marks are
    /// collected.
    fn block(&mut self, block: &[u8], at: u64) -> Option<usize> {
        let (mut place, mut broken) = (0, None);
        while place + HEADER_BYTES <= block.len() {
            match physical(&block[place..]) {
                Some((kind, payload)) if self.takes(kind) => {
                    let end = place + HEADER_BYTES + payload.len();
                    let sound = !self.file.broken;
                    self.record(kind, payload, sound.then_some(at + end as u64));
                    place = end;
                }
                _ => {
                    if !self.file.broken {
                        broken = Some(place);
                        self.file.broken = true;
                    }
                    self.part = None;
                    place += 1;
                }
            }
        }
        // The trailer of a block, which is too short for a header, is zeros. A shorter rest at the
        // end of the file is a torn header.
        if !self.file.broken && block.len() < BLOCK_BYTES && place < block.len() {
            self.file.broken = true;
            broken = Some(place);
        }
        broken
    }

    /// Whether a record of this kind may come next.
    fn takes(&self, kind: u8) -> bool {
        match kind {
            MIDDLE | LAST => self.part.is_some() || self.file.broken,
            WHOLE | FIRST | PREDECESSOR => self.part.is_none() || self.file.broken,
            // Kinds with the high bit may be ignored.
            kind => kind & 0x80 != 0,
        }
    }

    fn record(&mut self, kind: u8, payload: &[u8], sound_end: Option<u64>) {
        match kind {
            WHOLE => self.batch(payload, sound_end),
            FIRST => self.part = Some(payload[..payload.len().min(HEAD_BYTES)].to_vec()),
            MIDDLE | LAST => {
                let Some(mut head) = self.part.take() else { return };
                let more = HEAD_BYTES.saturating_sub(head.len()).min(payload.len());
                head.extend_from_slice(&payload[..more]);
                match kind {
                    MIDDLE => self.part = Some(head),
                    _ => self.batch(&head, sound_end),
                }
            }
            PREDECESSOR => {
                if let (Some(end), Some(number), Some(bytes)) =
                    (sound_end, word(payload, 0), word(payload, 8))
                {
                    self.file.predecessor = Some(Predecessor { number, bytes });
                    self.file.end = end;
                }
            }
            _ => {}
        }
    }

    fn batch(&mut self, head: &[u8], sound_end: Option<u64>) {
        let Some(sequence) = word(head, 0) else { return };
        let count = head.get(8..12).and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes);
        if let Some(end) = sound_end {
            self.file.end = end;
            self.file.first.get_or_insert(sequence);
            self.file.next = Some(sequence.saturating_add(u64::from(count)));
        } else {
            self.file.salvaged.get_or_insert(sequence);
        }
        let operation = head.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        if let [LOG_DATA, length, mark @ ..] = operation
            && usize::from(*length) == MARK_BYTES
            && mark.starts_with(MARK)
            && let (Some(after), Some(upto)) = (word(mark, 8), word(mark, 16))
        {
            let covered = self.file.marks.entry(after).or_default();
            *covered = upto.max(*covered);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The record at the start of these bytes of a block, if it is valid.
fn physical(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let length = usize::from(u16::from_le_bytes([*bytes.get(4)?, *bytes.get(5)?]));
    let kind = *bytes.get(6)?;
    if !(WHOLE..=LAST).contains(&kind) && kind & 0x80 == 0 {
        return None;
    }
    let checked = bytes.get(6..HEADER_BYTES + length)?;
    let stored = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    // RocksDB masks stored checksums, because a checksum of data that contains checksums is weak.
    let sum = stored.wrapping_sub(0xA282_EAD8).rotate_left(15);
    (crc32c::crc32c(checked) == sum).then(|| (kind, &checked[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid log file that ends at a sequence number, with the recorded properties of its
    /// predecessor.
    fn file(number: u64, next: u64, said: Option<(u64, u64)>) -> LogFile {
        let predecessor = said.map(|(number, bytes)| Predecessor { number, bytes });
        let path = format!("{number}.log").into();
        LogFile {
            path,
            number,
            bytes: 100,
            end: 100,
            predecessor,
            next: Some(next),
            ..LogFile::default()
        }
    }

    fn torn(number: u64, next: Option<u64>, said: Option<(u64, u64)>) -> LogFile {
        LogFile {
            next,
            end: if next.is_some() { 60 } else { 0 },
            broken: true,
            torn: true,
            ..file(number, 0, said)
        }
    }

    #[track_caller]
    fn cuts(files: &[LogFile], expected: &[(usize, u64)]) {
        let expected: Vec<_> = expected.iter().map(|(at, end)| (*at, Cut::To(*end))).collect();
        assert_eq!(find_cuts(files).unwrap(), expected);
    }

    #[test]
    fn a_file_that_was_never_begun_is_removed_and_hides_no_gap() {
        let empty = |number| LogFile { bytes: 0, end: 0, next: None, ..file(number, 0, None) };
        // Nothing of its first record was written, a part, or all.
        let begun_in_vain =
            [empty(7), torn(7, None, None), LogFile { next: None, ..file(7, 0, Some((4, 100))) }];
        for between in begun_in_vain {
            let before = || file(4, 10, None);
            let again = || LogFile { number: 8, path: "8.log".into(), ..between.clone() };
            let found = |files: &[LogFile]| find_cuts(files).unwrap();
            let after = file(9, 20, Some((4, 100)));
            assert_eq!(found(&[before(), between.clone(), after]), [(1, Cut::Remove)]);
            // The end of the first file is lost: the last one is not applied.
            let after = file(9, 20, Some((4, 120)));
            let expected = [(1, Cut::Remove), (2, Cut::Remove), (3, Cut::To(0))];
            assert_eq!(found(&[before(), between.clone(), again(), after]), expected);
        }
        // One that was begun after it.
        cuts(&[file(4, 10, None), empty(7), file(9, 20, Some((7, 0)))], &[]);
    }

    #[test]
    fn the_log_ends_where_it_first_breaks() {
        cuts(&[], &[]);
        cuts(&[file(4, 10, None), file(7, 20, Some((4, 100))), file(9, 20, None)], &[]);
        cuts(&[torn(4, Some(5), None)], &[(0, 60)]);
        // The end of the first file is lost, or a page in it: the second is not applied.
        cuts(&[file(4, 10, None), file(7, 20, Some((4, 120)))], &[(1, 0)]);
        cuts(&[torn(4, Some(5), None), file(7, 20, Some((4, 100)))], &[(0, 60), (1, 0)]);
        // Only the name of the second file is left.
        let empty = LogFile { bytes: 0, end: 0, next: None, ..file(7, 0, None) };
        cuts(&[file(4, 10, None), empty, file(9, 20, Some((7, 120)))], &[(2, 0)]);
        // An append failed, and the next file continues.
        cuts(&[torn(4, Some(5), None), file(7, 20, Some((4, 60)))], &[(0, 60)]);
        let goes_on = LogFile { first: Some(5), ..file(7, 20, Some((4, 140))) };
        cuts(&[torn(4, Some(5), None), goes_on], &[(0, 60)]);
        let after_a_gap = LogFile { first: Some(8), ..file(7, 20, Some((4, 140))) };
        cuts(&[torn(4, Some(5), None), after_a_gap], &[(0, 60), (1, 0)]);
        // The next run has replayed the valid records.
        cuts(&[torn(4, Some(5), None), file(7, 20, None)], &[(0, 60)]);
        cuts(&[torn(4, None, None)], &[(0, 0)]);
    }

    #[test]
    fn synced_records_are_not_cut() {
        let marked =
            |after, upto, said| LogFile { marks: [(after, upto)].into(), ..file(7, 20, said) };
        let damaged = |files: &[LogFile]| matches!(find_cuts(files), Err(OpenError::Damaged(_)));
        assert!(damaged(&[LogFile { torn: false, ..torn(4, Some(5), None) }]));
        assert!(damaged(&[LogFile { marks: [(1, 6)].into(), ..torn(4, Some(5), None) }]));
        assert!(damaged(&[file(4, 10, None), marked(1, 12, Some((4, 120)))]));
        // Marks of records before the break, and of another run.
        cuts(&[LogFile { marks: [(1, 4)].into(), ..torn(4, Some(5), None) }], &[(0, 60)]);
        cuts(&[file(4, 10, None), marked(10, 12, Some((4, 120)))], &[(1, 0)]);
        // The first sequence number is unknown: it precedes the first one found after the break.
        let first =
            |upto| LogFile { salvaged: Some(9), marks: [(1, upto)].into(), ..torn(4, None, None) };
        assert!(damaged(&[first(8)]));
        cuts(&[first(7)], &[(0, 0)]);
    }
}

//! What does not fit into memory: sorted runs of keys with documents, in files, and their merge.
//!
//! ```text
//! run:  entry, entry, ... in the order of their keys
//! entry: length of the key (u32), of the document (u32), of its metadata (u32, 0 for none), key, document, metadata
//! ```
//!
//! A file loses its name as soon as it is open, so that nothing is left of it after a crash.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::DocBuf;

use crate::metadata::Metadata;

/// Runs that are merged into one before there are more: each is an open file.
const MAX_RUNS: usize = 64;

/// Bytes of a run that are read or written at once.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// How much memory a blocking operator may use, and where to go on beyond it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// So many bytes.
    pub(crate) bytes: usize,
    /// Nothing: it fails there.
    pub(crate) folder: Option<PathBuf>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { bytes: limits::MAX_BLOCKING_MEMORY_BYTES, folder: None }
    }
}

/// An entry of a run: a key, a document, and what is known about it beside its fields.
pub(crate) type Entry = (Vec<u8>, DocBuf, Metadata);

/// Sorted runs in files.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    files: Vec<File>,
}

pub(crate) fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorCode::FileStreamFailed, format!("cannot {what} a temporary file: {error}"))
}

impl Runs {
    pub(crate) fn new(folder: PathBuf) -> Runs {
        Runs { folder, files: Vec::new() }
    }

    /// Writes a run; its entries come in the order of their keys.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn write(&mut self, entries: impl Iterator<Item = Entry>) -> Result<()> {
        if self.files.len() == MAX_RUNS {
            let merged = Merge::new(std::mem::take(&mut self.files))?;
            let file = write_run(&self.folder, merged)?;
            self.files.push(file);
        }
        let file = write_run(&self.folder, entries.map(Ok))?;
        self.files.push(file);
        Ok(())
    }

    /// All entries in the order of their keys; equal keys in the order in which they were written.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn merge(self) -> Result<Merge> {
        Merge::new(self.files)
    }
}

/// A file without a name.
///
/// # Errors
/// 39 FileStreamFailed.
pub(crate) fn open(folder: &Path) -> Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder).map_err(|error| failed("make the folder of", &error))?;
    let number = NUMBER.fetch_add(1, AtomicOrdering::Relaxed);
    let path = folder.join(format!("run-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&path).map_err(|error| failed("open", &error))?;
    std::fs::remove_file(&path).map_err(|error| failed("unlink", &error))?;
    Ok(file)
}

fn write_run(folder: &Path, entries: impl Iterator<Item = Result<Entry>>) -> Result<File> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, open(folder)?);
    for entry in entries {
        let (key, document, metadata) = entry?;
        let notes = metadata.as_doc().map_or(&[][..], |notes| notes.as_bytes());
        let mut write = || -> std::io::Result<()> {
            for part in [&key[..], document.as_bytes(), notes] {
                out.write_all(&(part.len() as u32).to_le_bytes())?;
            }
            out.write_all(&key)?;
            out.write_all(document.as_bytes())?;
            out.write_all(notes)
        };
        write().map_err(|error| failed("write", &error))?;
    }
    let mut file = out.into_inner().map_err(|error| failed("write", error.error()))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| failed("read", &error))?;
    Ok(file)
}

/// The first entry of a run that is left; the heap gives the greatest, so the order is turned around.
struct Head {
    entry: Entry,
    run: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        (&other.entry.0, other.run).cmp(&(&self.entry.0, self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// Entries of several runs in one order.
pub(crate) struct Merge {
    runs: Vec<BufReader<File>>,
    heads: BinaryHeap<Head>,
    failed: bool,
}

impl Merge {
    fn new(files: Vec<File>) -> Result<Merge> {
        let open = |file| BufReader::with_capacity(BUFFER_BYTES, file);
        let mut runs: Vec<_> = files.into_iter().map(open).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, reader) in runs.iter_mut().enumerate() {
            if let Some(entry) = read_entry(reader)? {
                heads.push(Head { entry, run });
            }
        }
        Ok(Merge { runs, heads, failed: false })
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.heads.is_empty()
    }

    /// The key that comes next.
    pub(crate) fn next_key(&self) -> Option<&[u8]> {
        self.heads.peek().map(|head| head.entry.0.as_slice())
    }
}

impl Iterator for Merge {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.failed {
            return None;
        }
        let Head { entry, run } = self.heads.pop()?;
        match read_entry(&mut self.runs[run]) {
            Ok(Some(next)) => self.heads.push(Head { entry: next, run }),
            Ok(None) => {}
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        }
        Some(Ok(entry))
    }
}

fn read_entry(reader: &mut BufReader<File>) -> Result<Option<Entry>> {
    let mut lengths = [0; 12];
    match reader.read_exact(&mut lengths) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(failed("read", &error)),
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l] = lengths;
    let mut part = |length: [u8; 4]| {
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        reader.read_exact(&mut bytes).map_err(|error| failed("read", &error))?;
        Ok::<Vec<u8>, Error>(bytes)
    };
    let key = part([a, b, c, d])?;
    let (document, notes) = (document(part([e, f, g, h])?)?, part([i, j, k, l])?);
    let metadata = match notes.is_empty() {
        true => Metadata::NONE,
        false => Metadata::new(self::document(notes)?),
    };
    Ok(Some((key, document, metadata)))
}

fn document(bytes: Vec<u8>) -> Result<DocBuf> {
    let found = DocBuf::from_bytes(bytes);
    found.ok_or_else(|| Error::internal("a temporary file holds what is no document"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::{DocBuilder, RawValue};

    fn document(n: i32) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("n", n);
        out.finish()
    }

    #[test]
    fn runs_come_back_in_order_however_many_there_are() {
        let mut runs = Runs::new(std::env::temp_dir().join("mayfly-spill-test"));
        for run in 0..150 {
            let notes = |run| match run % 2 {
                0 => Metadata::NONE,
                _ => Metadata::new(document(run)),
            };
            let entries = (0..5u8).map(|key| (vec![key], document(run), notes(run)));
            runs.write(entries).unwrap();
        }
        let merged: Vec<Entry> = runs.merge().unwrap().map(Result::unwrap).collect();
        assert_eq!(merged.len(), 750);
        for (at, (key, document, metadata)) in merged.iter().enumerate() {
            assert_eq!(key, &vec![(at / 150) as u8]);
            let n = document.as_doc().get("n");
            assert_eq!(n, Some(RawValue::Int32((at % 150) as i32)), "equal keys keep their order");
            let noted = metadata.as_doc().and_then(|notes| notes.get("n"));
            assert_eq!(noted, n.filter(|_| at % 2 == 1));
        }
    }
}

//! A sequence of entries in a file, read in the order of insertion any number of times.

use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_work::scratch::FileOwner;

use crate::Spilled;
use crate::file::{BUFFER_BYTES, ScratchFile, failed, finish, writer};

/// Writes the entries of a spool.
#[derive(Debug)]
pub struct SpoolWriter {
    out: BufWriter<ScratchFile>,
    spilled: Spilled,
}

impl SpoolWriter {
    /// A writer for a file without a name in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn new(folder: &Path) -> Result<SpoolWriter> {
        let spilled = Spilled { spills: 1, ..Spilled::default() };
        Ok(SpoolWriter { out: writer(FileOwner::Operation, folder)?, spilled })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn push(&mut self, entry: &[u8]) -> Result<()> {
        let length = (entry.len() as u32).to_le_bytes();
        let written = self.out.write_all(&length).and_then(|()| self.out.write_all(entry));
        written.map_err(|error| failed("write", &error))?;
        self.spilled.records += 1;
        self.spilled.bytes += entry.len() as u64;
        self.spilled.file_bytes += (length.len() + entry.len()) as u64;
        Ok(())
    }

    /// The amount written so far.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Ends the writing and returns a reader.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn finish(self) -> Result<Spool> {
        Ok(Spool::at_start(Arc::new(finish(self.out)?), self.spilled.records, BUFFER_BYTES))
    }
}

/// Buffer size of one of several readers of a file.
const READER_BYTES: usize = 32 << 10;

/// A file with a read position of its own.
#[derive(Debug)]
struct Position {
    file: Arc<ScratchFile>,
    at: u64,
}

impl Read for Position {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(out, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads the entries.
#[derive(Debug)]
pub struct Spool {
    file: BufReader<Position>,
    entry: Vec<u8>,
    count: u64,
    left: u64,
}

impl Spool {
    fn at_start(file: Arc<ScratchFile>, count: u64, buffer_bytes: usize) -> Spool {
        let file = BufReader::with_capacity(buffer_bytes, Position { file, at: 0 });
        Spool { file, entry: Vec::new(), count, left: count }
    }

    /// Another reader of the same entries, starting with the first one.
    #[must_use]
    pub fn reader(&self) -> Spool {
        Spool::at_start(self.file.get_ref().file.clone(), self.count, READER_BYTES)
    }

    /// Whether all entries were read.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The next entry.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator could not lend the bytes that it goes on from"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut length = [0; 4];
        match self.file.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(failed("read", &error)),
        }
        self.entry.resize(u32::from_le_bytes(length) as usize, 0);
        self.file.read_exact(&mut self.entry).map_err(|error| failed("read", &error))?;
        self.left = self.left.saturating_sub(1);
        Ok(Some(&self.entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_can_be_read_repeatedly() {
        let mut writer = SpoolWriter::new(&std::env::temp_dir()).unwrap();
        let entries: Vec<Vec<u8>> = (0..1000usize).map(|n| vec![n as u8; n]).collect();
        entries.iter().for_each(|entry| writer.push(entry).unwrap());
        assert_eq!(writer.spilled().bytes, 1000 * 999 / 2);
        let mut spool = writer.finish().unwrap();
        let mut other = spool.reader();
        for _ in 0..2 {
            for entry in &entries {
                assert!(!spool.is_over());
                if let Some(read) = other.next().unwrap() {
                    assert_eq!(read, &entry[..]);
                }
                assert_eq!(spool.next().unwrap(), Some(&entry[..]));
            }
            assert!(spool.is_over());
            assert_eq!(spool.next().unwrap(), None);
            spool = spool.reader();
        }
    }
}

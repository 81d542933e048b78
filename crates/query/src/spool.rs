//! Documents in a file: one behind the other, to be read in that order as often as needed, or each to be taken out once.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, RawDoc};

use crate::spill::{BUFFER_BYTES, failed, open};

/// Takes documents.
pub(crate) struct SpoolWriter {
    out: BufWriter<File>,
}

impl SpoolWriter {
    /// A file without a name in this folder.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn new(folder: &Path) -> Result<SpoolWriter> {
        Ok(SpoolWriter { out: BufWriter::with_capacity(BUFFER_BYTES, open(folder)?) })
    }

    /// Takes one more.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn push(&mut self, document: &DocBuf) -> Result<()> {
        // A document begins with its length.
        self.out.write_all(document.as_bytes()).map_err(|error| failed("write", &error))
    }

    /// All are there.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn finish(self) -> Result<Spool> {
        let file = self.out.into_inner().map_err(|error| failed("write", error.error()))?;
        let mut spool = Spool { file: BufReader::with_capacity(BUFFER_BYTES, file) };
        spool.rewind()?;
        Ok(spool)
    }
}

/// Gives them again.
pub(crate) struct Spool {
    file: BufReader<File>,
}

impl Spool {
    /// Begins with the first one again.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn rewind(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map(|_| ()).map_err(|error| failed("read", &error))
    }

    /// The next one.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn pop(&mut self) -> Result<Option<DocBuf>> {
        let mut length = [0; 4];
        match self.file.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(failed("read", &error)),
        }
        let wrong = || Error::internal("a temporary file holds what is no document");
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        let (head, rest) = bytes.split_at_mut_checked(length.len()).ok_or_else(wrong)?;
        head.copy_from_slice(&length);
        self.file.read_exact(rest).map_err(|error| failed("read", &error))?;
        DocBuf::from_bytes(bytes).map(Some).ok_or_else(wrong)
    }
}

/// Documents in a file, each to be taken out once, in any order.
pub(crate) struct Shelf {
    file: File,
    end: u64,
    /// So many have not been taken out.
    left: usize,
}

/// Where a document stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    start: u64,
    bytes: usize,
}

impl Shelf {
    /// An empty one, in a file without a name in this folder.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn new(folder: &Path) -> Result<Shelf> {
        Ok(Shelf { file: open(folder)?, end: 0, left: 0 })
    }

    /// Puts a document there.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn put(&mut self, document: RawDoc<'_>) -> Result<Placed> {
        let placed = Placed { start: self.end, bytes: document.as_bytes().len() };
        let written = self.file.write_all_at(document.as_bytes(), placed.start);
        written.map_err(|error| failed("write", &error))?;
        self.end += placed.bytes as u64;
        self.left += 1;
        Ok(placed)
    }

    /// Takes a document out. An empty file begins anew.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn take(&mut self, placed: Placed) -> Result<DocBuf> {
        let mut bytes = vec![0; placed.bytes];
        let read = self.file.read_exact_at(&mut bytes, placed.start);
        read.map_err(|error| failed("read", &error))?;
        self.left -= 1;
        if self.left == 0 {
            self.end = 0;
        }
        DocBuf::from_bytes(bytes)
            .ok_or_else(|| Error::internal("a temporary file holds what is no document"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuilder;

    #[test]
    fn documents_come_back_as_often_as_asked() {
        let mut writer = SpoolWriter::new(&std::env::temp_dir().join("mayfly-spool-test")).unwrap();
        let documents: Vec<DocBuf> = (0..1000)
            .map(|n| {
                let mut out = DocBuilder::new();
                out.append("n", n).append("text", "x".repeat(n as usize).as_str());
                out.finish()
            })
            .collect();
        documents.iter().for_each(|document| writer.push(document).unwrap());
        let mut spool = writer.finish().unwrap();
        for _ in 0..2 {
            for document in &documents {
                assert_eq!(spool.pop().unwrap().as_ref(), Some(document));
            }
            assert_eq!(spool.pop().unwrap(), None);
            spool.rewind().unwrap();
        }
    }
}

//! A file of documents that are written once and read in the same order, as often as needed.

use std::path::Path;

use mayfly_base::Result;
use mayfly_value::RawDoc;
use mayfly_work::spill::Spilled;

use super::spill::as_document;

/// Writes the documents.
pub(crate) struct SpoolWriter(mayfly_runs::SpoolWriter);

impl SpoolWriter {
    /// Creates a file without a name in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn new(folder: &Path) -> Result<SpoolWriter> {
        mayfly_runs::SpoolWriter::new(folder).map(SpoolWriter)
    }

    /// Appends a document.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn push(&mut self, document: RawDoc<'_>) -> Result<()> {
        self.0.push(document.as_bytes())
    }

    /// The data written so far.
    pub(crate) fn spilled(&self) -> Spilled {
        self.0.spilled()
    }

    /// Finishes writing.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn finish(self) -> Result<Spool> {
        self.0.finish().map(Spool)
    }
}

/// Reads the documents.
pub(crate) struct Spool(mayfly_runs::Spool);

impl Spool {
    /// A second reader, which starts with the first document.
    pub(crate) fn reader(&self) -> Spool {
        Spool(self.0.reader())
    }

    /// Whether no document is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// The next document.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
        self.0.next()?.map(as_document).transpose()
    }
}

//! Documents in a file, one after the other, to be read in that order as often as needed.

use std::path::Path;

use mayfly_base::Result;
use mayfly_value::RawDoc;
use mayfly_work::spill::Spilled;

use super::spill::as_document;

/// Takes documents.
pub(crate) struct SpoolWriter(mayfly_runs::SpoolWriter);

impl SpoolWriter {
    /// A file without a name in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn new(folder: &Path) -> Result<SpoolWriter> {
        mayfly_runs::SpoolWriter::new(folder).map(SpoolWriter)
    }

    /// Takes one more.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn push(&mut self, document: RawDoc<'_>) -> Result<()> {
        self.0.push(document.as_bytes())
    }

    /// What was written so far.
    pub(crate) fn spilled(&self) -> Spilled {
        self.0.spilled()
    }

    /// All are there.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub(crate) fn finish(self) -> Result<Spool> {
        self.0.finish().map(Spool)
    }
}

/// Gives them again.
pub(crate) struct Spool(mayfly_runs::Spool);

impl Spool {
    /// Another reader of the same documents, which begins with the first one.
    pub(crate) fn reader(&self) -> Spool {
        Spool(self.0.reader())
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// The next one.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub(crate) fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
        self.0.next()?.map(as_document).transpose()
    }
}

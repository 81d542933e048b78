//! Files without names, and what goes wrong with them.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::scratch::{Claim, FileOwner};

/// Bytes that are written at once, and read where one file is read alone.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Bytes for the buffers of all files that are read together.
const ALL_BUFFERS_BYTES: usize = 4 << 20;
/// The least buffer.
const LEAST_BUFFER_BYTES: usize = 16 << 10;

/// A temporary file without a name. It claims its bytes from its operation before they are written ([`mayfly_work::scratch`]).
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    claim: Claim,
    /// Where the next byte is written, or read.
    position: u64,
}

impl ScratchFile {
    fn claim(&mut self, end: u64) -> std::io::Result<()> {
        // Carried through the layers between; see `failed`.
        self.claim.grow(end).map_err(std::io::Error::other)
    }

    /// Writes all of the bytes at this place.
    pub(crate) fn write_all_at(&mut self, bytes: &[u8], start: u64) -> std::io::Result<()> {
        self.claim(start + bytes.len() as u64)?;
        self.file.write_all_at(bytes, start)
    }

    /// Reads some bytes from this place.
    pub(crate) fn read_at(&self, bytes: &mut [u8], start: u64) -> std::io::Result<usize> {
        self.file.read_at(bytes, start)
    }

    /// Reads as many bytes as there is room for from this place.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], start: u64) -> std::io::Result<()> {
        self.file.read_exact_at(bytes, start)
    }
}

impl Write for ScratchFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.claim(self.position + bytes.len() as u64)?;
        let written = self.file.write(bytes)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Read for ScratchFile {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(bytes)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for ScratchFile {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

/// The error of a failed step; that of a claim is what it was.
pub fn failed(what: &str, error: &std::io::Error) -> Error {
    if let Some(claimed) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return claimed.clone();
    }
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::OutOfDiskSpace,
        _ => ErrorCode::FileStreamFailed,
    };
    Error::new(code, format!("cannot {what} a temporary file: {error}"))
}

/// Opens a new file without a name in this folder, which is made when it does not exist. For readers and writers of other things
/// than entries.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub fn open(folder: &Path) -> Result<ScratchFile> {
    open_of(FileOwner::Operation, folder)
}

fn open_of(owner: FileOwner, folder: &Path) -> Result<ScratchFile> {
    std::fs::create_dir_all(folder).map_err(|error| failed("make the folder of", &error))?;
    let file = tempfile::tempfile_in(folder).map_err(|error| failed("open", &error))?;
    Ok(ScratchFile { file, claim: Claim::new(owner), position: 0 })
}

/// A file to be written from its beginning.
///
/// # Errors
/// As [`open`].
pub(crate) fn writer(owner: FileOwner, folder: &Path) -> Result<BufWriter<ScratchFile>> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, open_of(owner, folder)?))
}

/// Ends the writing: the file stands at its beginning.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub(crate) fn finish(out: BufWriter<ScratchFile>) -> Result<ScratchFile> {
    let mut file = out.into_inner().map_err(|error| failed("write", error.error()))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| failed("read", &error))?;
    Ok(file)
}

/// Reads a file beside others: so many are read together.
pub(crate) fn reader(file: ScratchFile, together: usize) -> BufReader<ScratchFile> {
    let share = ALL_BUFFERS_BYTES / together.max(1);
    BufReader::with_capacity(share.clamp(LEAST_BUFFER_BYTES, BUFFER_BYTES), file)
}

/// Writes an entry with the lengths of its key and its value before it.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub(crate) fn write_entry(
    out: &mut BufWriter<ScratchFile>,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    let mut write = || {
        out.write_all(&(key.len() as u32).to_le_bytes())?;
        out.write_all(&(value.len() as u32).to_le_bytes())?;
        out.write_all(key)?;
        out.write_all(value)
    };
    write().map_err(|error| failed("write", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_failed_file() {
        let code = |kind: ErrorKind| failed("write", &kind.into()).code();
        assert_eq!(code(ErrorKind::StorageFull), ErrorCode::OutOfDiskSpace);
        assert_eq!(code(ErrorKind::QuotaExceeded), ErrorCode::OutOfDiskSpace);
        assert_eq!(code(ErrorKind::PermissionDenied), ErrorCode::FileStreamFailed);
    }

    #[test]
    fn what_a_file_claims_is_refused_as_such() {
        use std::sync::atomic::Ordering;

        use mayfly_base::ManualClock;
        use mayfly_work::{OpInfo, OpRegistry, current};
        let registry = OpRegistry::new(std::sync::Arc::new(ManualClock::at_ms(0)));
        registry.scratch().operation_limit.store(1 << 20, Ordering::Relaxed);
        let guard = registry.begin(OpInfo::default());
        let _entered = current::enter(current::Current { op: Some(guard.op().clone()) });
        let folder = std::env::temp_dir();
        let mut out = writer(FileOwner::Operation, &folder).unwrap();
        let refused = (0..100).find_map(|_| write_entry(&mut out, b"key", &[7; 50_000]).err());
        assert_eq!(refused.unwrap().code(), ErrorCode::ExceededMemoryLimit);
        // What is in hand cannot be written any more.
        drop(out.into_parts());
        assert_eq!(registry.scratch().used(), 0);
    }

    #[test]
    fn files_have_no_names() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("made");
        let _file = open(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let error = open(Path::new("/dev/null/below")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileStreamFailed);
    }
}

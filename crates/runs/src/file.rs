//! Temporary files without names, and their errors.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::scratch::{Claim, FileOwner};

/// Size of the write buffer, and of the read buffer of a file that is read alone.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Total size of the buffers of files that are read together.
const ALL_BUFFERS_BYTES: usize = 4 << 20;
/// Smallest size of a buffer.
const LEAST_BUFFER_BYTES: usize = 16 << 10;

/// A temporary file without a name. It claims its bytes from its operation before they are written
/// ([`mayfly_work::scratch`]).
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    claim: Claim,
    /// Offset of the next byte to read or write.
    position: u64,
}

impl ScratchFile {
    fn claim(&mut self, end: u64) -> std::io::Result<()> {
        // The error passes through layers that know only IO errors; see `failed`.
        self.claim.grow(end).map_err(std::io::Error::other)
    }

    /// Writes all of the bytes at this offset.
    pub(crate) fn write_all_at(&mut self, bytes: &[u8], start: u64) -> std::io::Result<()> {
        self.claim(start + bytes.len() as u64)?;
        self.file.write_all_at(bytes, start)
    }

    /// Reads some bytes at this offset.
    pub(crate) fn read_at(&self, bytes: &mut [u8], start: u64) -> std::io::Result<usize> {
        self.file.read_at(bytes, start)
    }

    /// Fills the buffer from this offset.
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

/// Converts an IO error of a step, such as `write`. The error of a refused claim is returned
/// unchanged.
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

/// Opens a new file without a name in this folder, which is created if necessary. For content other
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

/// A buffered writer for a new file.
///
/// # Errors
/// Errors of [`open`].
pub(crate) fn writer(owner: FileOwner, folder: &Path) -> Result<BufWriter<ScratchFile>> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, open_of(owner, folder)?))
}

/// Flushes the writer and rewinds the file.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub(crate) fn finish(out: BufWriter<ScratchFile>) -> Result<ScratchFile> {
    let mut file = out.into_inner().map_err(|error| failed("write", error.error()))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| failed("read", &error))?;
    Ok(file)
}

/// A buffered reader for one of `together` files that are read at the same time.
pub(crate) fn reader(file: ScratchFile, together: usize) -> BufReader<ScratchFile> {
    let share = ALL_BUFFERS_BYTES / together.max(1);
    BufReader::with_capacity(share.clamp(LEAST_BUFFER_BYTES, BUFFER_BYTES), file)
}

/// Writes an entry: lengths of key and value, key, value.
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
    fn a_full_disk_is_distinguished_from_a_failed_file() {
        let code = |kind: ErrorKind| failed("write", &kind.into()).code();
        assert_eq!(code(ErrorKind::StorageFull), ErrorCode::OutOfDiskSpace);
        assert_eq!(code(ErrorKind::QuotaExceeded), ErrorCode::OutOfDiskSpace);
        assert_eq!(code(ErrorKind::PermissionDenied), ErrorCode::FileStreamFailed);
    }

    #[test]
    fn a_refused_claim_keeps_its_error() {
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
        // Without this, dropping the writer would flush its buffer.
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

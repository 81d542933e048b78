//! Files without names, and what goes wrong with them.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};

/// Bytes that are written at once, and read where one file is read alone.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Bytes for the buffers of all files that are read together.
const ALL_BUFFERS_BYTES: usize = 4 << 20;
/// The least buffer.
const LEAST_BUFFER_BYTES: usize = 16 << 10;

/// The error of a failed step.
pub(crate) fn failed(what: &str, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::OutOfDiskSpace,
        _ => ErrorCode::FileStreamFailed,
    };
    Error::new(code, format!("cannot {what} a temporary file: {error}"))
}

/// Opens a new file in this folder, which is made when it is not there, and takes its name away. For readers and writers of other
/// things than entries.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub fn open(folder: &Path) -> Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder).map_err(|error| failed("make the folder of", &error))?;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("run-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path).map_err(|error| failed("unlink", &error))?;
                return Ok(file);
            }
            // A process of the same number had it before.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("open", &error)),
        }
    }
}

/// A file to be written from its beginning.
///
/// # Errors
/// As [`open`].
pub(crate) fn writer(folder: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, open(folder)?))
}

/// Ends the writing: the file stands at its beginning.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub(crate) fn finish(out: BufWriter<File>) -> Result<File> {
    let mut file = out.into_inner().map_err(|error| failed("write", error.error()))?;
    file.seek(SeekFrom::Start(0)).map_err(|error| failed("read", &error))?;
    Ok(file)
}

/// Reads a file beside others: so many are read together.
pub(crate) fn reader(file: File, together: usize) -> BufReader<File> {
    let share = ALL_BUFFERS_BYTES / together.max(1);
    BufReader::with_capacity(share.clamp(LEAST_BUFFER_BYTES, BUFFER_BYTES), file)
}

/// Writes an entry with the lengths of its key and its value before it.
///
/// # Errors
/// 14031 OutOfDiskSpace, 39 FileStreamFailed.
pub(crate) fn write_entry(out: &mut BufWriter<File>, key: &[u8], value: &[u8]) -> Result<()> {
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
    fn files_have_no_names() {
        let folder = std::env::temp_dir().join(format!("mayfly-runs-names-{}", std::process::id()));
        let _file = open(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let error = open(Path::new("/dev/null/below")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileStreamFailed);
    }
}

//! Rotation of log files. `rename`: the file is renamed to its name with the time as a suffix, and
//! the log continues in a new file. `reopen`: another program renames the file, and the log
//! continues in a new file with the old name.
//!
//! With `rename`, the file is only renamed if the path still refers to it. If another program has
//! moved it, the log continues at the path, and the moved file stays as it is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use mayfly_base::Clock;
use mayfly_service::LogRotation;
use parking_lot::Mutex;

use super::time_text;

/// The output of a log.
pub(crate) struct LogOutput {
    out: Box<dyn Write + Send>,
    /// The device and inode of the file; `None` if the output is not a file.
    identity: Option<(u64, u64)>,
}

/// The output, shared by the log and its rotation.
pub(crate) type Out = Arc<Mutex<LogOutput>>;

impl LogOutput {
    /// An output that is not a file.
    pub(crate) fn stream(out: Box<dyn Write + Send>) -> LogOutput {
        LogOutput { out, identity: None }
    }

    /// A file output.
    pub(crate) fn file(file: File) -> LogOutput {
        let identity = file.metadata().ok().map(|metadata| identity(&metadata));
        LogOutput { out: Box::new(file), identity }
    }

    /// Whether the path refers to the file of this output.
    fn is_at(&self, path: &Path) -> bool {
        let found = fs::metadata(path).ok().map(|metadata| identity(&metadata));
        found.is_some() && found == self.identity
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The value of `systemLog.logRotate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotateMethod {
    /// The server renames the file.
    #[default]
    Rename,
    /// Another program renames it.
    Reopen,
}

/// A log file and its rotation method.
#[derive(Clone)]
pub(crate) struct Rotated {
    pub(crate) path: PathBuf,
    pub(crate) method: RotateMethod,
}

impl Rotated {
    /// Continues in another file, which `open` opens; returns the new name of the old file if it
    /// was renamed.
    ///
    /// # Errors
    /// A message for the operator. The log continues in the old file.
    pub(crate) fn rotate(
        &self,
        out: &Out,
        how: LogRotation,
        clock: &dyn Clock,
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let path = &self.path;
        // The lock prevents further lines in the renamed file.
        let mut out = out.lock();
        let renames = how == LogRotation::Configured && self.method == RotateMethod::Rename;
        let old = match renames && out.is_at(path) {
            true => Some(rename(path, clock)?),
            false => None,
        };
        let opened = open(path).with_context(|| format!("cannot open {}", path.display()));
        match (opened, old) {
            (Ok(file), old) => {
                *out = LogOutput::file(file);
                Ok(old)
            }
            (Err(error), old) => {
                // The log continues in the old file, which therefore gets its name back; the error
                // describes the problem of the folder.
                let _ = old.map(|old| fs::rename(old, path));
                Err(error)
            }
        }
    }
}

/// Renames a file to its name with the time as a suffix.
pub(super) fn rename(path: &Path, clock: &dyn Clock) -> anyhow::Result<PathBuf> {
    let time = time_text(clock.now_ms());
    let time = time.split('.').next().unwrap_or_default().replace(':', "-");
    let mut old = path.as_os_str().to_owned();
    old.push(format!(".{time}"));
    let old = PathBuf::from(old);
    if old.exists() {
        bail!("{} exists already", old.display());
    }
    fs::rename(path, &old).with_context(|| format!("cannot rename {}", path.display()))?;
    Ok(old)
}

/// Opens a log file for appending.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;
    use tempfile::TempDir;

    use super::*;

    struct Log {
        _folder: TempDir,
        rotated: Rotated,
        out: Out,
        clock: ManualClock,
    }

    impl Log {
        fn new(method: RotateMethod) -> Log {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("mayflydb.log");
            let out = Arc::new(Mutex::new(LogOutput::file(append_to(&path).unwrap())));
            let clock = ManualClock::at_ms(1_800_000_000_000);
            Log { _folder: folder, rotated: Rotated { path, method }, out, clock }
        }

        fn line(&self, text: &str) {
            self.out.lock().write_all(format!("{text}\n").as_bytes()).unwrap();
        }

        fn rotate(&self, how: LogRotation) -> anyhow::Result<Option<PathBuf>> {
            self.rotated.rotate(&self.out, how, &self.clock, append_to)
        }

        fn path(&self, more: &str) -> PathBuf {
            let mut path = self.rotated.path.clone().into_os_string();
            path.push(more);
            path.into()
        }

        #[track_caller]
        fn holds(&self, more: &str, text: &str) {
            assert_eq!(fs::read_to_string(self.path(more)).unwrap(), text);
        }
    }

    #[test]
    fn the_old_lines_stay_under_another_name() {
        let log = Log::new(RotateMethod::Rename);
        log.line("one");
        let old = log.rotate(LogRotation::Configured).unwrap();
        log.line("two");
        log.holds("", "two\n");
        assert_eq!(old, Some(log.path(".2027-01-15T08-00-00")));
        log.holds(".2027-01-15T08-00-00", "one\n");
        assert!(log.rotate(LogRotation::Configured).is_err(), "nothing is written over");
        log.line("three");
        log.holds("", "two\nthree\n");
    }

    #[test]
    fn a_file_that_another_program_moved_is_not_searched() {
        let log = Log::new(RotateMethod::Rename);
        log.line("one");
        fs::rename(log.path(""), log.path(".1")).unwrap();
        assert_eq!(log.rotate(LogRotation::Configured).unwrap(), None);
        log.line("two");
        log.holds(".1", "one\n");
        log.holds("", "two\n");
        // With a new file at the path, as logrotate's `create` option creates it.
        fs::rename(log.path(""), log.path(".2")).unwrap();
        fs::write(log.path(""), "").unwrap();
        assert_eq!(log.rotate(LogRotation::Configured).unwrap(), None);
        log.line("three");
        log.holds(".2", "two\n");
        log.holds("", "three\n");
    }

    #[test]
    fn reopening_renames_nothing() {
        for (method, how) in [
            (RotateMethod::Reopen, LogRotation::Configured),
            (RotateMethod::Rename, LogRotation::Reopen),
        ] {
            let log = Log::new(method);
            log.line("one");
            assert_eq!(log.rotate(how).unwrap(), None);
            log.line("two");
            log.holds("", "one\ntwo\n");
            fs::rename(log.path(""), log.path(".1")).unwrap();
            assert_eq!(log.rotate(how).unwrap(), None);
            log.line("three");
            log.holds("", "three\n");
        }
    }

    #[test]
    fn where_no_new_file_can_be_opened_the_old_one_stays() {
        let log = Log::new(RotateMethod::Rename);
        log.line("one");
        let refuse = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let how = LogRotation::Configured;
        assert!(log.rotated.rotate(&log.out, how, &log.clock, refuse).is_err());
        log.line("two");
        log.holds("", "one\ntwo\n");
    }
}

//! A new log file: the present one is renamed to its name and the time, and the log goes on in a fresh one.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use mayfly_base::Clock;
use parking_lot::Mutex;

use super::time_text;

/// Where the log's lines go; shared with the one who rotates it.
pub(crate) type Out = Arc<Mutex<Box<dyn Write + Send>>>;

/// Renames the file and begins another, which `open` opens; gives the old one's new name.
///
/// # Errors
/// One line for the operator. The log goes on in the file that it had.
pub(crate) fn rotate(
    out: &Out,
    path: &Path,
    clock: &dyn Clock,
    open: impl Fn(&Path) -> io::Result<File>,
) -> anyhow::Result<PathBuf> {
    // Held meanwhile, so that no line goes into the renamed file behind the last one.
    let mut out = out.lock();
    let time = time_text(clock.now_ms());
    let time = time.split('.').next().unwrap_or_default().replace(':', "-");
    let mut old = path.as_os_str().to_owned();
    old.push(format!(".{time}"));
    let old = PathBuf::from(old);
    if old.exists() {
        bail!("{} exists already", old.display());
    }
    let shown = path.display();
    std::fs::rename(path, &old).with_context(|| format!("cannot rename {shown}"))?;
    *out = Box::new(open(path).with_context(|| format!("cannot open {shown}"))?);
    Ok(old)
}

/// Opens a log file to add to it.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;

    use super::*;

    #[test]
    fn the_old_lines_stay_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayflydb.log");
        let file = append_to(&path).unwrap();
        let out: Out = Arc::new(Mutex::new(Box::new(file)));
        let clock = ManualClock::at_ms(1_800_000_000_000);
        out.lock().write_all(b"one\n").unwrap();
        let old = rotate(&out, &path, &clock, append_to).unwrap();
        out.lock().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(old, folder.path().join("mayflydb.log.2027-01-15T08-00-00"));
        assert_eq!(std::fs::read_to_string(old).unwrap(), "one\n");
        assert!(rotate(&out, &path, &clock, append_to).is_err(), "nothing is written over");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    }
}

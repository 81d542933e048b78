//! A new log file: the present one is renamed to its name and the time, and the log goes on in a fresh one.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use mayfly_base::Clock;
use parking_lot::Mutex;

use super::time_text;

/// Where the log's lines go; shared with the one who rotates it.
pub(super) type Out = Arc<Mutex<Box<dyn Write + Send>>>;

/// Renames the file and begins another.
///
/// # Errors
/// One line for the operator. The log goes on in the file that it had.
pub(super) fn rotate(out: &Out, path: &PathBuf, clock: &dyn Clock) -> anyhow::Result<()> {
    // Held meanwhile, so that no line goes into the renamed file behind the last one.
    let mut out = out.lock();
    let time = time_text(clock.now_ms());
    let time = time.split('.').next().unwrap_or_default().replace(':', "-");
    let mut old = path.clone().into_os_string();
    old.push(format!(".{time}"));
    if PathBuf::from(&old).exists() {
        bail!("{} exists already", PathBuf::from(old).display());
    }
    let shown = path.display();
    std::fs::rename(path, &old).with_context(|| format!("cannot rename {shown}"))?;
    let file = OpenOptions::new().create(true).append(true).open(path);
    *out = Box::new(file.with_context(|| format!("cannot open {shown}"))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;

    use super::*;

    #[test]
    fn the_old_lines_stay_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayflydb.log");
        let file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let out: Out = Arc::new(Mutex::new(Box::new(file)));
        let clock = ManualClock::at_ms(1_800_000_000_000);
        out.lock().write_all(b"one\n").unwrap();
        rotate(&out, &path, &clock).unwrap();
        out.lock().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        let old = folder.path().join("mayflydb.log.2027-01-15T08-00-00");
        assert_eq!(std::fs::read_to_string(old).unwrap(), "one\n");
        assert!(rotate(&out, &path, &clock).is_err(), "nothing is written over");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    }
}

//! The last lines of the log, for `getLog`.

use std::collections::VecDeque;
use std::sync::OnceLock;

use parking_lot::Mutex;

/// Lines that are kept.
const LINES: usize = 1024;

/// How a file of the log or of the audit log makes way for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRotation {
    /// As `systemLog.logRotate` says: the file is renamed, or opened again.
    Configured,
    /// The file is opened again, which creates it if another program has renamed it.
    Reopen,
}

/// Begins a new log file.
type Rotate = Box<dyn Fn(LogRotation) -> Result<(), String> + Send + Sync>;

/// A ring of lines, each a JSON object.
#[derive(Default)]
pub struct LogRing {
    inner: Mutex<Inner>,
    rotate: OnceLock<Rotate>,
}

#[derive(Default)]
struct Inner {
    lines: VecDeque<String>,
    total: u64,
    startup_warnings: Vec<String>,
}

impl LogRing {
    /// Adds a line; the oldest goes when the ring is full.
    pub fn push(&self, line: String) {
        let mut inner = self.inner.lock();
        if inner.lines.len() == LINES {
            inner.lines.pop_front();
        }
        inner.lines.push_back(line);
        inner.total += 1;
    }

    /// Adds a line to what `getLog: "startupWarnings"` shows.
    pub fn push_startup_warning(&self, line: String) {
        let mut inner = self.inner.lock();
        if inner.startup_warnings.len() < LINES {
            inner.startup_warnings.push(line);
        }
    }

    /// Sets the function that begins a new log file; the first one stays.
    pub fn on_rotate(
        &self,
        rotate: impl Fn(LogRotation) -> Result<(), String> + Send + Sync + 'static,
    ) {
        // A second one would belong to a second log, which a process cannot have.
        let _ = self.rotate.set(Box::new(rotate));
    }

    /// Begins a new log file; nothing happens where the log is no file.
    ///
    /// # Errors
    /// One line that says why there is none.
    pub fn rotate(&self, how: LogRotation) -> Result<(), String> {
        self.rotate.get().map_or(Ok(()), |rotate| rotate(how))
    }

    /// The lines that are left, and how many there ever were.
    pub fn lines(&self) -> (Vec<String>, u64) {
        let inner = self.inner.lock();
        (inner.lines.iter().cloned().collect(), inner.total)
    }

    /// The warnings of the start.
    pub fn startup_warnings(&self) -> Vec<String> {
        self.inner.lock().startup_warnings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go() {
        let ring = LogRing::default();
        for number in 0..LINES + 3 {
            ring.push(number.to_string());
        }
        let (lines, total) = ring.lines();
        assert_eq!((lines.len(), total), (LINES, LINES as u64 + 3));
        assert_eq!(lines[0], "3");
    }
}

//! The latest lines of the log, for `getLog`.

use std::collections::VecDeque;
use std::sync::OnceLock;

use parking_lot::Mutex;

/// The capacity of the ring: lines, and bytes of lines. Slow commands have long lines.
const LINES: usize = 1024;
const BYTES: usize = 1 << 20;

/// How a log file or audit log file is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRotation {
    /// As `systemLog.logRotate` specifies: the file is renamed, or opened again.
    Configured,
    /// The file is opened again, which creates it if another program has renamed it.
    Reopen,
}

/// The function that rotates the log file.
type Rotate = Box<dyn Fn(LogRotation) -> Result<(), String> + Send + Sync>;

/// A ring of log lines, each a JSON object.
#[derive(Default)]
pub struct LogRing {
    inner: Mutex<Inner>,
    rotate: OnceLock<Rotate>,
}

#[derive(Default)]
struct Inner {
    lines: VecDeque<String>,
    bytes: usize,
    total: u64,
    startup_warnings: Vec<String>,
}

impl LogRing {
    /// Adds a line; a full ring drops the oldest ones.
    pub fn push(&self, mut line: String) {
        line.shrink_to_fit();
        let mut inner = self.inner.lock();
        while inner.lines.len() == LINES
            || (inner.bytes + line.len() > BYTES && !inner.lines.is_empty())
        {
            inner.bytes -= inner.lines.pop_front().map_or(0, |oldest| oldest.len());
        }
        inner.bytes += line.len();
        inner.lines.push_back(line);
        inner.total += 1;
    }

    /// Adds a line to the answer of `getLog: "startupWarnings"`.
    pub fn push_startup_warning(&self, line: String) {
        let mut inner = self.inner.lock();
        if inner.startup_warnings.len() < LINES {
            inner.startup_warnings.push(line);
        }
    }

    /// Sets the function that rotates the log file; only the first call has an effect.
    pub fn on_rotate(
        &self,
        rotate: impl Fn(LogRotation) -> Result<(), String> + Send + Sync + 'static,
    ) {
        // A second one would belong to a second log, which a process cannot have.
        let _ = self.rotate.set(Box::new(rotate));
    }

    /// Rotates the log file; does nothing when the log is not a file.
    ///
    /// # Errors
    /// The reason why the file could not be rotated, as one line.
    pub fn rotate(&self, how: LogRotation) -> Result<(), String> {
        self.rotate.get().map_or(Ok(()), |rotate| rotate(how))
    }

    /// The lines in the ring, and the number of all lines since the start.
    pub fn lines(&self) -> (Vec<String>, u64) {
        let inner = self.inner.lock();
        (inner.lines.iter().cloned().collect(), inner.total)
    }

    /// The startup warnings.
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
        // Long lines: as many as fit, and the latest one in any case.
        for _ in 0..5 {
            ring.push("x".repeat(BYTES / 4));
        }
        assert_eq!(ring.lines().0.len(), 4);
        ring.push("x".repeat(2 * BYTES));
        assert_eq!(ring.lines().0.len(), 1);
    }
}

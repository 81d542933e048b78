//! What the operating system counted for a process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel's clock ticks per second; fixed at 100 in what it shows to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// This process.
    pub(crate) fn own() -> Process {
        Process(std::process::id())
    }

    /// CPU seconds so far, all threads, ended ones included.
    pub(crate) fn cpu_seconds(self) -> Option<f64> {
        let text = self.read("stat")?;
        // The name in parentheses may contain anything, so count from its end.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(self) -> Option<f64> {
        Some(self.figure("status", "VmRSS:")? * 1024.0)
    }

    /// Most resident memory in bytes since it began, or since [`Process::forget_peak`].
    pub(crate) fn peak_bytes(self) -> Option<f64> {
        Some(self.figure("status", "VmHWM:")? * 1024.0)
    }

    /// Resets the peak of the memory to its present value. If the system does not allow it, the
    /// peak is that since the start.
    pub(crate) fn forget_peak(self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.0), "5");
    }

    /// Bytes that it caused to be written to a disk.
    pub(crate) fn written_bytes(self) -> Option<f64> {
        self.figure("io", "write_bytes:")
    }

    /// Threads.
    pub(crate) fn threads(self) -> Option<f64> {
        self.figure("status", "Threads:")
    }

    fn figure(self, file: &str, name: &str) -> Option<f64> {
        let text = self.read(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn read(self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.0)).ok()
    }
}

/// Bytes that the files below a folder occupy on the disk.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        // It was removed meanwhile.
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::{Process, folder_bytes};

    #[test]
    fn the_own_figures_can_be_read() {
        let own = Process::own();
        assert!(own.cpu_seconds().is_some());
        assert!(own.resident_bytes().unwrap() > 100_000.0);
        own.forget_peak();
        assert!(own.peak_bytes().unwrap() >= own.resident_bytes().unwrap() / 2.0);
        assert!(own.threads().unwrap() >= 1.0);
        assert!(Process(u32::MAX).cpu_seconds().is_none());
    }

    #[test]
    fn folders_are_summed_up() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(folder.path().join("inner/file"), vec![1; 100_000]).unwrap();
        assert!(folder_bytes(folder.path()) >= 100_000);
        assert_eq!(folder_bytes(&folder.path().join("absent")), 0);
    }
}

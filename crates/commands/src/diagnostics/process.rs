//! What the operating system says about this process and machine. Where it says nothing, zero or `unknown`.

use std::fs;

/// Size of a memory page, on all machines that this server is built for.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Resident and virtual memory of this process, in bytes.
pub(super) fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let (size, resident) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (resident * PAGE_BYTES, size * PAGE_BYTES)
}

/// Major page faults of this process.
pub(super) fn page_faults() -> i64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces, so fields count from the closing parenthesis: the tenth is majflt.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(9).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A one-line file, for example under `/proc/sys/kernel`.
pub(super) fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { "unknown".to_owned() } else { line.to_owned() }
}

/// The machine's name.
pub(super) fn host_name() -> String {
    line("/proc/sys/kernel/hostname")
}

/// Processors that this process may use.
pub(super) fn processors() -> i32 {
    std::thread::available_parallelism().map_or(1, |n| i32::try_from(n.get()).unwrap_or(i32::MAX))
}

/// Name and version of the operating system.
pub(super) fn os_release() -> (String, String) {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map_or_else(|| "unknown".to_owned(), |value| value.trim_matches('"').to_owned())
    };
    (value("NAME="), value("VERSION_ID="))
}

/// Most open files of this process.
pub(super) fn max_open_files() -> i32 {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|word| word.parse().ok()).unwrap_or(0)
}

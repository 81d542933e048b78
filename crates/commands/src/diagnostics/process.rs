//! Information from the operating system about the machine and the limits of this process; zero or
//! `unknown` if it is not available.

use std::fs;

/// A one-line file, for example under `/proc/sys/kernel`.
pub(super) fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { "unknown".to_owned() } else { line.to_owned() }
}

/// The host name.
pub(super) fn host_name() -> String {
    line("/proc/sys/kernel/hostname")
}

/// The number of processors that this process may use.
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

/// The limit of open files of this process.
pub(super) fn max_open_files() -> i32 {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|word| word.parse().ok()).unwrap_or(0)
}

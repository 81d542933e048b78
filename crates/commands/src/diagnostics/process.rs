//! Information from the operating system about the machine and the limits of this process; zero or
//! `unknown` if it is not available.

use std::collections::BTreeSet;
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

/// The different values of a field of `/proc/cpuinfo`, and at least one.
fn different(fields: &[&str]) -> i32 {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |processor: &str, field: &str| {
        let line = processor.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split(':').nth(1)).map(|value| value.trim().to_owned())
    };
    let values = text.split("\n\n").map(|processor| {
        fields.iter().map(|field| value(processor, field)).collect::<Option<Vec<_>>>()
    });
    let found: BTreeSet<_> = values.flatten().collect();
    i32::try_from(found.len()).unwrap_or(i32::MAX).max(1)
}

/// The number of cores of the machine; processors can share one.
pub(super) fn physical_cores() -> i32 {
    different(&["physical id", "core id"])
}

/// The number of processor sockets.
pub(super) fn sockets() -> i32 {
    different(&["physical id"])
}

/// The number of nodes with memory of their own.
pub(super) fn numa_nodes() -> i32 {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node =
        |name: &str| name.strip_prefix("node").is_some_and(|id| id.parse::<u32>().is_ok());
    let nodes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count();
    i32::try_from(nodes).unwrap_or(i32::MAX).max(1)
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

//! The usable memory: that of the machine, or less if a container's limit (a control group of
//! either version) or the limit of the address space (`ulimit -v`) is lower.

use std::fs;
use std::path::Path;

/// The memory of the machine and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The memory of the machine in bytes; 0 if unknown.
    pub machine_bytes: u64,
    /// The lowest limit of the process's control groups and address space, if it is lower than
    /// `machine_bytes`.
    pub limit_bytes: Option<u64>,
}

impl Memory {
    /// Reads the memory from `/proc` and `/sys`.
    pub fn of_system() -> Memory {
        Memory::below(Path::new("/"))
    }

    /// The memory that this process may use, in bytes; 0 if unknown.
    pub fn usable_bytes(&self) -> u64 {
        self.limit_bytes.unwrap_or(self.machine_bytes)
    }

    /// Reads the system's files below `root`.
    fn below(root: &Path) -> Memory {
        let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let machine_bytes = kib.unwrap_or(0) * 1024;
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let limits = groups.lines().filter_map(|line| limit_of_group(root, line));
        let limits = limits.chain(limit_of_addresses(root));
        let limit_bytes = limits.min().filter(|limit| machine_bytes == 0 || *limit < machine_bytes);
        Memory { machine_bytes, limit_bytes }
    }
}

/// The limit of this process's address space (`ulimit -v`), in bytes.
pub fn address_space_bytes() -> Option<u64> {
    addresses(Path::new("/"))
}

fn addresses(root: &Path) -> Option<u64> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The memory that the limit of the address space allows. Thread stacks and reserves of the
/// allocators use addresses that are not backed by memory.
fn limit_of_addresses(root: &Path) -> Option<u64> {
    addresses(root).map(|bytes| bytes / 4)
}

/// The limit of a line `NUMBER:CONTROLLERS:PATH`; version 2 has no controllers there.
fn limit_of_group(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    // The limits of all ancestors apply as well. In a container the path may be that of the host:
    // then only the mount's root exists, which is the container's group.
    let group = mount.join(path.trim_start_matches('/'));
    let folders = group.ancestors().take_while(|folder| folder.starts_with(&mount));
    let limit = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    folders.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory that these files describe.
    fn memory_of(files: &[(&str, &str)]) -> Memory {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Memory::below(root.path())
    }

    #[test]
    fn the_least_limit_counts() {
        const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 5 kB\n");
        let machine_bytes = 8 << 30;
        let limit = |files: &[(&str, &str)]| {
            let memory = memory_of(&[&[MACHINE], files].concat());
            assert_eq!(memory.machine_bytes, machine_bytes);
            assert_eq!(memory.usable_bytes(), memory.limit_bytes.unwrap_or(machine_bytes));
            memory.limit_bytes
        };
        assert_eq!(limit(&[]), None);
        let second = ("proc/self/cgroup", "0::/a.slice/b\n");
        assert_eq!(limit(&[second, ("sys/fs/cgroup/a.slice/b/memory.max", "max\n")]), None);
        let above = ("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
        let own = ("sys/fs/cgroup/a.slice/b/memory.max", "2147483648\n");
        assert_eq!(limit(&[second, above, own]), Some(1 << 30));
        // In a container with a cgroup namespace.
        let inside = ("proc/self/cgroup", "0::/\n");
        assert_eq!(limit(&[inside, ("sys/fs/cgroup/memory.max", "536870912\n")]), Some(512 << 20));
        // Version 1: a container sees the host's path and its own mount.
        let first = ("proc/self/cgroup", "9:cpu,cpuacct:/\n4:memory:/docker/77\n0::/\n");
        let own = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
        assert_eq!(limit(&[first, own]), Some(256 << 20));
        let none = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(&[first, none]), None);
        let addresses = |bytes: &str| {
            format!(
                "Max cpu time unlimited unlimited seconds\nMax address space  {bytes}  unlimited  bytes\n"
            )
        };
        let (few, all) = (addresses("536870912"), addresses("unlimited"));
        assert_eq!(limit(&[("proc/self/limits", &few)]), Some(128 << 20));
        assert_eq!(limit(&[first, own, ("proc/self/limits", &few)]), Some(128 << 20));
        assert_eq!(limit(&[first, own, ("proc/self/limits", &all)]), Some(256 << 20));
    }

    #[test]
    fn a_system_may_report_no_memory() {
        assert_eq!(memory_of(&[]), Memory { machine_bytes: 0, limit_bytes: None });
        let odd = [("proc/meminfo", "MemTotal: much\n"), ("proc/self/cgroup", "x\n1:memory\n::\n")];
        assert_eq!(memory_of(&odd).usable_bytes(), 0);
    }
}

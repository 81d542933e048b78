//! Figures of the machine from `/proc`, in the form of `systemMetrics` of the reference's
//! diagnostic data. What the system does not report is left out.

use std::fs;
use std::path::Path;

/// Milliseconds of one tick in `/proc/stat`: all supported systems have 100 ticks a second.
const TICK_MS: i64 = 10;

/// The columns of `cpu` in `/proc/stat`.
const CPU_TIMES: [&str; 10] = [
    "user_ms",
    "nice_ms",
    "system_ms",
    "idle_ms",
    "iowait_ms",
    "irq_ms",
    "softirq_ms",
    "steal_ms",
    "guest_ms",
    "guest_nice_ms",
];

/// Lines of `/proc/stat` with one number.
const CPU_NUMBERS: [&str; 5] = ["ctxt", "btime", "processes", "procs_running", "procs_blocked"];

/// The columns of a disk in `/proc/diskstats`, after its name.
const DISK_NUMBERS: [&str; 11] = [
    "reads",
    "reads_merged",
    "read_sectors",
    "read_time_ms",
    "writes",
    "writes_merged",
    "write_sectors",
    "write_time_ms",
    "io_in_progress",
    "io_time_ms",
    "io_queued_ms",
];

/// Lines of `/proc/vmstat` that are shown.
const VM_NUMBERS: [&str; 6] =
    ["pgfault", "pgmajfault", "pswpin", "pswpout", "balloon_deflate", "balloon_inflate"];

/// Names and numbers.
pub type Numbers = Vec<(String, i64)>;

/// Figures of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SystemMetrics {
    /// Times and counts of the processors.
    pub cpu: Numbers,
    /// Memory in KiB.
    pub memory: Numbers,
    /// The physical disks by name.
    pub disks: Vec<(String, Numbers)>,
    /// Counts of virtual memory: page faults and swapping.
    pub vmstat: Numbers,
}

impl SystemMetrics {
    /// Reads the present figures.
    pub fn now() -> SystemMetrics {
        SystemMetrics::below(Path::new("/"))
    }

    /// Reads the system's files below `root`.
    fn below(root: &Path) -> SystemMetrics {
        let text =
            |name: &str| fs::read_to_string(root.join("proc").join(name)).unwrap_or_default();
        // A partition is no folder here; its disk is.
        let is_disk = |name: &str| {
            let is_made_up = ["loop", "ram"].iter().any(|kind| name.starts_with(kind));
            !is_made_up && root.join("sys/block").join(name).exists()
        };
        SystemMetrics {
            cpu: cpu(&text("stat")),
            memory: memory(&text("meminfo")),
            disks: disks(&text("diskstats"), is_disk),
            vmstat: named(&text("vmstat"), &VM_NUMBERS),
        }
    }
}

fn cpu(text: &str) -> Numbers {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let times = all.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok());
    let times = CPU_TIMES.iter().zip(times);
    let mut numbers: Numbers = Vec::new();
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let processors = text.lines().filter(is_processor).count();
    if processors > 0 {
        numbers.push(("num_cpus".to_owned(), i64::try_from(processors).unwrap_or(i64::MAX)));
    }
    let in_ms = |ticks: i64| ticks.saturating_mul(TICK_MS);
    numbers.extend(times.map(|(name, ticks): (_, i64)| ((*name).to_owned(), in_ms(ticks))));
    numbers.extend(named(text, &CPU_NUMBERS));
    numbers
}

/// The lines with these names, each of which has a number.
fn named(text: &str, names: &[&str]) -> Numbers {
    let number = |name: &&str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(((*name).to_owned(), rest.trim().parse().ok()?))
    };
    names.iter().filter_map(number).collect()
}

/// Lines such as `MemTotal:  8388608 kB`.
fn memory(text: &str) -> Numbers {
    let number = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let kib = words.next()?.parse().ok()?;
        (words.next() == Some("kB")).then(|| (format!("{name}_kb"), kib))
    };
    text.lines().filter_map(number).collect()
}

fn disks(text: &str, is_disk: impl Fn(&str) -> bool) -> Vec<(String, Numbers)> {
    let disk = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next().filter(|name| is_disk(name))?;
        let numbers = words.map_while(|word| word.parse().ok());
        let numbers = DISK_NUMBERS.iter().map(|name| (*name).to_owned()).zip(numbers);
        Some((name.to_owned(), numbers.collect()))
    };
    text.lines().filter_map(disk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(SystemMetrics::below(root.path()), SystemMetrics::default());
        write("proc/stat", "cpu  100 2 30 4000 5\ncpu0 1 2\ncpu1 3 4\nctxt 77\nbtime 9\nodd x\n");
        write("proc/meminfo", "MemTotal:  800 kB\nHugePages_Total: 3\nbroken\nDirty: x kB\n");
        write(
            "proc/diskstats",
            " 8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12\n 8 1 sda1 1 2\n 7 0 loop0 1\nx\n",
        );
        write("proc/vmstat", "nr_x 1\npgfault 5\npgfault_x 6\npgmajfault y\n");
        write("sys/block/sda/size", "1");
        write("sys/block/loop0/size", "1");
        let found = SystemMetrics::below(root.path());
        let shown = |numbers: &Numbers| {
            numbers.iter().map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(&found.cpu),
            "num_cpus=2 user_ms=1000 nice_ms=20 system_ms=300 idle_ms=40000 iowait_ms=50 ctxt=77 btime=9"
        );
        assert_eq!(
            (shown(&found.memory), shown(&found.vmstat)),
            ("MemTotal_kb=800".into(), "pgfault=5".into())
        );
        let [(name, disk)] = &found.disks[..] else { panic!("{:?}", found.disks) };
        assert_eq!((name.as_str(), disk.len(), disk[4].1), ("sda", 11, 5));
    }
}

//! Resource use of this process as reported by the operating system; zero where it reports nothing.

use std::fs;

/// The size of a memory page on all supported machines.
pub const PAGE_BYTES: u64 = 4096;

/// The memory use of this process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Bytes in physical memory.
    pub resident: u64,
    /// The address space.
    pub mapped: u64,
}

/// The current memory use of this process.
pub fn memory() -> Memory {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let (mapped, resident) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    Memory { resident: resident * PAGE_BYTES, mapped: mapped * PAGE_BYTES }
}

/// The number of major page faults of this process.
pub fn page_faults() -> i64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain spaces, so fields are counted from the closing parenthesis: the tenth is
    // majflt.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(9).and_then(|word| word.parse().ok()).unwrap_or(0)
}

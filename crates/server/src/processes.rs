//! Finds the process that blocks a port or a lock, in `/proc`: a best effort for error messages.
//! Processes of other systems, users and containers are not found.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// The largest number of processes, and of open files of one, that are searched.
const MAX_ENTRIES: usize = 100_000;

/// The process that listens on this address: `mayflydb, process 12`.
pub(crate) fn listening_on(address: SocketAddr) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().skip(1).find_map(|line| listening_inode(line, address))
    })?;
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    process_ids().find(|id| has_open(*id, &socket)).map(shown)
}

/// The process that holds a lock on this file: `mayflydb, process 12`.
pub(crate) fn holding_lock(file: &Path) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    let path = fs::canonicalize(file).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut holders = locks.lines().filter_map(|line| lock_holder(line, metadata.ino()));
    // An inode is only unique within its file system.
    holders.find(|id| *id == std::process::id() || has_open(*id, &path)).map(shown)
}

/// Parses a line of `/proc/net/tcp`: the inode of the socket if it listens on this port, on this
/// address or on all.
fn listening_inode(line: &str, address: SocketAddr) -> Option<u64> {
    let mut words = line.split_whitespace().skip(1);
    let (ip, port) = words.next()?.split_once(':')?;
    let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let state = words.nth(1)?;
    let same_place = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    if state != LISTENING || port != address.port() || !same_place {
        return None;
    }
    words.nth(5)?.parse().ok()
}

/// Parses an address in the kernel's format: words of 32 bits in native byte order.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for at in 0..4 {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

/// Parses a line of `/proc/locks`: the process that holds a lock on the file with this inode.
fn lock_holder(line: &str, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        // A waiting process has an arrow after the number.
        [_, "POSIX", _, "WRITE", id, file, ..] => {
            (file.rsplit(':').next()?.parse() == Ok(inode)).then_some(())?;
            id.parse().ok()
        }
        _ => None,
    }
}

fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has a file open; false if its files may not be read.
fn has_open(id: u32, path: &Path) -> bool {
    let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    files.take(MAX_ENTRIES).any(|file| fs::read_link(file.path()).is_ok_and(|to| to == path))
}

fn shown(id: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("process {id}"),
        name => format!("{name}, process {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:6989 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100";
        let at = |text: &str| listening_inode(line, text.parse().unwrap());
        assert_eq!(at("127.0.0.1:27017"), Some(4711));
        assert_eq!(at("0.0.0.0:27017"), Some(4711));
        assert_eq!(at("127.0.0.2:27017"), None);
        assert_eq!(at("127.0.0.1:27018"), None);
        let connected = line.replace(" 0A ", " 01 ");
        assert_eq!(listening_inode(&connected, "127.0.0.1:27017".parse().unwrap()), None);
        assert_eq!(listening_inode("sl local_address", "127.0.0.1:1".parse().unwrap()), None);
        let loopback = "00000000000000000000000001000000";
        assert_eq!(parse_ip(loopback), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(parse_ip("0000"), None);
        let lock = "1: POSIX  ADVISORY  WRITE 120 fe:01:4712 0 EOF";
        assert_eq!(lock_holder(lock, 4712), Some(120));
        assert_eq!(lock_holder(lock, 712), None);
        assert_eq!(lock_holder("1: -> POSIX ADVISORY WRITE 120 fe:01:4712 0 EOF", 4712), None);
        assert_eq!(lock_holder("", 4712), None);
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = listening_on(listener.local_addr().unwrap());
        let id = format!("process {}", std::process::id());
        // Nothing is found without /proc.
        assert!(found.is_none_or(|found| found.ends_with(&id)));
    }
}

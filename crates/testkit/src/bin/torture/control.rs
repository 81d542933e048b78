//! Controls which file calls the layer below the server (`tests/torture/files.c`) makes fail,
//! through a shared file with the layout of its `struct control`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) const OPEN: u32 = 1;
pub(crate) const READ: u32 = 1 << 1;
pub(crate) const WRITE: u32 = 1 << 2;
pub(crate) const RESIZE: u32 = 1 << 3;
pub(crate) const RENAME: u32 = 1 << 4;
pub(crate) const UNLINK: u32 = 1 << 5;
pub(crate) const LINK: u32 = 1 << 6;
pub(crate) const MKDIR: u32 = 1 << 7;
pub(crate) const SYNC: u32 = 1 << 8;
pub(crate) const SYNC_FOLDER: u32 = 1 << 9;

pub(crate) const LOG: u32 = 1;
pub(crate) const TABLE: u32 = 2;
pub(crate) const MANIFEST: u32 = 4;
pub(crate) const ALL: u32 = 15;

pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
/// A short write: half of the bytes are written, and the call returns their number.
pub(crate) const SHORT: i32 = -1;

const BYTES: usize = 56;
/// The offset at which the layer counts the calls that matched, and those that failed.
const SEEN_AT: u64 = 40;
const INJECTED_AT: u64 = 48;

/// A kind of file call that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kinds: u32,
    pub(crate) classes: u32,
    pub(crate) error: i32,
    pub(crate) delay_ms: u32,
    /// The number of calls that fail.
    pub(crate) times: u64,
}

/// The shared file.
pub(crate) struct Control(File);

impl Control {
    /// Creates the file; no call fails yet.
    pub(crate) fn new(path: &Path) -> io::Result<Control> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&[0; BYTES], 0)?;
        Ok(Control(file))
    }

    /// Lets matching calls fail, from the call with this number on; the first one has number 1.
    pub(crate) fn arm(&self, fault: Fault, from: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(BYTES);
        for word in [0, fault.kinds, fault.classes, fault.error as u32, fault.delay_ms, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for word in [from, fault.times, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        self.0.write_all_at(&bytes, 0)?;
        self.0.write_all_at(&1_u32.to_le_bytes(), 0)
    }

    /// Lets no call fail any more.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.0.write_all_at(&0_u32.to_le_bytes(), 0)
    }

    /// The number of matching calls since the fault was armed.
    pub(crate) fn seen(&self) -> io::Result<u64> {
        self.word(SEEN_AT)
    }

    /// The number of calls that failed.
    pub(crate) fn injected(&self) -> io::Result<u64> {
        self.word(INJECTED_AT)
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

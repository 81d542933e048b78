//! The file `commit`, which names the segments of an index and its position.
//!
//! ```text
//!  "mayflySX" | format u32 | fingerprint of the definition u32 | position u64
//!  next number u64 | count u32 | (number u64 | generation u64)* | CRC-32C u32
//! ```

use super::IndexError;
use super::folder::{Folder, checked, deletions_name, segment_name};

const NAME: &str = "commit";
const MAGIC: &[u8; 8] = b"mayflySX";
const FORMAT: u32 = 1;

/// A segment, and the number of its file of deletions; 0: it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEntry {
    pub(super) number: u64,
    pub(super) generation: u64,
}

/// The content of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommitFile {
    pub(super) fingerprint: u32,
    pub(super) position: u64,
    pub(super) next: u64,
    pub(super) segments: Vec<SegmentEntry>,
}

impl CommitFile {
    /// Reads the file. `None`: the index was never committed.
    pub(super) fn read(
        folder: &Folder,
        fingerprint: u32,
    ) -> Result<Option<CommitFile>, IndexError> {
        let Some(bytes) = folder.read(NAME)? else { return Ok(None) };
        let rebuild = |reason: &str| IndexError::Rebuild(reason.to_owned());
        if !bytes.starts_with(MAGIC) {
            return Err(rebuild("the file of commits is foreign"));
        }
        let content = checked(&bytes).ok_or_else(|| rebuild("the file of commits is damaged"))?;
        let file = parse(&content[MAGIC.len()..])
            .ok_or_else(|| rebuild("the file of commits has another format"))?;
        if file.fingerprint != fingerprint {
            return Err(rebuild("the files belong to another definition"));
        }
        Ok(Some(file))
    }

    pub(super) fn write(&self, folder: &Folder) -> std::io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.fingerprint.to_le_bytes());
        bytes.extend_from_slice(&self.position.to_le_bytes());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for entry in &self.segments {
            bytes.extend_from_slice(&entry.number.to_le_bytes());
            bytes.extend_from_slice(&entry.generation.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        folder.write_bytes(NAME, &bytes)
    }

    /// The names of the files that it refers to.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in &self.segments {
            names.push(segment_name(entry.number));
            if entry.generation != 0 {
                names.push(deletions_name(entry.number, entry.generation));
            }
        }
        names
    }
}

fn parse(bytes: &[u8]) -> Option<CommitFile> {
    let (format, bytes) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*format) != FORMAT {
        return None;
    }
    let (fingerprint, bytes) = bytes.split_first_chunk::<4>()?;
    let (position, bytes) = bytes.split_first_chunk::<8>()?;
    let (next, bytes) = bytes.split_first_chunk::<8>()?;
    let (count, bytes) = bytes.split_first_chunk::<4>()?;
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    if numbers.len() != u32::from_le_bytes(*count) as usize * 2 {
        return None;
    }
    let entry = |pair: &[[u8; 8]]| SegmentEntry {
        number: u64::from_le_bytes(pair[0]),
        generation: u64::from_le_bytes(pair[1]),
    };
    Some(CommitFile {
        fingerprint: u32::from_le_bytes(*fingerprint),
        position: u64::from_le_bytes(*position),
        next: u64::from_le_bytes(*next),
        segments: numbers.chunks_exact(2).map(entry).collect(),
    })
}

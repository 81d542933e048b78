//! The container of a segment: sections, a directory, and a checksum of everything.
//!
//! ```text
//!  "mayflySG"                                    8 bytes
//!  sections                                      each begins at a multiple of 8
//!  directory    count u32, then for each section:
//!               kind u8 | field u16 | offset u64 | length u64
//!  trailer      offset of the directory u64 | format u32 | CRC-32C of all bytes before it u32
//! ```

use std::io::{self, Write};
use std::ops::Range;

use super::IndexError;

const MAGIC: &[u8; 8] = b"mayflySG";
/// Format 1 had the terms of other analyzers, and no numbers of words.
const FORMAT: u32 = 2;
const TRAILER: usize = 16;
const ENTRY: usize = 19;

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SectionKind {
    /// Offsets of the record keys, u32 each.
    KeyOffsets = 1,
    /// Record keys, in the order of the ordinals.
    Keys = 2,
    /// Times of versions, i64 each.
    Versions = 3,
    /// Ordinals of the documents with a vector, u32 each.
    VectorOrdinals = 4,
    /// Vectors, in the order of these ordinals.
    VectorData = 5,
    /// Lengths of the vectors, f32 each.
    VectorLengths = 6,
    /// Codes of the vectors.
    Codes = 7,
    /// Steps of the codes, f32 each.
    CodeSteps = 8,
    /// The sections of [`crate::filter::Column`].
    ValueOffsets = 9,
    Values = 10,
    ListOffsets = 11,
    Lists = 12,
    /// Ordinals in the order of their record keys, u32 each.
    KeyOrder = 13,
    /// The table of fields.
    FieldTable = 14,
    /// The name of the files of postings.
    PostingsName = 15,
    /// For each field the number of its documents, u32, and the number of its words, u64.
    PostingsCounts = 16,
    /// A file of postings, by its place in [`crate::text::postings::FILES`].
    PostingsFile = 17,
    /// The two sections of a graph over vectors ([`crate::vector::graph`]).
    GraphLinks = 18,
    GraphUpper = 19,
    /// Offsets of the stored fields, u64 each.
    SourceOffsets = 20,
    /// The stored fields of all documents, in the order of the ordinals.
    Sources = 21,
}

/// The name of a section: its kind, and the field and element type that it belongs to.
pub(super) type SectionName = (SectionKind, u16);

/// Writes a container.
pub(super) struct Writer<W: Write> {
    out: io::BufWriter<W>,
    crc: u32,
    at: u64,
    sections: Vec<(SectionName, u64, u64)>,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> io::Result<Writer<W>> {
        let out = io::BufWriter::with_capacity(1 << 18, out);
        let mut writer = Writer { out, crc: 0, at: 0, sections: Vec::new() };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    /// Begins a section; the bytes that follow belong to it.
    pub(super) fn begin(&mut self, kind: SectionKind, field: u16) -> io::Result<()> {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.put_outside(&[0; 8][..padding as usize])?;
        self.sections.push(((kind, field), self.at, 0));
        Ok(())
    }

    /// Adds bytes to the section.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put_outside(bytes)?;
        if let Some(section) = self.sections.last_mut() {
            section.2 = self.at - section.1;
        }
        Ok(())
    }

    /// Adds bytes that belong to no section.
    fn put_outside(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes the directory and the trailer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let directory = self.at;
        let sections = std::mem::take(&mut self.sections);
        self.put(&(sections.len() as u32).to_le_bytes())?;
        for ((kind, field), offset, length) in sections {
            self.put(&[kind as u8])?;
            self.put(&field.to_le_bytes())?;
            self.put(&offset.to_le_bytes())?;
            self.put(&length.to_le_bytes())?;
        }
        self.put(&directory.to_le_bytes())?;
        self.put(&FORMAT.to_le_bytes())?;
        let crc = self.crc;
        self.put(&crc.to_le_bytes())?;
        self.out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// The sections of a checked container.
#[derive(Debug)]
pub(super) struct Sections(Vec<(u8, u16, Range<usize>)>);

impl Sections {
    /// Checks a container and reads its directory.
    ///
    /// # Errors
    /// [`IndexError::Rebuild`].
    pub(super) fn read(bytes: &[u8]) -> Result<Sections, IndexError> {
        let damaged = |what: &str| IndexError::Rebuild(format!("a segment {what}"));
        if bytes.len() < MAGIC.len() + TRAILER || !bytes.starts_with(MAGIC) {
            return Err(damaged("is not a segment"));
        }
        let (content, trailer) = bytes.split_at(bytes.len() - TRAILER);
        let format = number(&trailer[8..12]) as u32;
        if format != FORMAT {
            return Err(damaged("has another format"));
        }
        if crc32c::crc32c(&bytes[..bytes.len() - 4]) != number(&trailer[12..]) as u32 {
            return Err(damaged("is damaged"));
        }
        let directory = usize::try_from(number(&trailer[..8])).unwrap_or(usize::MAX);
        let sections = content.get(directory..).and_then(|directory| {
            let (count, entries) = directory.split_first_chunk::<4>()?;
            let count = u32::from_le_bytes(*count) as usize;
            let entries = entries.get(..count.checked_mul(ENTRY)?)?;
            entries.chunks_exact(ENTRY).map(|entry| section(entry, content.len())).collect()
        });
        sections.map(Sections).ok_or_else(|| damaged("has a damaged directory"))
    }

    /// The bytes of a section; `None`: there is none with this name.
    pub(super) fn get(&self, (kind, field): SectionName) -> Option<Range<usize>> {
        let is_it =
            |section: &&(u8, u16, Range<usize>)| section.0 == kind as u8 && section.1 == field;
        self.0.iter().find(is_it).map(|section| section.2.clone())
    }
}

fn section(entry: &[u8], end: usize) -> Option<(u8, u16, Range<usize>)> {
    let offset = usize::try_from(number(&entry[3..11])).ok()?;
    let length = usize::try_from(number(&entry[11..19])).ok()?;
    let last = offset.checked_add(length).filter(|last| *last <= end)?;
    Some((entry[0], number(&entry[1..3]) as u16, offset..last))
}

/// The little-endian number in up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

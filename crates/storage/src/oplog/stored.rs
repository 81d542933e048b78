//! The layout of the log's entries in the byte store.
//!
//! ```text
//! entry       | 1 | flags | length for readers, 4 bytes little-endian | VERSION: timestamp, 8 bytes little-endian | BSON | DEFINITIONS: BSON |
//!
//! reference   BinData(0x80):  | collection id, 8 bytes big-endian | list of record keys |
//! list        for each key    | its length, varint, not 0 | the key |
//!             or for several  | 0 | the first one, 8 bytes | how many, varint |      consecutive numbers
//! ```
//!
//! A document in a record is not repeated: `o` of its insert or replacement is a reference, and the
//! entry has the flag REFERS. The record's header contains the *version* of the entry that refers
//! to it: the entry's own timestamp, or that of the commit if the entry is one of several of a
//! transaction (VERSION). Consecutive inserts into one collection are one item with all their keys,
//! which counts as that many operations.
//!
//! An entry with the flag DEFINITIONS ends with the catalog documents of the collections that its
//! commands have created or changed, by the position of the item. Readers of the log do not see
//! them: they are for the archive, because a replay needs the result of a command.
//!
//! Consecutive deletions from one collection are one item as well. Its `o` is a list of `_id`s
//! ([`super::ids`]), and the entry has the flag IDS.

use std::ops::RangeInclusive;

use mayfly_base::Result;
use mayfly_kv::{Gap, KeyRange, Which};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::gaps::{Gaps, Version};
use super::read::unreadable;
use super::varint::{put_varint, take_varint};
use crate::record::layout::prefixed;

const FORMAT: u8 = 1;
/// Flag: at least one `o` is a reference.
const REFERS: u8 = 1;
/// Flag: the header contains the version.
const VERSION: u8 = 2;
/// Flag: catalog documents follow the entry.
const DEFINITIONS: u8 = 4;
/// Flag: at least one `o` is a list of ids.
const IDS: u8 = 8;

/// The length of the header before the BSON of an entry.
const HEADER: usize = 6;
/// The length of a header with a version.
const VERSIONED_HEADER: usize = 14;

/// The binary subtype of a reference.
const REFERENCE: u8 = 0x80;
/// The length of a reference to one numbered record or to a run of them, or more.
const ONE_RECORD: usize = 32;
/// The length of a binary value without its bytes.
const BINARY_FRAME: usize = 5;

/// Begins an entry, with room for its header.
pub(super) fn begin(room: usize, versioned: bool) -> DocBuilder {
    let header = if versioned { VERSIONED_HEADER } else { HEADER };
    let mut buffer = Vec::with_capacity(header + room);
    buffer.resize(header, 0);
    DocBuilder::in_buffer(buffer)
}

/// What an entry stores in another form than readers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    /// At least one `o` is a reference.
    pub(super) refers: bool,
    /// At least one `o` is a list of ids.
    pub(super) lists_ids: bool,
}

impl Packed {
    fn flags(self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.refers, REFERS) | flag(self.lists_ids, IDS)
    }

    /// Whether readers see another form at all.
    pub(super) fn any(self) -> bool {
        self.flags() != 0
    }
}

/// An encoded entry. The commit fills its timestamps in.
pub(crate) struct StoredEntry {
    value: Vec<u8>,
    gaps: Gaps,
    header: usize,
    /// Where the fields end.
    end: usize,
    /// The length for readers, in bytes.
    logical: u64,
}

impl StoredEntry {
    /// Writes the header of an entry that [`begin`] began. The length for readers is greater by
    /// `excess`.
    pub(super) fn seal(
        entry: DocBuilder,
        excess: i64,
        packed: Packed,
        version: Version,
        mut gaps: Gaps,
    ) -> Self {
        let mut value = entry.finish_buffer();
        let header = if version == Version::OfCommit { VERSIONED_HEADER } else { HEADER };
        let logical = ((value.len() - header) as i64 + excess).max(0) as u64;
        value[0] = FORMAT;
        value[1] = packed.flags() | if version == Version::OfCommit { VERSION } else { 0 };
        // A transaction of the engine is far smaller than 4 GB.
        let shown = u32::try_from(logical).unwrap_or(u32::MAX);
        value[2..HEADER].copy_from_slice(&shown.to_le_bytes());
        if version == Version::OfCommit {
            gaps.add(Gap::Value(HEADER, Which::Last));
        }
        let end = value.len();
        StoredEntry { value, gaps, header, end, logical: shown.into() }
    }

    /// Adds catalog documents, by the position of the item.
    pub(super) fn with_definitions(mut self, definitions: &[(usize, DocBuf)]) -> StoredEntry {
        if definitions.is_empty() {
            return self;
        }
        let mut all = DocBuilder::new();
        for (item, definition) in definitions {
            all.append(&item.to_string(), definition);
        }
        self.value[1] |= DEFINITIONS;
        self.value.extend_from_slice(all.finish().as_bytes());
        self
    }

    /// The value for the byte store.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The gaps of its key, which is a timestamp, and of the value.
    pub(crate) fn gaps(&self) -> &[Gap] {
        self.gaps.list()
    }

    /// The fields, with references to records instead of their documents, and lists of ids. The
    /// timestamps are not filled in.
    pub(crate) fn fields(&self) -> RawDoc<'_> {
        RawDoc::new(&self.value[self.header..self.end]).unwrap_or(RawDoc::EMPTY)
    }

    /// The length for readers, in bytes.
    pub(crate) fn logical_bytes(&self) -> u64 {
        self.logical
    }
}

/// A decoded entry.
#[derive(Clone, Copy)]
pub(crate) struct DecodedEntry<'v> {
    /// The fields, with references to records instead of their documents, and lists of ids.
    pub(crate) fields: RawDoc<'v>,
    /// The length for readers, in bytes.
    pub(crate) logical: u64,
    pub(super) packed: Packed,
    /// The version in the headers of its records, if it is not the entry's own timestamp.
    pub(super) version: Option<u64>,
    /// Catalog documents by the position of the item, if the entry has some.
    pub(super) definitions: Option<RawDoc<'v>>,
}

/// Decodes a stored entry.
pub(crate) fn decode(value: &[u8]) -> Option<DecodedEntry<'_>> {
    let (header, _) = value.split_first_chunk::<HEADER>()?;
    let [FORMAT, flags, logical @ ..] = *header else { return None };
    let logical = u64::from(u32::from_le_bytes(logical));
    let (version, document) = match flags & VERSION {
        0 => (None, value.get(HEADER..)?),
        _ => {
            let version = value.get(HEADER..VERSIONED_HEADER)?.try_into().ok()?;
            (Some(u64::from_le_bytes(version)), value.get(VERSIONED_HEADER..)?)
        }
    };
    if flags & !(REFERS | VERSION | DEFINITIONS | IDS) != 0 {
        return None;
    }
    let (document, definitions) = match flags & DEFINITIONS {
        0 => (document, None),
        _ => {
            let length = u32::from_le_bytes(*document.first_chunk()?);
            let (document, rest) = document.split_at_checked(usize::try_from(length).ok()?)?;
            (document, Some(RawDoc::new(rest)?))
        }
    };
    let fields = RawDoc::new(document)?;
    let packed = Packed { refers: flags & REFERS != 0, lists_ids: flags & IDS != 0 };
    Some(DecodedEntry { fields, logical, packed, version, definitions })
}

/// Builds a reference.
#[derive(Default)]
pub(super) struct ReferenceBuilder {
    bytes: Vec<u8>,
    /// Consecutive numbers that are not written yet: the first one, and how many.
    run: (u64, u64),
}

impl ReferenceBuilder {
    /// Starts a reference to records of this collection.
    pub(super) fn begin(&mut self, collection: u64) {
        self.bytes.clear();
        self.bytes.reserve(ONE_RECORD);
        self.bytes.extend_from_slice(&collection.to_be_bytes());
        self.run = (0, 0);
    }

    /// Adds a record. Its key must not be empty.
    pub(super) fn push(&mut self, record_key: &[u8]) {
        let number = record_key.try_into().ok().map(u64::from_be_bytes);
        let (first, count) = self.run;
        match number {
            Some(number) if count > 0 && first.checked_add(count) == Some(number) => {
                self.run.1 += 1;
            }
            Some(number) => {
                self.end_run();
                self.run = (number, 1);
            }
            None => {
                self.end_run();
                put_varint(&mut self.bytes, record_key.len() as u64);
                self.bytes.extend_from_slice(record_key);
            }
        }
    }

    fn end_run(&mut self) {
        let (first, count) = std::mem::take(&mut self.run);
        match count {
            0 => return,
            1 => self.bytes.push(8),
            _ => self.bytes.push(0),
        }
        self.bytes.extend_from_slice(&first.to_be_bytes());
        if count > 1 {
            put_varint(&mut self.bytes, count);
        }
    }

    /// The value of `o`, and its length in BSON.
    pub(super) fn value(&mut self) -> (RawValue<'_>, usize) {
        self.end_run();
        let bytes = &self.bytes;
        (RawValue::Binary { subtype: REFERENCE, bytes }, BINARY_FRAME + bytes.len())
    }
}

/// Iterates over the record keys of an item. A damaged list ends with an error.
pub(super) struct References<'v> {
    pub(super) collection: u64,
    list: &'v [u8],
    /// The rest of a run of numbers: the next one, and how many are left.
    run: (u64, u64),
}

/// A record key in a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyInLog<'v> {
    Bytes(&'v [u8]),
    /// A number of a run, and how many are left, including this one.
    Number {
        number: u64,
        left: u64,
    },
}

/// The ranges of the records of a collection that a stored entry refers to.
pub(crate) fn records_of(entry: &[u8], collection: u64) -> Vec<Result<KeyRange>> {
    let Some(entry) = decode(entry).filter(|entry| entry.packed.refers) else { return Vec::new() };
    let items = entry.fields.get("o").and_then(RawValue::as_document);
    let items = items.and_then(|command| command.get("applyOps")).and_then(RawValue::as_array);
    let single = items.is_none().then(|| entry.fields.get("o"));
    let several = items.into_iter().flatten().filter_map(|item| item.value().as_document());
    let mut ranges = Vec::new();
    for value in single.into_iter().chain(several.map(|item| item.get("o"))) {
        let Some(references) = References::of(value).filter(|it| it.collection == collection)
        else {
            continue;
        };
        let mut run: Option<RangeInclusive<u64>> = None;
        for key in references {
            match key {
                Ok(KeyInLog::Bytes(key)) => ranges.push(Ok(one_record(collection, key))),
                Ok(KeyInLog::Number { number, .. })
                    if run.as_ref().is_some_and(|run| run.contains(&number)) => {}
                // A whole run is one range.
                Ok(KeyInLog::Number { number, left }) => {
                    let last = number.saturating_add(left - 1);
                    run = Some(number..=last);
                    let start = prefixed(collection, &number.to_be_bytes());
                    let KeyRange { end, .. } = one_record(collection, &last.to_be_bytes());
                    ranges.push(Ok(KeyRange { start, end }));
                }
                Err(DamagedList) => ranges.push(Err(unreadable())),
            }
        }
    }
    ranges
}

fn one_record(collection: u64, record_key: &[u8]) -> KeyRange {
    let start = prefixed(collection, record_key);
    let end = [&start[..], &[0]].concat();
    KeyRange { start, end }
}

/// A list of record keys that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedList;

impl<'v> References<'v> {
    /// The record keys of this value, if it is a reference.
    pub(super) fn of(value: Option<RawValue<'v>>) -> Option<References<'v>> {
        let Some(RawValue::Binary { subtype: REFERENCE, bytes }) = value else { return None };
        // A value that is too short gets a damaged list.
        let (collection, list) = bytes.split_first_chunk::<8>().unwrap_or((&[0; 8], &[0x80]));
        Some(References { collection: u64::from_be_bytes(*collection), list, run: (0, 0) })
    }

    fn take(&mut self) -> Option<KeyInLog<'v>> {
        let length = usize::try_from(take_varint(&mut self.list)?).ok()?;
        if length > 0 {
            let (key, rest) = self.list.split_at_checked(length)?;
            self.list = rest;
            return Some(KeyInLog::Bytes(key));
        }
        let (first, rest) = self.list.split_first_chunk::<8>()?;
        self.list = rest;
        let first = u64::from_be_bytes(*first);
        let count = take_varint(&mut self.list)?;
        // The store never writes a run past the largest number.
        first.checked_add(count.checked_sub(1)?)?;
        self.run = (first.wrapping_add(1), count - 1);
        Some(KeyInLog::Number { number: first, left: count })
    }
}

impl<'v> Iterator for References<'v> {
    type Item = std::result::Result<KeyInLog<'v>, DamagedList>;

    fn next(&mut self) -> Option<Self::Item> {
        if let (number, left @ 1..) = self.run {
            self.run = (number.wrapping_add(1), left - 1);
            return Some(Ok(KeyInLog::Number { number, left }));
        }
        if self.list.is_empty() {
            return None;
        }
        let key = self.take();
        if key.is_none() {
            self.list = &[];
        }
        Some(key.ok_or(DamagedList))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(list: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut builder = ReferenceBuilder::default();
        builder.begin(7);
        list.iter().for_each(|key| builder.push(key));
        let (value, length) = builder.value();
        let mut document = DocBuilder::new();
        document.append("o", value);
        let document = document.finish();
        assert_eq!(
            length + 8,
            document.as_bytes().len(),
            "the length, a name and a document's frame"
        );
        let read = References::of(document.as_doc().get("o")).unwrap();
        assert_eq!(read.collection, 7);
        let found = read.map(|key| match key.unwrap() {
            KeyInLog::Bytes(key) => key.to_vec(),
            KeyInLog::Number { number, .. } => number.to_be_bytes().to_vec(),
        });
        (builder.bytes, found.collect())
    }

    #[test]
    fn record_keys_come_back_in_their_order() {
        let number = |n: u64| n.to_be_bytes().to_vec();
        let long = vec![9; 300];
        let lists = [
            vec![vec![1]],
            vec![number(5)],
            vec![number(5), number(6)],
            vec![number(5), number(6), number(8), number(7), vec![1, 2], number(8), number(9)],
            vec![number(u64::MAX - 1), number(u64::MAX), number(0), number(1)],
            vec![long, vec![0; 8], vec![1]],
            (0..1000).map(|n| number(1 << 40 | n)).collect(),
        ];
        for list in lists {
            let given: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
            let (bytes, found) = keys(&given);
            assert_eq!(found, list);
            if list.len() == 1000 {
                assert_eq!(bytes.len(), 8 + 1 + 8 + 2);
            }
        }
    }

    #[test]
    fn damaged_lists_are_noticed() {
        let read = |list: &[u8]| {
            let bytes = [&[0; 8], list].concat();
            let value = RawValue::Binary { subtype: REFERENCE, bytes: &bytes };
            let read = References::of(Some(value)).unwrap();
            read.take(3).map(|key| key.map(|_| ())).collect::<Vec<_>>()
        };
        for list in [
            &[5, 1][..],
            &[0, 1, 2, 3],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[0, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            &[0x80],
            &[0xFF; 12],
        ] {
            assert_eq!(read(list), [Err(DamagedList)], "{list:?}");
        }
        let short = RawValue::Binary { subtype: REFERENCE, bytes: &[1, 2] };
        assert_eq!(References::of(Some(short)).unwrap().next(), Some(Err(DamagedList)));
    }

    #[test]
    fn headers_round_trip_and_others_are_refused() {
        let all = [
            (Version::Own, None, false, true),
            (Version::Own, None, true, false),
            (Version::OfCommit, Some(0), true, true),
        ];
        for (kind, version, refers, lists_ids) in all {
            let mut entry = begin(0, kind == Version::OfCommit);
            entry.append("op", "n");
            let packed = Packed { refers, lists_ids };
            let entry = StoredEntry::seal(entry, 100, packed, kind, Gaps::of_entry(0));
            assert_eq!(entry.gaps().len(), 1 + usize::from(version.is_some()));
            let fields = entry.fields().as_bytes().len() as u64;
            assert_eq!(entry.logical_bytes(), fields + 100);
            let read = decode(entry.value()).unwrap();
            assert_eq!((read.logical, read.packed, read.version), (fields + 100, packed, version));
            assert_eq!(read.fields, entry.fields());
            for end in 0..entry.value().len() {
                assert!(decode(&entry.value()[..end]).is_none());
            }
            for at in [0, 1] {
                let mut value = entry.value().to_vec();
                value[at] = 0x70;
                assert!(decode(&value).is_none());
            }
        }
    }

    #[test]
    fn definitions_follow_the_entry() {
        let mut entry = begin(0, false);
        entry.append("op", "c");
        let entry = StoredEntry::seal(entry, 0, Packed::default(), Version::Own, Gaps::of_entry(0));
        let (fields, logical) = (entry.fields().to_owned(), entry.logical_bytes());
        let mut definition = DocBuilder::new();
        definition.append("ns", "d.c");
        let definition = definition.finish();
        let entry = entry.with_definitions(&[(2, definition.clone())]);
        assert_eq!((entry.fields(), entry.logical_bytes()), (fields.as_doc(), logical));
        let read = decode(entry.value()).unwrap();
        assert_eq!((read.fields, read.logical), (fields.as_doc(), logical));
        let found = read.definitions.and_then(|all| all.get("2")).and_then(RawValue::as_document);
        assert_eq!(found, Some(definition.as_doc()));
        for end in 0..entry.value().len() {
            assert!(decode(&entry.value()[..end]).is_none());
        }
    }
}

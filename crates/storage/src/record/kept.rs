//! Rows of kept versions: documents that the oplog refers to and that are no longer in their
//! record. This file encodes the rows and groups versions into them.
//!
//! ```text
//! key     | timestamp of the log's entry, 8 bytes big-endian | collection id, 8 bytes | record key; of several the greatest one |
//! value   | the document, BSON |
//!         or of several versions:
//!         | 0, 4 bytes | for each: last byte of its record key | its document, BSON |
//!         or of retired records, which have the documents:
//!         | 2, 4 bytes little-endian | bytes of their documents, 8 bytes little-endian | for each: last byte of its record key |
//!         as earlier builds wrote it, without the bytes:
//!         | 1, 4 bytes little-endian | for each: last byte of its record key |
//! ```
//!
//! Versions share a row when one unit removes them one after the other, they belong to the same
//! entry and collection, and their record keys differ in the last byte only, as consecutive numbers
//! do. A look-up therefore finds a version in the row of its own key or in a later one, and reads
//! at most 255 other rows, however many documents the entry has.
//!
//! Unless several versions are expected, the first version of such a run has a row of its own, so
//! that a change of a single document copies it only once.

use mayfly_base::Result;
use mayfly_kv::KeyRange;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

/// The first bytes of a row of several versions. A BSON document never starts with length 0.
const SEVERAL: [u8; 4] = [0; 4];

/// The first bytes of a row of retired records. No BSON document is so short.
const RETIRED: [u8; 4] = [2, 0, 0, 0];

/// The same in a row without the bytes of the documents.
const RETIRED_ALONE: [u8; 4] = [1, 0, 0, 0];

/// The size at which a row takes no further version. Every engine takes values of this length. A
/// look-up reads the whole row.
const ROW_BYTES: usize = 128 << 10;

/// A new row reserves memory for this many versions of the length of the first one.
const EXPECTED: usize = 12;

/// The length of a row's key before the record key.
const PREFIX_BYTES: usize = 16;

/// A version of a record that an entry of the log refers to.
#[derive(Clone, Copy)]
pub(crate) struct KeptVersion<'a> {
    /// The timestamp of the entry.
    pub timestamp: u64,
    /// The collection's id.
    pub collection: u64,
    /// The key of the record, not empty.
    pub record_key: &'a [u8],
    pub document: RawDoc<'a>,
}

/// A record that is retired, because an entry of the log refers to it.
#[derive(Clone, Copy)]
pub(crate) struct RetiredRecord<'a> {
    /// The timestamp of the entry.
    pub timestamp: u64,
    /// The collection's id.
    pub collection: u64,
    /// The key of the record, not empty.
    pub record_key: &'a [u8],
    /// The length of the document.
    pub bytes: usize,
}

/// Retired records whose documents stay until the log is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetiredTally {
    /// The number of records.
    pub documents: i64,
    /// The bytes of BSON.
    pub bytes: i64,
}

impl RetiredTally {
    /// Appends the field `retired`: null if the tally is not known, else the number of documents
    /// and their bytes in units of `scale`.
    pub fn append(tally: Option<RetiredTally>, scale: i64, out: &mut DocBuilder) {
        let Some(RetiredTally { documents, bytes }) = tally else {
            out.append("retired", RawValue::Null);
            return;
        };
        out.start_document("retired").append("documents", documents);
        out.append("bytes", bytes / scale.max(1)).end();
    }
}

/// A stored row of retired records.
pub(crate) struct RetiredRow<'a> {
    timestamp: u64,
    /// The collection's id, followed by the greatest record key.
    key: &'a [u8],
    last_bytes: &'a [u8],
    bytes: u64,
}

/// Writes a row, given its key and its value.
pub(crate) type PutRow<'p> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'p;

/// Groups versions into rows.
#[derive(Default)]
pub(crate) struct KeptRows {
    /// The key of the current row, or of the row of the first version when there is no current row.
    key: Vec<u8>,
    /// The value of the current row; empty when there is none.
    value: Vec<u8>,
    /// The key of the version that is being added.
    next: Vec<u8>,
    several: bool,
}

impl KeptRows {
    /// Announces that several versions follow, so that the first one shares its row.
    pub(crate) fn expect_several(&mut self) {
        self.several = true;
    }

    /// Adds a version, and writes the rows that are complete.
    ///
    /// # Errors
    /// Errors of `put`.
    pub(crate) fn push(&mut self, version: KeptVersion<'_>, put: &mut PutRow<'_>) -> Result<()> {
        let KeptVersion { timestamp, collection, record_key, document } = version;
        let bytes = document.as_bytes();
        self.next.clear();
        self.next.reserve(PREFIX_BYTES + record_key.len());
        self.next.extend_from_slice(&timestamp.to_be_bytes());
        self.next.extend_from_slice(&collection.to_be_bytes());
        self.next.extend_from_slice(record_key);
        let together = are_together(&self.key, &self.next);
        if !together {
            self.finish(put)?;
        }
        if bytes.len() >= ROW_BYTES || !(together || self.several) {
            put(&self.next, bytes)?;
            if self.value.is_empty() {
                std::mem::swap(&mut self.key, &mut self.next);
            }
            return Ok(());
        }
        if self.value.len() + 1 + bytes.len() > ROW_BYTES {
            self.finish(put)?;
        }
        if self.value.is_empty() {
            let room = EXPECTED * (1 + bytes.len());
            self.value.reserve(room.min(ROW_BYTES) + SEVERAL.len());
            self.value.extend_from_slice(&SEVERAL);
            std::mem::swap(&mut self.key, &mut self.next);
        } else if self.key < self.next {
            self.key.clone_from(&self.next);
        }
        self.value.extend(record_key.last());
        self.value.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the current row.
    ///
    /// # Errors
    /// Errors of `put`.
    pub(crate) fn finish(&mut self, put: &mut PutRow<'_>) -> Result<()> {
        if !self.value.is_empty() {
            put(&self.key, &self.value)?;
            self.value.clear();
        }
        Ok(())
    }
}

/// Groups retired records into rows, as [`KeptRows`] groups versions.
#[derive(Default)]
pub(crate) struct RetiredRows {
    /// The key of the current row, and its value; empty when there is none.
    key: Vec<u8>,
    value: Vec<u8>,
    next: Vec<u8>,
    /// The bytes of the current row's documents.
    bytes: u64,
}

impl RetiredRows {
    /// Adds a record, and writes the row that is complete.
    ///
    /// # Errors
    /// Errors of `put`.
    pub(crate) fn push(&mut self, record: RetiredRecord<'_>, put: &mut PutRow<'_>) -> Result<()> {
        let RetiredRecord { timestamp, collection, record_key, bytes } = record;
        self.next.clear();
        self.next.extend_from_slice(&timestamp.to_be_bytes());
        self.next.extend_from_slice(&collection.to_be_bytes());
        self.next.extend_from_slice(record_key);
        if self.value.is_empty() || !are_together(&self.key, &self.next) {
            self.finish(put)?;
            self.value.extend_from_slice(&RETIRED);
            self.value.extend_from_slice(&[0; 8]);
            std::mem::swap(&mut self.key, &mut self.next);
        } else if self.key < self.next {
            self.key.clone_from(&self.next);
        }
        self.value.extend(record_key.last());
        self.bytes += bytes as u64;
        Ok(())
    }

    /// Writes the current row.
    ///
    /// # Errors
    /// Errors of `put`.
    pub(crate) fn finish(&mut self, put: &mut PutRow<'_>) -> Result<()> {
        if !self.value.is_empty() {
            let bytes = std::mem::take(&mut self.bytes).to_le_bytes();
            self.value[RETIRED.len()..RETIRED.len() + bytes.len()].copy_from_slice(&bytes);
            put(&self.key, &self.value)?;
            self.value.clear();
        }
        Ok(())
    }
}

impl<'a> RetiredRow<'a> {
    /// Decodes a row; `None` if it is a row of versions.
    pub(crate) fn decode(row_key: &'a [u8], value: &'a [u8]) -> Option<RetiredRow<'a>> {
        let (timestamp, key) = row_key.split_first_chunk::<8>()?;
        let timestamp = u64::from_be_bytes(*timestamp);
        if let Some(last_bytes) = value.strip_prefix(&RETIRED_ALONE) {
            return Some(RetiredRow { timestamp, key, last_bytes, bytes: 0 });
        }
        let (bytes, last_bytes) = value.strip_prefix(&RETIRED)?.split_first_chunk::<8>()?;
        Some(RetiredRow { timestamp, key, last_bytes, bytes: u64::from_le_bytes(*bytes) })
    }

    /// The timestamp of the entry that refers to the records.
    pub(crate) fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The collection's id.
    pub(crate) fn collection(&self) -> u64 {
        self.key.first_chunk::<8>().map_or(0, |id| u64::from_be_bytes(*id))
    }

    /// The number of records, and the bytes of their documents.
    pub(crate) fn tally(&self) -> RetiredTally {
        let documents = i64::try_from(self.last_bytes.len()).unwrap_or(i64::MAX);
        RetiredTally { documents, bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX) }
    }

    /// Visits the keys of the records: the collection's id, followed by the record's key.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&[u8])) {
        let mut key = self.key.to_vec();
        for byte in self.last_bytes {
            if let Some(last) = key.last_mut() {
                *last = *byte;
                visit(&key);
            }
        }
    }
}

/// Whether versions with these keys may share a row.
fn are_together(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.split_last().map(|(_, rest)| rest) == b.split_last().map(|(_, rest)| rest)
}

/// The range of the rows that may hold this version, and those of further records up to the record
/// key `last`, which is not smaller.
pub(crate) fn kept_range(
    timestamp: u64,
    collection: u64,
    record_key: &[u8],
    last: &[u8],
) -> KeyRange {
    let prefix = [timestamp.to_be_bytes(), collection.to_be_bytes()].concat();
    let start = [&prefix[..], record_key].concat();
    let mut end = [&prefix[..], last].concat();
    // The end is after the greatest key that may share its row.
    if let Some(byte) = end.last_mut() {
        *byte = 0xFF;
    }
    end.push(0);
    KeyRange { start, end }
}

/// Visits the versions of a row. The visit ends at bytes that cannot be read.
pub(crate) fn visit_kept(row_key: &[u8], value: &[u8], visit: &mut dyn FnMut(&[u8], RawDoc<'_>)) {
    let record_key = row_key.get(PREFIX_BYTES..).unwrap_or(&[]);
    let Some(mut rest) = value.strip_prefix(&SEVERAL) else {
        return RawDoc::new(value).into_iter().for_each(|document| visit(record_key, document));
    };
    let mut record_key = record_key.to_vec();
    while let Some((last, behind)) = rest.split_first()
        && let Some(length) = behind.first_chunk::<4>()
        && let Some((bytes, behind)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)
        && let Some(document) = RawDoc::new(bytes)
        && let Some(byte) = record_key.last_mut()
    {
        *byte = *last;
        visit(&record_key, document);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::doc;

    use super::*;

    type Version = (u64, u64, Vec<u8>, DocBuf);

    /// The rows that result from these versions.
    fn rows(versions: &[Version], several: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut rows, mut kept) = (Vec::new(), KeptRows { several, ..KeptRows::default() });
        let put: &mut PutRow<'_> = &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        for (timestamp, collection, record_key, document) in versions {
            let (timestamp, collection) = (*timestamp, *collection);
            let document = document.as_doc();
            kept.push(KeptVersion { timestamp, collection, record_key, document }, put).unwrap();
        }
        kept.finish(put).unwrap();
        kept.finish(put).unwrap();
        rows
    }

    /// The versions in these rows.
    fn versions(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<Version> {
        let mut found = Vec::new();
        for (key, value) in rows {
            let number = |at: usize| u64::from_be_bytes(key[at..at + 8].try_into().unwrap());
            visit_kept(key, value, &mut |record_key, document| {
                let range = kept_range(number(0), number(8), record_key, record_key);
                assert!(
                    (&range.start..&range.end).contains(&key),
                    "a look-up comes across the row"
                );
                found.push((number(0), number(8), record_key.to_vec(), document.to_owned()));
            });
        }
        found
    }

    fn version(timestamp: u64, collection: u64, number: u64, text: usize) -> Version {
        let document = DocBuf::from_bson(&doc! { "_id": number as i64, "s": "x".repeat(text) });
        (timestamp, collection, number.to_be_bytes().to_vec(), document)
    }

    #[test]
    fn every_version_is_in_one_row() {
        let run = |numbers: std::ops::Range<u64>| numbers.map(|number| version(7, 1, number, 9));
        let mixed = |n| version(7, 1, n, if n % 5 == 3 { ROW_BYTES } else { n as usize });
        let cases: [(Vec<Version>, [usize; 2]); 10] = [
            (vec![], [0, 0]),
            (run(5..6).collect(), [1, 1]),
            (run(5..7).collect(), [2, 1]),
            (run(0..256).collect(), [2, 1]),
            (run(0..256).rev().collect(), [2, 1]),
            (run(200..300).collect(), [4, 2]),
            // Another entry or collection begins another row.
            (vec![version(7, 1, 1, 0), version(7, 2, 2, 0), version(8, 2, 3, 0)], [3, 3]),
            // A long version has its own row, and the size of a row is limited.
            ((1..5).map(|n| version(7, 1, n, ROW_BYTES)).collect(), [4, 4]),
            ((0..100).map(|n| version(7, 1, n, ROW_BYTES / 10)).collect(), [12, 12]),
            ((0..20).map(mixed).chain((20..40).rev().map(mixed)).collect(), [10, 9]),
        ];
        let cases = cases.into_iter().flat_map(|(given, [alone, several])| {
            [(given.clone(), false, alone), (given, true, several)]
        });
        for (given, several, count) in cases {
            let rows = rows(&given, several);
            assert_eq!(rows.len(), count);
            assert!(rows.iter().all(|(_, value)| value.len() < ROW_BYTES + 100));
            let mut keys: Vec<_> = rows.iter().map(|(key, _)| key).collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "no row is written over another one");
            let (mut found, mut given) = (versions(&rows), given);
            found.sort_by(|a, b| a.2.cmp(&b.2));
            given.sort_by(|a, b| a.2.cmp(&b.2));
            assert_eq!(found, given);
        }
    }

    #[test]
    fn keys_of_other_lengths_and_prefixes_stand_alone() {
        let key = |bytes: &[u8]| (7, 1, bytes.to_vec(), DocBuf::from_bson(&doc! { "k": 1 }));
        let given = vec![key(b"a"), key(b"ab"), key(b"bb"), key(b"bc"), key(b"b"), key(b"c")];
        let rows = rows(&given, true);
        assert_eq!(rows.len(), 4);
        let mut found: Vec<_> = versions(&rows).into_iter().map(|version| version.2).collect();
        found.sort();
        assert_eq!(found, [&b"a"[..], b"ab", b"b", b"bb", b"bc", b"c"]);
    }

    #[test]
    fn damaged_rows_end_where_they_are_damaged() {
        let rows = rows(&(0..4).map(|number| version(7, 1, number, 3)).collect::<Vec<_>>(), false);
        let (key, value) = &rows[1];
        for length in 0..value.len() {
            let mut count = 0;
            visit_kept(key, &value[..length], &mut |_, _| count += 1);
            assert!(count < 3);
        }
        let mut wrong = value.clone();
        wrong[5..9].copy_from_slice(&[0xFF; 4]);
        visit_kept(key, &wrong, &mut |_, _| panic!("a length beyond the row"));
        visit_kept(&[1, 2], value, &mut |_, _| panic!("a row without a record key"));
    }
}

//! The documents that the loads use. Their content is random, so that neither compression nor a
//! cache of equal values makes a server look better than it is.

use std::sync::OnceLock;

use mayfly_value::{DocBuf, DocBuilder, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of each of a record's ten fields.
pub(crate) const FIELD_BYTES: usize = 100;
/// Fields of a record.
pub(crate) const FIELDS: [&str; 10] = [
    "field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8",
    "field9",
];
/// Size of the random text that pieces are cut from. It is large, so that two pieces seldom
/// overlap.
const POOL_BYTES: usize = 4 << 20;
/// Bytes of an item's text, which make the item 450 bytes long.
const TEXT_BYTES: usize = 338;
/// Different values of an item's `g`.
pub(crate) const GROUPS: u32 = 1000;
/// Items that share one `k`.
pub(crate) const ITEMS_PER_KEY: u32 = 10;

/// Random numbers, the same in each run.
pub(crate) struct Random(pub(crate) SmallRng);

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(SmallRng::seed_from_u64(seed))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.random()
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0.random_range(0..end)
    }

    /// Printable text.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(bytes + 10);
        while text.len() < bytes {
            let mut bits = self.next();
            for _ in 0..10 {
                text.push(char::from(LETTERS[(bits & 63) as usize]));
                bits >>= 6;
            }
        }
        text.truncate(bytes);
        text
    }
}

/// The `_id` of a record.
pub(crate) fn record_id(number: u32) -> String {
    // Spread over the key space, as the hashed keys of YCSB are.
    format!("user{:019}", u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1)
}

/// A piece of random text, without generating it.
pub(crate) fn pooled(bytes: usize, random: &mut Random) -> &'static str {
    static POOL: OnceLock<String> = OnceLock::new();
    let pool = POOL.get_or_init(|| Random::new(0).text(POOL_BYTES));
    let at = random.below((POOL_BYTES - bytes) as u32) as usize;
    // The text consists of ASCII letters, so that every offset is a character boundary.
    pool.get(at..at + bytes).unwrap_or_default()
}

/// A record of YCSB, changed in place for each use: ten fields of 100 bytes, 1 KB together, and a
/// number to increment.
pub(crate) struct Record {
    doc: Vec<u8>,
    id: usize,
    fields: [usize; 10],
}

impl Record {
    /// A record without content.
    pub(crate) fn new() -> Record {
        let mut doc = DocBuilder::new();
        doc.append("_id", record_id(0).as_str());
        for field in FIELDS {
            doc.append(field, "-".repeat(FIELD_BYTES).as_str());
        }
        doc.append("n", 0);
        let doc = doc.finish().into_bytes();
        // A text begins with its length.
        let id = place(&doc, "_id") + 4;
        let fields = FIELDS.map(|field| place(&doc, field) + 4);
        Record { doc, id, fields }
    }

    /// Changes it to the record with this number and new content.
    pub(crate) fn renew(&mut self, number: u32, random: &mut Random) -> &[u8] {
        let id = record_id(number);
        self.doc[self.id..self.id + id.len()].copy_from_slice(id.as_bytes());
        for place in self.fields {
            let text = pooled(FIELD_BYTES, random).as_bytes();
            self.doc[place..place + FIELD_BYTES].copy_from_slice(text);
        }
        &self.doc
    }
}

/// A batch of items, encoded once and changed in place before each use: `_id`, numbers and dates
/// are new each time.
///
/// ```text
/// { _id: ObjectId, k: int, g: int, x: int, y: long, at: Date, name: 24 letters, text: 338 letters }
/// ```
pub(crate) struct Items {
    /// The concatenated documents.
    pub(crate) bytes: Vec<u8>,
    /// The offset of each document.
    starts: Vec<usize>,
    /// The offsets of an item's values.
    places: [usize; 6],
}

impl Items {
    /// A batch of this many items.
    pub(crate) fn new(count: u32, random: &mut Random) -> Items {
        let mut items = Items { bytes: Vec::new(), starts: Vec::new(), places: [0; 6] };
        for _ in 0..count {
            items.starts.push(items.bytes.len());
            let doc = item(random);
            items.places =
                ["_id", "k", "g", "x", "y", "at"].map(|name| place(doc.as_bytes(), name));
            items.bytes.extend_from_slice(doc.as_bytes());
        }
        items
    }

    /// Changes the items: `_id`s with these numbers, new values, and dates from this one on.
    pub(crate) fn renew(&mut self, first: u32, writer: u16, at_ms: i64, random: &mut Random) {
        for (number, start) in (first..).zip(&self.starts) {
            let mut put = |place: usize, value: &[u8]| {
                let at = start + self.places[place];
                self.bytes[at..at + value.len()].copy_from_slice(value);
            };
            put(0, &item_id(number, writer));
            put(1, &(number / ITEMS_PER_KEY).to_le_bytes());
            put(2, &random.below(GROUPS).to_le_bytes());
            put(3, &random.below(1_000_000).to_le_bytes());
            put(4, &(random.next() >> 2).to_le_bytes());
            // Dates ascend with the numbers, except for up to a second, as creation dates do.
            put(5, &(at_ms + i64::from(number) + i64::from(random.below(1000))).to_le_bytes());
        }
    }
}

/// The `_id` of an item.
pub(crate) fn item_id(number: u32, writer: u16) -> [u8; 12] {
    let mut id = [0; 12];
    id[6..8].copy_from_slice(&writer.to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}

fn item(random: &mut Random) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("_id", RawValue::ObjectId([0; 12])).append("k", 0).append("g", 0).append("x", 0);
    doc.append("y", 0i64).append("at", RawValue::Date(0));
    doc.append("name", random.text(24).as_str()).append("text", random.text(TEXT_BYTES).as_str());
    doc.finish()
}

/// The offset of this field's value.
fn place(doc: &[u8], name: &str) -> usize {
    let needle = [name.as_bytes(), &[0]].concat();
    let found = doc.windows(needle.len()).position(|window| window == needle);
    found.map_or(0, |at| at + needle.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::{RawDoc, validate};

    #[test]
    fn documents_have_their_sizes_and_differ() {
        let mut random = Random::new(1);
        let mut record = Record::new();
        let first = record.renew(7, &mut random).to_vec();
        assert!((1000..1250).contains(&first.len()), "{}", first.len());
        let doc = RawDoc::new(&first).unwrap();
        assert_eq!(doc.get("_id").unwrap().as_str(), Some(record_id(7).as_str()));
        assert!(doc.get("field9").unwrap().as_str().unwrap().chars().all(|c| c != '.'));
        assert_ne!(first, record.renew(7, &mut random));
        validate(&first, 10).unwrap();
        let mut items = Items::new(3, &mut random);
        items.renew(100, 2, 1_000_000, &mut random);
        let mut rest = items.bytes.as_slice();
        let mut seen = Vec::new();
        while let Some(doc) = RawDoc::at_front(rest) {
            assert_eq!(doc.as_bytes().len(), 450);
            validate(doc.as_bytes(), 10).unwrap();
            seen.push(doc.get("_id").map(|id| format!("{id:?}")));
            rest = &rest[450..];
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
        assert!(random.below(10) < 10);
        assert_eq!(pooled(100, &mut random).len(), 100);
    }
}

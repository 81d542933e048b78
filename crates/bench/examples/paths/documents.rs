//! The documents of paths and micro benchmarks. Their content is random but the same in each run,
//! so that the counts of two runs only differ if the code does.

use mayfly_value::{DocBuf, DocBuilder, RawValue};

/// Bytes of each of a record's ten fields.
const FIELD_BYTES: usize = 100;
/// Bytes of an item's text, which make the item 450 bytes long.
const TEXT_BYTES: usize = 338;
/// Items that share one `k`.
pub(crate) const ITEMS_PER_KEY: u32 = 10;
/// Different values of an item's `g`.
pub(crate) const GROUPS: u32 = 100;
/// Values of an item's `x` are below this.
pub(crate) const X_END: u32 = 1_000_000;

/// Random numbers (xorshift64*). A library is not used, because a new version of it could produce
/// other documents, and thereby other counts than the recorded ones.
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Printable text.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        (0..bytes).map(|_| char::from(b'0' + self.below(75) as u8)).collect()
    }
}

/// The `_id` of a record, spread over the key space.
pub(crate) fn record_id(number: u32) -> String {
    format!("user{:019}", u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1)
}

/// A record of YCSB: ten fields of 100 bytes, 1 KB together, and a number to increment.
pub(crate) fn record(number: u32, random: &mut Random) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("_id", record_id(number).as_str());
    for field in 0..10 {
        doc.append(&format!("field{field}"), random.text(FIELD_BYTES).as_str());
    }
    doc.append("n", 0);
    doc.finish()
}

/// An item of 450 bytes, which is due at `at_ms`.
///
/// ```text
/// { _id: ObjectId, k: int, g: int, x: int, y: long, at: Date, name: 24 letters, text: 338 letters }
/// ```
pub(crate) fn item(number: u32, at_ms: i64, random: &mut Random) -> DocBuf {
    let mut id = [0x65; 12];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let mut doc = DocBuilder::new();
    doc.append("_id", RawValue::ObjectId(id));
    doc.append("k", (number / ITEMS_PER_KEY) as i32);
    doc.append("g", random.below(GROUPS) as i32);
    doc.append("x", random.below(X_END) as i32);
    doc.append("y", (random.next() >> 2) as i64);
    doc.append("at", RawValue::Date(at_ms));
    doc.append("name", random.text(24).as_str());
    doc.append("text", random.text(TEXT_BYTES).as_str());
    doc.finish()
}

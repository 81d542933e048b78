//! BSONColumn: the reference's format for the values of a field in a bucket, for buckets that
//! clients read and restore.
//!
//! ```text
//! column    | part | part | ... | 0x00 |
//! part      literal   | BSON type | 0x00 | value |
//!           blocks    | scale << 4 | number of blocks - 1 | blocks of 8 bytes each, little-endian |
//! scale     0x8: whole numbers, or the bits of a double; 0x9 to 0xD: doubles times 1, 10, 100, 10^4, 10^8
//! block     Simple-8b: | selector, 4 bits | slots, the first one in the low bits |
//! ```
//!
//! A slot with all bits set is a row without the field. Other slots are zigzag differences to the
//! previous value: for dates, timestamps and ObjectIds differences of differences, for strings,
//! code, binary values and decimals differences of 128 bits. Embedded documents may be packed field
//! by field ([`interleaved`]).
//!
//! The encoder writes only literals, repetitions and gaps, which every reader of the format
//! accepts; the store packs in its own format ([`crate::column`]).

use mayfly_value::{RawElement, ty};

use crate::column::{Column, MAX_BYTES, MAX_ROWS, is_value};
use simple8b::{RunRow, Slots, put_run};

mod interleaved;
mod simple8b;

/// The last byte of a column.
const END: u8 = 0;
/// The control byte of blocks of whole numbers; the low bits are the number of blocks less one.
const WHOLE: u8 = 0x80;
/// The first bytes of embedded documents that are packed field by field.
const INTERLEAVED: u8 = 0xF0;
const INTERLEAVED_LAST: u8 = 0xF2;
/// The factor of doubles, by scale.
const SCALES: [f64; 5] = [1.0, 10.0, 100.0, 10_000.0, 100_000_000.0];
/// Longest text or binary value that differences can encode.
const MAX_SHORT_BYTES: usize = 16;

/// Encodes the column in the reference's format.
pub(crate) fn encode(column: &Column) -> Vec<u8> {
    let mut out = Vec::with_capacity(column.bytes() + 4 * column.len() + 1);
    let mut row = 0;
    let mut before = None;
    while row < column.len() {
        let value = column.get(row);
        let same = (row..column.len()).take_while(|at| column.get(*at) == value).count();
        let repeated = match value {
            Some((type_byte, data)) if before != value => {
                out.extend_from_slice(&[type_byte, 0]);
                out.extend_from_slice(data);
                before = value;
                same - 1
            }
            _ => same,
        };
        let kind = if value.is_some() { RunRow::Repeated } else { RunRow::Absent };
        put_run(&mut out, repeated, kind);
        row += same;
    }
    out.push(END);
    out
}

/// Decodes a column of at most `most` rows; `None` for malformed bytes.
pub(crate) fn decode(bytes: &[u8], most: usize) -> Option<Column> {
    let mut rows = Rows { column: Column::default(), most: most.min(MAX_ROWS) };
    let (mut stream, mut rest) = (Stream::default(), bytes);
    loop {
        let (first, after) = rest.split_first()?;
        rest = match *first {
            END => return after.is_empty().then_some(rows.column),
            INTERLEAVED..=INTERLEAVED_LAST => {
                stream = Stream::default();
                interleaved::read(*first, after, &mut rows)?
            }
            _ => {
                let rest = stream.load(rest)?;
                while let Some(step) = stream.step()? {
                    match step {
                        StreamStep::Value => rows.push(stream.last.type_byte, &stream.last.data)?,
                        StreamStep::Absent => rows.skip()?,
                    }
                }
                rest
            }
        };
    }
}

/// The rows decoded so far.
struct Rows {
    column: Column,
    most: usize,
}

impl Rows {
    fn push(&mut self, type_byte: u8, data: &[u8]) -> Option<()> {
        let fits = self.left() > 0 && self.column.bytes() + data.len() <= MAX_BYTES;
        fits.then(|| self.column.push(type_byte, data))
    }

    fn skip(&mut self) -> Option<()> {
        (self.left() > 0).then(|| self.column.push_none())
    }

    fn left(&self) -> usize {
        self.most.saturating_sub(self.column.len())
    }
}

/// The value that the next difference is added to.
#[derive(Default)]
struct PreviousValue {
    type_byte: u8,
    data: Vec<u8>,
    /// The value as a number.
    number: i128,
    /// The previous difference, for types with differences of differences.
    step: i64,
    /// Whether the value has a numeric form, which differences need.
    is_numeric: bool,
}

impl PreviousValue {
    fn new(type_byte: u8, data: &[u8]) -> PreviousValue {
        let number = as_number(type_byte, data, None);
        let (is_numeric, number) = (number.is_some(), number.unwrap_or(0));
        PreviousValue { type_byte, data: data.to_vec(), number, step: 0, is_numeric }
    }

    fn add(&mut self, difference: i128, scale: Option<f64>) -> Option<()> {
        if self.type_byte == 0 {
            return None;
        }
        if matches!(self.type_byte, ty::DATE | ty::TIMESTAMP | ty::OBJECT_ID) {
            self.step = self.step.wrapping_add(i64::try_from(difference).ok()?);
            if self.step != 0 {
                self.number = i128::from((self.number as i64).wrapping_add(self.step));
                self.data = of_number(self.type_byte, self.number, &self.data, scale)?;
            }
            return Some(());
        }
        if difference == 0 {
            return Some(());
        }
        if !self.is_numeric && !matches!(self.type_byte, ty::STRING | ty::CODE) {
            return None;
        }
        self.number = match self.type_byte {
            ty::STRING | ty::CODE | ty::BINARY | ty::DECIMAL => {
                self.number.wrapping_add(difference)
            }
            _ => i128::from((self.number as i64).wrapping_add(i64::try_from(difference).ok()?)),
        };
        self.data = of_number(self.type_byte, self.number, &self.data, scale)?;
        self.is_numeric = true;
        Some(())
    }
}

/// The result of one step of a stream.
enum StreamStep {
    /// The row has the stream's current value.
    Value,
    /// The row has no value.
    Absent,
}

/// Decodes the values of one field, or of one field of embedded documents.
#[derive(Default)]
struct Stream<'b> {
    last: PreviousValue,
    scale: Option<f64>,
    /// A literal that was not returned yet.
    literal: bool,
    /// Remaining blocks, and the remaining slots of the current one.
    blocks: &'b [u8],
    slots: Option<Slots>,
    /// The previous slot, which a repetition repeats.
    slot: Option<u128>,
}

impl<'b> Stream<'b> {
    /// A stream whose first difference is relative to this value.
    fn starting_after(value: RawElement<'_>) -> Stream<'b> {
        let last = PreviousValue::new(value.type_byte(), value.data());
        Stream { last, slot: Some(0), ..Stream::default() }
    }

    /// Loads a literal or a group of blocks; returns the remaining bytes.
    fn load(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (control, after) = bytes.split_first()?;
        if !matches!(control, 0x80..=0xDF) {
            let (element, rest) = RawElement::at_front(bytes)?;
            let (type_byte, data) = (element.type_byte(), element.data());
            if !element.name_bytes().is_empty() || !is_value(type_byte, data) {
                return None;
            }
            (self.last, self.literal, self.slot) =
                (PreviousValue::new(type_byte, data), true, Some(0));
            return Some(rest);
        }
        self.scale = match control >> 4 {
            8 => None,
            scale => Some(*SCALES.get(usize::from(scale) - 9)?),
        };
        if self.last.type_byte == ty::DOUBLE {
            let number = as_number(ty::DOUBLE, &self.last.data, self.scale);
            (self.last.number, self.last.is_numeric) = (number.unwrap_or(0), number.is_some());
        } else if self.scale.is_some() {
            return None;
        }
        let rest;
        (self.blocks, rest) = after.split_at_checked(8 * (usize::from(control & 0x0F) + 1))?;
        Some(rest)
    }

    /// Moves to the next row; `Some(None)` when the next part has to be loaded first.
    fn step(&mut self) -> Option<Option<StreamStep>> {
        if std::mem::take(&mut self.literal) {
            return Some(Some(StreamStep::Value));
        }
        loop {
            if let Some(slot) = self.slots.as_mut().and_then(Iterator::next) {
                self.slot = slot;
                let Some(difference) = slot else { return Some(Some(StreamStep::Absent)) };
                self.last.add(unzigzag(difference), self.scale)?;
                return Some(Some(StreamStep::Value));
            }
            let Some((block, rest)) = self.blocks.split_first_chunk() else { return Some(None) };
            self.blocks = rest;
            self.slots = Some(Slots::new(u64::from_le_bytes(*block), self.slot)?);
        }
    }
}

fn unzigzag(value: u128) -> i128 {
    (value >> 1) as i128 ^ -((value & 1) as i128)
}

fn long(data: &[u8]) -> Option<i64> {
    Some(match data.len() {
        8 => i64::from_le_bytes(data.try_into().ok()?),
        4 => i64::from(i32::from_le_bytes(data.try_into().ok()?)),
        1 => i64::from(data[0]),
        _ => return None,
    })
}

/// The bytes of a text between its length and its terminator.
fn text(data: &[u8]) -> Option<&[u8]> {
    data.get(4..data.len().checked_sub(1)?)
}

fn short_number(bytes: impl ExactSizeIterator<Item = u8>) -> Option<i128> {
    let mut wide = [0; MAX_SHORT_BYTES];
    if bytes.len() > MAX_SHORT_BYTES {
        return None;
    }
    wide.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    Some(i128::from_le_bytes(wide))
}

/// Bytes of an ObjectId by increasing significance as a number: counter and time alternate.
const ID_BYTES: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];

/// The numeric form of a value, which differences are relative to; `None` if it has none.
fn as_number(type_byte: u8, data: &[u8], scale: Option<f64>) -> Option<i128> {
    match type_byte {
        ty::INT32 | ty::INT64 | ty::BOOL | ty::DATE | ty::TIMESTAMP => long(data).map(i128::from),
        ty::DOUBLE => {
            let value = f64::from_bits(long(data)? as u64);
            let Some(scale) = scale else { return Some(i128::from(value.to_bits() as i64)) };
            let scaled = (value * scale).round();
            (scaled.abs() <= 9_007_199_254_740_992.0).then_some(scaled as i128)
        }
        ty::OBJECT_ID => {
            let weighted = ID_BYTES.iter().map(|at| data.get(*at).copied().unwrap_or(0));
            short_number(weighted.collect::<Vec<u8>>().into_iter())
        }
        ty::STRING | ty::CODE => {
            let text = text(data)?;
            if text.first() == Some(&0) {
                return None;
            }
            short_number(text.iter().rev().copied())
        }
        ty::BINARY => short_number(data.get(5..)?.iter().copied()),
        ty::DECIMAL => short_number(data.iter().copied()),
        _ => None,
    }
}

/// The value with this numeric form; bytes that the number does not include are those of the
/// previous value.
fn of_number(type_byte: u8, number: i128, before: &[u8], scale: Option<f64>) -> Option<Vec<u8>> {
    let wide = number.to_le_bytes();
    Some(match type_byte {
        ty::INT32 => i32::try_from(number).ok()?.to_le_bytes().to_vec(),
        ty::INT64 | ty::DATE | ty::TIMESTAMP => wide[..8].to_vec(),
        ty::BOOL => (0..=1).contains(&number).then(|| vec![wide[0]])?,
        ty::DOUBLE => match scale {
            None => wide[..8].to_vec(),
            Some(scale) => (number as f64 / scale).to_le_bytes().to_vec(),
        },
        ty::OBJECT_ID => {
            let mut id = before.to_vec();
            ID_BYTES.iter().zip(wide).for_each(|(at, byte)| id[*at] = byte);
            id
        }
        ty::STRING | ty::CODE => {
            let length = MAX_SHORT_BYTES - wide.iter().rev().take_while(|byte| **byte == 0).count();
            let mut out = (length as i32 + 1).to_le_bytes().to_vec();
            out.extend(wide[..length].iter().rev());
            out.push(0);
            is_value(type_byte, &out).then_some(out)?
        }
        ty::BINARY => {
            let mut out = before.get(..5)?.to_vec();
            out.extend_from_slice(wide.get(..before.len() - 5)?);
            out
        }
        ty::DECIMAL => wide.to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use mayfly_value::arbitrary::any_value;
    use mayfly_value::{RawValue, ValueBuf};
    use proptest::prelude::*;

    use super::*;

    fn column_of(values: &[Option<ValueBuf>]) -> Column {
        let mut column = Column::default();
        for value in values {
            match value {
                Some(value) => column.push(value.type_byte(), value.data()),
                None => column.push_none(),
            }
        }
        column
    }

    fn column(values: &[RawValue<'_>]) -> Column {
        column_of(&values.iter().map(|it| Some(RawValue::to_owned(*it))).collect::<Vec<_>>())
    }

    /// A literal and one block of whole numbers, or of doubles with a scale.
    fn with_block(literal: RawValue<'_>, control: u8, block: u64) -> Vec<u8> {
        let mut out = vec![literal.type_byte(), 0];
        literal.encode(&mut out);
        out.push(control);
        out.extend_from_slice(&block.to_le_bytes());
        out.push(END);
        out
    }

    /// A block with one slot.
    fn one(slot: u64) -> u64 {
        14 | slot << 4
    }

    #[test]
    fn differences_are_added() {
        let checks = [
            (RawValue::Int32(5), 0x80, one(6), RawValue::Int32(8)),
            (RawValue::Int32(5), 0x80, one(5), RawValue::Int32(2)),
            (RawValue::Int64(1 << 40), 0x80, one(2), RawValue::Int64((1 << 40) + 1)),
            (RawValue::Bool(true), 0x80, one(1), RawValue::Bool(false)),
            (RawValue::Date(1000), 0x80, one(2000), RawValue::Date(2000)),
            (RawValue::Double(1.5), 0xA0, one(4), RawValue::Double(1.7)),
            (RawValue::Double(1.0), 0x90, one(2), RawValue::Double(2.0)),
            (RawValue::String("a"), 0x80, one(2), RawValue::String("b")),
            (RawValue::Null, 0x80, one(0), RawValue::Null),
        ];
        for (literal, control, block, expected) in checks {
            let read = decode(&with_block(literal, control, block), 10);
            assert_eq!(read, Some(column(&[literal, expected])), "{}", literal.type_name());
        }
    }

    #[test]
    fn dates_have_differences_of_differences() {
        // Three slots of 20 bits: 10 ms later, the same step again, a step shorter by 1 ms.
        let block = 12 | 20 << 4 | 1 << 44;
        let read = decode(&with_block(RawValue::Date(0), 0x80, block), 10);
        let dates = [0, 10, 20, 29].map(RawValue::Date);
        assert_eq!(read, Some(column(&dates)));
    }

    #[test]
    fn ids_count_by_their_last_byte() {
        let (first, mut second) = ([7; 12], [7; 12]);
        second[11] = 9;
        let read = decode(&with_block(RawValue::ObjectId(first), 0x80, one(4)), 10);
        let ids = [first, second].map(RawValue::ObjectId);
        assert_eq!(read, Some(column(&ids)));
    }

    #[test]
    fn malformed_columns_are_refused() {
        let long = with_block(RawValue::Int32(1), 0x80, 15 | 15 << 4);
        assert_eq!(decode(&long, 1000), None, "too many rows");
        let scaled = with_block(RawValue::Int32(1), 0x90, one(2));
        assert_eq!(decode(&scaled, 10), None, "a scale for an int");
        let document = with_block(RawValue::Null, 0x80, one(2));
        assert_eq!(decode(&document, 10), None, "a difference of nulls");
        assert_eq!(decode(&[INTERLEAVED, 5, 0], 10), None);
        assert_eq!(decode(&[], 10), None);
    }

    proptest! {
        #[test]
        fn columns_round_trip(
            values in prop::collection::vec((prop::option::of(any_value()), 1usize..70), 0..6),
        ) {
            let values: Vec<_> = values
                .into_iter()
                .flat_map(|(value, times)| std::iter::repeat_n(value, times))
                .collect();
            let column = column_of(&values);
            prop_assert_eq!(decode(&encode(&column), values.len()), Some(column));
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, 1000);
        }

        #[test]
        fn any_blocks_are_taken(
            value in any_value(),
            control in 0x80u8..0xE0,
            blocks in prop::collection::vec(any::<u64>(), 1..4),
        ) {
            let mut bytes = vec![value.type_byte(), 0];
            bytes.extend_from_slice(value.data());
            bytes.push(control & 0xF0 | (blocks.len() - 1) as u8);
            blocks.iter().for_each(|block| bytes.extend_from_slice(&block.to_le_bytes()));
            bytes.push(END);
            let _ = decode(&bytes, 1000);
        }
    }
}

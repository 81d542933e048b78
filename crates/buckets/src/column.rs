//! A column: the values of one field in all measurements of a bucket, packed into bytes.
//!
//! ```text
//! column    | 0xE1 | run | run | ...
//! run       | BSON type, 0 for an absent field | number of rows, varint | values |
//!
//! values    none, null, undefined, MinKey, MaxKey   nothing
//!           Date, long, int, bool, Timestamp        integers
//!           double                                  doubles
//!           ObjectId                                | 0 | 12 bytes each |
//!                                                   | 1 | bytes 4 to 8, common to all | integers: the first four bytes
//!                                                     each | integers: the last three bytes each |
//!           others                                  tokens: | 0: equal to the previous value |
//!                                                           | length + 1, varint | the value's bytes in BSON |
//! ```
//!
//! [`crate::numbers`] describes integers and doubles. Text is not compressed here, because the
//! store compresses its blocks. Clients see the reference's format ([`crate::exchange`]).

use mayfly_value::{RawValue, ty};

use crate::numbers::{Reader, put_doubles, put_integers, put_varint, read_doubles, read_integers};

/// The first byte of this format.
pub(crate) const FORMAT: u8 = 0xE1;
/// The type of rows without the field.
const NONE: u8 = 0;
/// Most measurements in a column; larger counts are malformed.
pub(crate) const MAX_ROWS: usize = 1 << 16;
/// Deepest nesting of values.
const MAX_DEPTH: usize = mayfly_base::limits::MAX_STORED_DEPTH + 2;
/// Largest size of a decoded column, in bytes.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// The values of one field, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Column {
    types: Vec<u8>,
    ends: Vec<u32>,
    data: Vec<u8>,
}

impl Column {
    /// A column of rows without the field.
    pub(crate) fn absent(rows: usize) -> Column {
        Column { types: vec![NONE; rows], ends: vec![0; rows], data: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Bytes of its values.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn push(&mut self, type_byte: u8, data: &[u8]) {
        self.types.push(type_byte);
        self.data.extend_from_slice(data);
        self.ends.push(self.data.len() as u32);
    }

    pub(crate) fn push_none(&mut self) {
        self.push(NONE, &[]);
    }

    /// Type and bytes of a row's value; `None` for a row without one.
    pub(crate) fn get(&self, row: usize) -> Option<(u8, &[u8])> {
        let type_byte = *self.types.get(row)?;
        (type_byte != NONE).then(|| (type_byte, self.slice(row)))
    }

    /// Whether any value is an array.
    pub(crate) fn has_arrays(&self) -> bool {
        self.types.contains(&ty::ARRAY)
    }

    /// Appends the rows of another column.
    pub(crate) fn extend(&mut self, other: &Column) {
        let before = self.data.len() as u32;
        self.types.extend_from_slice(&other.types);
        self.ends.extend(other.ends.iter().map(|end| before + end));
        self.data.extend_from_slice(&other.data);
    }

    pub(crate) fn value(&self, row: usize) -> Option<RawValue<'_>> {
        self.get(row).map(|(type_byte, data)| RawValue::decode(type_byte, data))
    }

    fn slice(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        &self.data[start..self.ends[row] as usize]
    }

    /// The value of a row as an integer, for types packed as integers.
    fn long(&self, row: usize) -> i64 {
        let bytes = self.slice(row);
        match bytes.len() {
            8 => bytes.try_into().map_or(0, i64::from_le_bytes),
            4 => bytes.try_into().map_or(0, i32::from_le_bytes).into(),
            1 => i64::from(bytes[0]),
            _ => 0,
        }
    }

    /// The rows with the smallest and the largest value in comparison order.
    pub(crate) fn bounds(&self) -> Option<(usize, usize)> {
        let mut present = (0..self.len()).filter(|row| self.types[*row] != NONE);
        let first = present.next()?;
        let alike = self.types[first];
        let whole = matches!(alike, ty::INT32 | ty::INT64 | ty::DATE);
        let (mut least, mut most) = (first, first);
        for row in present {
            // Integers are comparable as such only with values of the same type.
            let alike_all = [row, least, most].iter().all(|row| self.types[*row] == alike);
            if whole && alike_all {
                let long = self.long(row);
                if long < self.long(least) {
                    least = row;
                } else if long > self.long(most) {
                    most = row;
                }
                continue;
            }
            let (Some(value), Some(low), Some(high)) =
                (self.value(row), self.value(least), self.value(most))
            else {
                continue;
            };
            if mayfly_value::compare_values(value, low).is_lt() {
                least = row;
            } else if mayfly_value::compare_values(value, high).is_gt() {
                most = row;
            }
        }
        Some((least, most))
    }

    /// The encoded column.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        self.encode_runs(&mut out);
        out
    }

    /// Appends its runs.
    pub(crate) fn encode_runs(&self, out: &mut Vec<u8>) {
        let mut start = 0;
        while start < self.len() {
            let type_byte = self.types[start];
            let same = self.types[start..].iter().take_while(|other| **other == type_byte).count();
            out.push(type_byte);
            put_varint(out, same as u64);
            self.encode_run(out, type_byte, start..start + same);
            start += same;
        }
    }

    fn encode_run(&self, out: &mut Vec<u8>, type_byte: u8, rows: std::ops::Range<usize>) {
        match packing_of(type_byte) {
            Packing::Empty => {}
            Packing::Integer(_) => put_integers(out, rows.map(|row| self.long(row))),
            Packing::Double => {
                put_doubles(out, rows.map(|row| f64::from_bits(self.long(row) as u64)));
            }
            Packing::ObjectId => self.encode_ids(out, rows),
            Packing::Other => {
                let mut before: Option<&[u8]> = None;
                for row in rows {
                    let bytes = self.slice(row);
                    if before == Some(bytes) {
                        out.push(0);
                        continue;
                    }
                    put_varint(out, bytes.len() as u64 + 1);
                    out.extend_from_slice(bytes);
                    before = Some(bytes);
                }
            }
        }
    }

    fn encode_ids(&self, out: &mut Vec<u8>, rows: std::ops::Range<usize>) {
        let middle = &self.slice(rows.start)[4..9];
        if !rows.clone().all(|row| &self.slice(row)[4..9] == middle) {
            out.push(0);
            rows.for_each(|row| out.extend_from_slice(self.slice(row)));
            return;
        }
        out.push(1);
        out.extend_from_slice(middle);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | i64::from(*byte));
        put_integers(out, rows.clone().map(|row| number(&self.slice(row)[..4])));
        put_integers(out, rows.map(|row| number(&self.slice(row)[9..])));
    }

    /// Decodes a column with this many rows; `None` for malformed bytes.
    pub(crate) fn decode(bytes: &[u8], rows: usize) -> Option<Column> {
        let (format, runs) = bytes.split_first()?;
        if rows > MAX_ROWS || *format != FORMAT {
            return None;
        }
        Column::decode_runs(runs, rows).filter(|column| column.len() == rows)
    }

    /// Decodes the last runs of a column, with any number of rows.
    pub(crate) fn decode_tail(runs: &[u8]) -> Option<Column> {
        Column::decode_runs(runs, MAX_ROWS)
    }

    /// The rows from this one on.
    pub(crate) fn rows_from(&self, row: usize) -> Column {
        let mut rest = Column::default();
        for row in row..self.len() {
            match self.get(row) {
                Some((type_byte, data)) => rest.push(type_byte, data),
                None => rest.push_none(),
            }
        }
        rest
    }

    fn decode_runs(runs: &[u8], rows: usize) -> Option<Column> {
        let mut input = Reader(runs);
        let mut column = Column::default();
        while !input.0.is_empty() {
            let type_byte = input.byte()?;
            let count = usize::try_from(input.varint()?).ok()?;
            if count == 0 || count > rows - column.len() {
                return None;
            }
            column.decode_run(&mut input, type_byte, count)?;
        }
        Some(column)
    }

    fn decode_run(&mut self, input: &mut Reader<'_>, type_byte: u8, count: usize) -> Option<()> {
        match packing_of(type_byte) {
            Packing::Empty => (0..count).for_each(|_| self.push(type_byte, &[])),
            Packing::Integer(width) => {
                self.data.reserve(width * count);
                read_integers(input, count, &mut |value| {
                    self.push(type_byte, &value.to_le_bytes()[..width]);
                })?;
            }
            Packing::Double => {
                self.data.reserve(8 * count);
                read_doubles(input, count, &mut |value| {
                    self.push(type_byte, &value.to_le_bytes());
                })?;
            }
            Packing::ObjectId => self.decode_ids(input, count)?,
            Packing::Other => {
                let mut before: Option<&[u8]> = None;
                for _ in 0..count {
                    let token = usize::try_from(input.varint()?).ok()?;
                    let bytes = match token {
                        0 => before?,
                        more => input.bytes(more - 1)?,
                    };
                    if self.data.len() + bytes.len() > MAX_BYTES || !is_value(type_byte, bytes) {
                        return None;
                    }
                    self.push(type_byte, bytes);
                    before = Some(bytes);
                }
            }
        }
        Some(())
    }

    fn decode_ids(&mut self, input: &mut Reader<'_>, count: usize) -> Option<()> {
        match input.byte()? {
            0 => {
                for id in input.bytes(count.checked_mul(12)?)?.chunks(12) {
                    self.push(ty::OBJECT_ID, id);
                }
            }
            1 => {
                let middle = input.bytes(5)?;
                let mut seconds = Vec::with_capacity(count);
                read_integers(input, count, &mut |value| seconds.push(value as u32))?;
                let mut seconds = seconds.into_iter();
                read_integers(input, count, &mut |value| {
                    let mut id = [0; 12];
                    id[..4].copy_from_slice(&seconds.next().unwrap_or(0).to_be_bytes());
                    id[4..9].copy_from_slice(middle);
                    id[9..].copy_from_slice(&(value as u32).to_be_bytes()[1..]);
                    self.push(ty::OBJECT_ID, &id);
                })?;
            }
            _ => return None,
        }
        Some(())
    }
}

/// How values of a type are packed.
enum Packing {
    Empty,
    /// An integer of this many bytes.
    Integer(usize),
    Double,
    ObjectId,
    Other,
}

fn packing_of(type_byte: u8) -> Packing {
    match type_byte {
        NONE | ty::NULL | ty::UNDEFINED | ty::MIN_KEY | ty::MAX_KEY => Packing::Empty,
        ty::DATE | ty::INT64 | ty::TIMESTAMP => Packing::Integer(8),
        ty::INT32 => Packing::Integer(4),
        ty::BOOL => Packing::Integer(1),
        ty::DOUBLE => Packing::Double,
        ty::OBJECT_ID => Packing::ObjectId,
        _ => Packing::Other,
    }
}

/// Whether the bytes are a well-formed value of this type.
pub(crate) fn is_value(type_byte: u8, bytes: &[u8]) -> bool {
    let mut document = Vec::with_capacity(bytes.len() + 8);
    document.extend_from_slice(&(bytes.len() as i32 + 8).to_le_bytes());
    document.extend_from_slice(&[type_byte, b'v', 0]);
    document.extend_from_slice(bytes);
    document.push(0);
    mayfly_value::validate(&document, MAX_DEPTH).is_ok()
}

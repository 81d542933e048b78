//! A column: one field of all measurements of a bucket, one after the other, packed into bytes.
//!
//! ```text
//! column    | 0xE1 | run | run | ...
//! run       | BSON type, 0 for "has no such field" | how many, varint | values |
//!
//! values    none, null, undefined, MinKey, MaxKey   nothing
//!           Date, long, int, bool, Timestamp        integers
//!           double                                  doubles
//!           ObjectId                                | 0 | 12 bytes each |
//!                                                   | 1 | bytes 4 to 8 that all have | integers: the first four bytes
//!                                                     each | integers: the last three bytes each |
//!           others                                  tokens: | 0: as the one before |
//!                                                           | length + 1, varint | the value's bytes in BSON |
//! ```
//!
//! Integers and doubles are drawn in [`crate::numbers`]. This is no compressor for text: the store's blocks are compressed.
//! Clients see the reference's format ([`crate::exchange`]).

use mayfly_value::{RawValue, ty};

use crate::numbers::{Reader, put_doubles, put_integers, put_varint, read_doubles, read_integers};

/// The first byte.
pub(crate) const FORMAT: u8 = 0xE1;
/// "Has no such field", in the place of a type.
const NONE: u8 = 0;
/// Most measurements in a column, whatever its bytes say.
pub(crate) const MAX_ROWS: usize = 1 << 16;
/// How deep values may be.
const MAX_DEPTH: usize = mayfly_base::limits::MAX_STORED_DEPTH + 2;
/// Most bytes that a column may become.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// The values of one field, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Column {
    types: Vec<u8>,
    ends: Vec<u32>,
    data: Vec<u8>,
}

impl Column {
    /// A column of rows that do not have the field.
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

    /// Type and bytes of a row's value; nothing where it has none.
    pub(crate) fn get(&self, row: usize) -> Option<(u8, &[u8])> {
        let type_byte = *self.types.get(row)?;
        (type_byte != NONE).then(|| (type_byte, self.slice(row)))
    }

    /// Whether some value is an array.
    pub(crate) fn has_arrays(&self) -> bool {
        self.types.contains(&ty::ARRAY)
    }

    /// Adds the rows of another column.
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

    /// The rows of a run and how they look as numbers.
    fn long(&self, row: usize) -> i64 {
        let bytes = self.slice(row);
        match bytes.len() {
            8 => bytes.try_into().map_or(0, i64::from_le_bytes),
            4 => bytes.try_into().map_or(0, i32::from_le_bytes).into(),
            1 => i64::from(bytes[0]),
            _ => 0,
        }
    }

    /// The smallest and the largest value, by the comparison order.
    pub(crate) fn bounds(&self) -> Option<(usize, usize)> {
        let mut present = (0..self.len()).filter(|row| self.types[*row] != NONE);
        let first = present.next()?;
        let alike = self.types[first];
        let whole = matches!(alike, ty::INT32 | ty::INT64 | ty::DATE);
        let (mut least, mut most) = (first, first);
        for row in present {
            // As numbers they compare only with their like.
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

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        self.encode_runs(&mut out);
        out
    }

    /// Its runs, behind what is there.
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
        match kind(type_byte) {
            Kind::Empty => {}
            Kind::Integer(_) => put_integers(out, rows.map(|row| self.long(row))),
            Kind::Double => {
                put_doubles(out, rows.map(|row| f64::from_bits(self.long(row) as u64)));
            }
            Kind::ObjectId => self.encode_ids(out, rows),
            Kind::Other => {
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

    /// Reads the bytes of a column with so many rows; nothing when they are not one.
    pub(crate) fn decode(bytes: &[u8], rows: usize) -> Option<Column> {
        let (format, runs) = bytes.split_first()?;
        if rows > MAX_ROWS || *format != FORMAT {
            return None;
        }
        Column::decode_runs(runs, rows).filter(|column| column.len() == rows)
    }

    /// Reads the last runs of a column, however many rows they have.
    pub(crate) fn decode_tail(runs: &[u8]) -> Option<Column> {
        Column::decode_runs(runs, MAX_ROWS)
    }

    /// The rows from this one on.
    pub(crate) fn behind(&self, row: usize) -> Column {
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
        match kind(type_byte) {
            Kind::Empty => (0..count).for_each(|_| self.push(type_byte, &[])),
            Kind::Integer(width) => {
                self.data.reserve(width * count);
                read_integers(input, count, &mut |value| {
                    self.push(type_byte, &value.to_le_bytes()[..width]);
                })?;
            }
            Kind::Double => {
                self.data.reserve(8 * count);
                read_doubles(input, count, &mut |value| {
                    self.push(type_byte, &value.to_le_bytes());
                })?;
            }
            Kind::ObjectId => self.decode_ids(input, count)?,
            Kind::Other => {
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
enum Kind {
    Empty,
    /// Of so many bytes.
    Integer(usize),
    Double,
    ObjectId,
    Other,
}

fn kind(type_byte: u8) -> Kind {
    match type_byte {
        NONE | ty::NULL | ty::UNDEFINED | ty::MIN_KEY | ty::MAX_KEY => Kind::Empty,
        ty::DATE | ty::INT64 | ty::TIMESTAMP => Kind::Integer(8),
        ty::INT32 => Kind::Integer(4),
        ty::BOOL => Kind::Integer(1),
        ty::DOUBLE => Kind::Double,
        ty::OBJECT_ID => Kind::ObjectId,
        _ => Kind::Other,
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

//! Decodes key bytes to values, or skips them. Malformed bytes return `None`; they never panic.

use mayfly_base::limits::MAX_BSON_DEPTH;

use super::type_bits::Code;
use super::{TypeBitsReader, class};
use crate::raw::{ValueBuf, ty};
use crate::sort_order::SortOrder;

/// The length of the first value's bytes; `None` when they are malformed.
pub fn skip_value(key: &[u8], order: SortOrder) -> Option<usize> {
    let mut cursor = Cursor::new(key, order);
    skip_at(&mut cursor, 0)?;
    Some(cursor.at)
}

/// The first value, exactly as it was appended, and the length of its bytes; `None` when they are
/// malformed.
pub fn decode_value(
    key: &[u8],
    order: SortOrder,
    bits: &mut TypeBitsReader<'_>,
) -> Option<(ValueBuf, usize)> {
    let mut cursor = Cursor::new(key, order);
    let mut data = Vec::new();
    let type_byte = decode_at(&mut cursor, bits, &mut data, 0)?;
    Some((ValueBuf::from_parts(type_byte, data), cursor.at))
}

/// Reads key bytes and restores inverted ones.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    mask: u8,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8], order: SortOrder) -> Cursor<'a> {
        Cursor { bytes, at: 0, mask: if order.is_descending() { 0xFF } else { 0 } }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).map(|byte| byte ^ self.mask)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Bytes as they are in the key: inverted if the key is descending.
    fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut taken: [u8; N] = *self.raw(N)?.first_chunk()?;
        taken.iter_mut().for_each(|byte| *byte ^= self.mask);
        Some(taken)
    }

    fn len(&mut self) -> Option<usize> {
        self.array::<4>().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    /// Reads up to and including the next zero byte; returns the bytes before it, inverted if the
    /// key is descending.
    fn until_zero(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let len = rest.iter().position(|&byte| byte == self.mask)?;
        self.at += len + 1;
        Some(&rest[..len])
    }
}

fn skip_at(cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
    if depth > MAX_BSON_DEPTH {
        return None;
    }
    match cursor.byte()? {
        class::MIN_KEY | class::UNDEFINED | class::NULL | class::NAN | class::ZERO => {}
        class::FALSE | class::TRUE | class::MAX_KEY => {}
        class::NEGATIVE => drop(read_magnitude(cursor, 0xFF)?),
        class::POSITIVE => drop(read_magnitude(cursor, 0)?),
        class::STRING | class::CODE => drop(cursor.until_zero()?),
        class::DOCUMENT => skip_elements(cursor, depth)?,
        class::ARRAY => {
            while cursor.peek()? != 0 {
                skip_at(cursor, depth + 1)?;
            }
            cursor.byte()?;
        }
        class::BINARY => {
            let len = cursor.len()?;
            cursor.raw(len.checked_add(1)?)?;
        }
        class::OBJECT_ID => drop(cursor.raw(12)?),
        class::DATE | class::TIMESTAMP => drop(cursor.raw(8)?),
        class::REGEX => {
            cursor.until_zero()?;
            cursor.until_zero()?;
        }
        class::DB_POINTER => {
            let len = cursor.len()?;
            cursor.raw(len.checked_add(12)?)?;
        }
        class::CODE_W_SCOPE => {
            cursor.until_zero()?;
            skip_elements(cursor, depth)?;
        }
        _ => return None,
    }
    Some(())
}

fn skip_elements(cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
    while cursor.byte()? != 0 {
        cursor.until_zero()?;
        skip_at(cursor, depth + 1)?;
    }
    Some(())
}

/// The double, and whether it is the exact value.
fn read_magnitude(cursor: &mut Cursor<'_>, sign_mask: u8) -> Option<(f64, bool)> {
    let mut double = cursor.array::<8>()?;
    double.iter_mut().for_each(|byte| *byte ^= sign_mask);
    let exact = match cursor.byte()? ^ sign_mask {
        0 => true,
        1 => {
            cursor.raw(17)?;
            false
        }
        _ => return None,
    };
    Some((f64::from_be_bytes(double), exact))
}

/// Appends the value's BSON bytes and returns its type.
fn decode_at(
    cursor: &mut Cursor<'_>,
    bits: &mut TypeBitsReader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<u8> {
    if depth > MAX_BSON_DEPTH {
        return None;
    }
    let class = cursor.byte()?;
    Some(match class {
        class::MIN_KEY => ty::MIN_KEY,
        class::UNDEFINED => ty::UNDEFINED,
        class::NULL => ty::NULL,
        class::NAN => put_number(bits, f64::NAN, true, out)?,
        class::ZERO => put_number(bits, 0.0, true, out)?,
        class::NEGATIVE => {
            let (double, exact) = read_magnitude(cursor, 0xFF)?;
            put_number(bits, -double, exact, out)?
        }
        class::POSITIVE => {
            let (double, exact) = read_magnitude(cursor, 0)?;
            put_number(bits, double, exact, out)?
        }
        class::STRING => {
            put_string(cursor, out)?;
            match bits.next() {
                Some((Code::Symbol, _)) => ty::SYMBOL,
                _ => ty::STRING,
            }
        }
        class::DOCUMENT => {
            put_elements(cursor, bits, out, depth)?;
            ty::DOCUMENT
        }
        class::ARRAY => {
            put_array(cursor, bits, out, depth)?;
            ty::ARRAY
        }
        class::FALSE | class::TRUE => {
            out.push(u8::from(class == class::TRUE));
            ty::BOOL
        }
        class::CODE => {
            put_string(cursor, out)?;
            ty::CODE
        }
        class::CODE_W_SCOPE => {
            let start = open_length(out);
            put_string(cursor, out)?;
            put_elements(cursor, bits, out, depth)?;
            close_length(out, start);
            ty::CODE_W_SCOPE
        }
        class::MAX_KEY => ty::MAX_KEY,
        _ => decode_flat(class, cursor, out)?,
    })
}

/// Types with a plain layout and without type bits.
fn decode_flat(class: u8, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<u8> {
    Some(match class {
        class::BINARY => {
            let len = cursor.len()?;
            out.extend_from_slice(&(len as u32).to_le_bytes());
            put_raw(cursor, len.checked_add(1)?, out)?;
            ty::BINARY
        }
        class::OBJECT_ID => {
            put_raw(cursor, 12, out)?;
            ty::OBJECT_ID
        }
        class::DATE => {
            let date = i64::from_be_bytes(cursor.array()?) ^ i64::MIN;
            out.extend_from_slice(&date.to_le_bytes());
            ty::DATE
        }
        class::TIMESTAMP => {
            out.extend_from_slice(&u64::from_be_bytes(cursor.array()?).to_le_bytes());
            ty::TIMESTAMP
        }
        class::REGEX => {
            put_cstring(cursor, out)?;
            put_cstring(cursor, out)?;
            ty::REGEX
        }
        class::DB_POINTER => {
            let len = cursor.len()?;
            out.extend_from_slice(&(len as u32).wrapping_add(1).to_le_bytes());
            let name_at = out.len();
            put_raw(cursor, len, out)?;
            check_text(&out[name_at..])?;
            out.push(0);
            put_raw(cursor, 12, out)?;
            ty::DB_POINTER
        }
        _ => return None,
    })
}

fn put_raw(cursor: &mut Cursor<'_>, len: usize, out: &mut Vec<u8>) -> Option<()> {
    let mask = cursor.mask;
    out.extend(cursor.raw(len)?.iter().map(|byte| byte ^ mask));
    Some(())
}

/// Appends text without its escapes, and its zero byte.
fn put_text(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (mask, start) = (cursor.mask, out.len());
    let mut bytes = cursor.until_zero()?.iter().map(|byte| byte ^ mask);
    while let Some(byte) = bytes.next() {
        out.push(if byte == 1 { bytes.next()?.checked_sub(1)? } else { byte });
    }
    check_text(&out[start..])?;
    out.push(0);
    Some(())
}

/// Appends a pattern or options: text that contains no zero byte.
fn put_cstring(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    put_text(cursor, out)?;
    let (_, text) = out[start..].split_last()?;
    (!text.contains(&0)).then_some(())
}

/// Rejects text of damaged keys that could never have been stored.
fn check_text(text: &[u8]) -> Option<()> {
    std::str::from_utf8(text).ok().map(drop)
}

fn put_string(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Option<()> {
    let start = open_length(out);
    put_text(cursor, out)?;
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    Some(())
}

fn put_elements(
    cursor: &mut Cursor<'_>,
    bits: &mut TypeBitsReader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let start = open_length(out);
    while cursor.byte()? != 0 {
        let type_at = out.len();
        out.push(0);
        let mask = cursor.mask;
        let name_at = out.len();
        out.extend(cursor.until_zero()?.iter().map(|byte| byte ^ mask));
        check_text(&out[name_at..])?;
        out.push(0);
        out[type_at] = decode_at(cursor, bits, out, depth + 1)?;
    }
    out.push(0);
    close_length(out, start);
    Some(())
}

fn put_array(
    cursor: &mut Cursor<'_>,
    bits: &mut TypeBitsReader<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let start = open_length(out);
    let mut index = 0u32;
    while cursor.peek()? != 0 {
        let type_at = out.len();
        out.push(0);
        crate::build::push_decimal(out, index);
        out.push(0);
        out[type_at] = decode_at(cursor, bits, out, depth + 1)?;
        index = index.checked_add(1)?;
    }
    cursor.byte()?;
    out.push(0);
    close_length(out, start);
    Some(())
}

fn open_length(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

fn close_length(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Converts the number to its original type.
fn put_number(
    bits: &mut TypeBitsReader<'_>,
    double: f64,
    exact: bool,
    out: &mut Vec<u8>,
) -> Option<u8> {
    let (code, payload) = match bits.next() {
        Some((code, payload)) => (Some(code), payload),
        None => (None, &[][..]),
    };
    let long = double as i64;
    Some(match code {
        Some(Code::Decimal) => {
            out.extend_from_slice(payload);
            ty::DECIMAL
        }
        Some(Code::WideInt64) => {
            out.extend_from_slice(payload);
            ty::INT64
        }
        Some(Code::RawDouble) => {
            out.extend_from_slice(payload);
            ty::DOUBLE
        }
        _ if !exact => return None,
        Some(Code::Int64) => {
            out.extend_from_slice(&long.to_le_bytes());
            ty::INT64
        }
        Some(Code::NegativeZero) => {
            out.extend_from_slice(&(-0.0f64).to_le_bytes());
            ty::DOUBLE
        }
        None | Some(Code::Symbol) if double.trunc() == double && fits_long(double) => {
            match i32::try_from(long) {
                Ok(int) => {
                    out.extend_from_slice(&int.to_le_bytes());
                    ty::INT32
                }
                Err(_) => {
                    out.extend_from_slice(&long.to_le_bytes());
                    ty::INT64
                }
            }
        }
        None | Some(Code::Symbol | Code::Double) => {
            out.extend_from_slice(&double.to_le_bytes());
            ty::DOUBLE
        }
    })
}

fn fits_long(double: f64) -> bool {
    double.abs() < 9_223_372_036_854_775_808.0
}

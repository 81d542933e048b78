//! Encoded lengths of values.

use super::name::find_zero;
use super::ty;

#[inline]
pub(super) fn int32(bytes: &[u8]) -> i32 {
    match bytes.first_chunk::<4>() {
        Some(chunk) => i32::from_le_bytes(*chunk),
        None => -1,
    }
}

/// Marks types in [`FIXED_LENGTHS`] whose length is part of the value, and unknown types.
const VARIES: u8 = u8::MAX;

/// Lengths of the types whose values all have the same length.
const FIXED_LENGTHS: [u8; 256] = {
    let mut lengths = [VARIES; 256];
    lengths[ty::DOUBLE as usize] = 8;
    lengths[ty::DATE as usize] = 8;
    lengths[ty::TIMESTAMP as usize] = 8;
    lengths[ty::INT64 as usize] = 8;
    lengths[ty::UNDEFINED as usize] = 0;
    lengths[ty::NULL as usize] = 0;
    lengths[ty::MIN_KEY as usize] = 0;
    lengths[ty::MAX_KEY as usize] = 0;
    lengths[ty::OBJECT_ID as usize] = 12;
    lengths[ty::BOOL as usize] = 1;
    lengths[ty::INT32 as usize] = 4;
    lengths[ty::DECIMAL as usize] = 16;
    lengths
};

/// The length of a value's bytes; `None` for an unknown type or an invalid length.
#[inline]
pub(super) fn value_len(type_byte: u8, data: &[u8]) -> Option<usize> {
    match FIXED_LENGTHS[usize::from(type_byte)] {
        VARIES => varying_len(type_byte, data),
        len => Some(usize::from(len)),
    }
}

fn varying_len(type_byte: u8, data: &[u8]) -> Option<usize> {
    let prefixed =
        |extra: usize| -> Option<usize> { usize::try_from(int32(data)).ok()?.checked_add(extra) };
    match type_byte {
        ty::STRING | ty::CODE | ty::SYMBOL => prefixed(4),
        ty::DOCUMENT | ty::ARRAY => prefixed(0).filter(|len| *len >= 5),
        ty::BINARY => prefixed(5),
        ty::REGEX => {
            let pattern = find_zero(data)? + 1;
            Some(pattern + find_zero(&data[pattern..])? + 1)
        }
        ty::DB_POINTER => prefixed(16),
        ty::CODE_W_SCOPE => prefixed(0),
        _ => None,
    }
}

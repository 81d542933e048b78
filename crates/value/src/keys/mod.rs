//! Order-preserving keys: bytes whose `memcmp` order is the order of [`crate::compare`], one value
//! after another without separators.
//!
//! ```text
//!  MinKey       08                    ObjectId    50 | 12 bytes
//!  Undefined    10                    Bool        58 false, 59 true
//!  Null         18                    Date        60 | i64, sign bit flipped
//!  Number       20 NaN                Timestamp   68 | u64
//!               21 | ~magnitude       Regex       70 | text pattern | text options
//!               22 zero               DBPointer   78 | u32 length | name | 12 bytes
//!               23 | magnitude        Code        80 | text
//!  String       30 | text             CodeWScope  88 | text | elements
//!  Object       38 | elements         MaxKey      90
//!  Array        40 | items
//!  BinData      48 | u32 length | subtype | bytes
//!
//!  magnitude  = 8 bytes of the double, cut towards zero | 00                      the double is the value
//!                                                       | 01 | power | digits     the value exceeds the double
//!               power: of ten of the first digit, u16, biased by 8192; digits: 34 of them as a 15-byte integer
//!  text       = bytes with 00 as 01 01 and 01 as 01 02 | 00
//!               of a string with a collation: the collation's key instead of the bytes
//!  elements   = ( type's first byte | name | 00 | value )* | 00
//!  items      = value* | 00
//! ```
//! All integers are big-endian. All bytes of a descending value are inverted. No value begins with
//! `00` or `FF`, ascending or descending, so those are free for bounds. Values that compare as
//! equal (1, 1.0, NumberLong(1); a string and a symbol; 0.0 and -0.0) have the same bytes;
//! [`TypeBits`] record the difference.
//!
//! The names of array items are not encoded: decoding numbers them from 0.

mod decode;
mod encode;
mod type_bits;

pub use decode::{decode_value, skip_value};
pub use encode::{append_value, append_value_in};
pub use type_bits::{TypeBits, TypeBitsReader};

/// First byte of each type's encoding, see the drawing above.
mod class {
    pub(super) const MIN_KEY: u8 = 0x08;
    pub(super) const UNDEFINED: u8 = 0x10;
    pub(super) const NULL: u8 = 0x18;
    pub(super) const NAN: u8 = 0x20;
    pub(super) const NEGATIVE: u8 = 0x21;
    pub(super) const ZERO: u8 = 0x22;
    pub(super) const POSITIVE: u8 = 0x23;
    pub(super) const STRING: u8 = 0x30;
    pub(super) const DOCUMENT: u8 = 0x38;
    pub(super) const ARRAY: u8 = 0x40;
    pub(super) const BINARY: u8 = 0x48;
    pub(super) const OBJECT_ID: u8 = 0x50;
    pub(super) const FALSE: u8 = 0x58;
    pub(super) const TRUE: u8 = 0x59;
    pub(super) const DATE: u8 = 0x60;
    pub(super) const TIMESTAMP: u8 = 0x68;
    pub(super) const REGEX: u8 = 0x70;
    pub(super) const DB_POINTER: u8 = 0x78;
    pub(super) const CODE: u8 = 0x80;
    pub(super) const CODE_W_SCOPE: u8 = 0x88;
    pub(super) const MAX_KEY: u8 = 0x90;
}

/// Below every value, ascending or descending.
pub const MIN: u8 = 0x01;
/// Above every value and all continuations of it, ascending or descending.
pub const MAX: u8 = 0xFE;

/// The range of first bytes that a canonical type uses.
fn classes_of(canonical: i8) -> (u8, u8) {
    match canonical {
        -1 => (class::MIN_KEY, class::MIN_KEY),
        0 => (class::UNDEFINED, class::UNDEFINED),
        5 => (class::NULL, class::NULL),
        10 => (class::NAN, class::POSITIVE),
        15 => (class::STRING, class::STRING),
        20 => (class::DOCUMENT, class::DOCUMENT),
        25 => (class::ARRAY, class::ARRAY),
        30 => (class::BINARY, class::BINARY),
        35 => (class::OBJECT_ID, class::OBJECT_ID),
        40 => (class::FALSE, class::TRUE),
        45 => (class::DATE, class::DATE),
        47 => (class::TIMESTAMP, class::TIMESTAMP),
        50 => (class::REGEX, class::REGEX),
        55 => (class::DB_POINTER, class::DB_POINTER),
        60 => (class::CODE, class::CODE),
        65 => (class::CODE_W_SCOPE, class::CODE_W_SCOPE),
        _ => (class::MAX_KEY, class::MAX_KEY),
    }
}

/// Appends a bound at or below every value of this canonical type and above every lower type
/// (ascending form).
pub fn bracket_start(canonical: i8, out: &mut Vec<u8>) {
    out.push(classes_of(canonical).0);
}

/// Appends a bound above every value of this canonical type and all continuations, and below every
/// higher type (ascending form). No value has these bytes.
pub fn bracket_end(canonical: i8, out: &mut Vec<u8>) {
    out.push(classes_of(canonical).1 + 1);
}

/// Inverts bytes that were appended in ascending form, for a descending field.
pub fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

#[cfg(test)]
mod tests;

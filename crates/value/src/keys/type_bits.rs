//! Type information that keys lose: which of several equal-comparing types a value had.
//!
//! ```text
//!  entries, in the order of the values:   byte = code (3 bits) | skip (5 bits)  [| more skip (LEB128)] | payload
//!  skip: values of their default type before this one; 31 means that more follows
//! ```
//! Default types: whole numbers are int, from 2^31 on long; other numbers are double; text is a
//! string. Ordinary keys therefore have no type bits. Content that cannot be derived from the key
//! follows as the value's own bytes.

/// The type of a value, if not the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Int64 = 1,
    Double = 2,
    /// A decimal; its 16 bytes follow.
    Decimal = 3,
    /// A long beyond a double's precision; its 8 bytes follow.
    WideInt64 = 4,
    /// A NaN other than the canonical one; its 8 bytes follow.
    RawDouble = 5,
    Symbol = 6,
    NegativeZero = 7,
}

impl Code {
    fn from_bits(bits: u8) -> Option<Code> {
        Some(match bits {
            1 => Code::Int64,
            2 => Code::Double,
            3 => Code::Decimal,
            4 => Code::WideInt64,
            5 => Code::RawDouble,
            6 => Code::Symbol,
            7 => Code::NegativeZero,
            _ => return None,
        })
    }

    fn payload_len(self) -> usize {
        match self {
            Code::Decimal => 16,
            Code::WideInt64 | Code::RawDouble => 8,
            Code::Int64 | Code::Double | Code::Symbol | Code::NegativeZero => 0,
        }
    }
}

const SKIP_MAX: u32 = 31;

/// Collects type bits while values are appended to a key.
#[derive(Clone, Debug, Default)]
pub struct TypeBits {
    bytes: Vec<u8>,
    skip: u32,
}

impl TypeBits {
    /// An empty collector.
    pub fn new() -> TypeBits {
        TypeBits::default()
    }

    /// The bytes to store with the key; empty when every value had its default type.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the collector for the next key.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.skip = 0;
    }

    pub(super) fn push_default(&mut self) {
        self.skip = self.skip.saturating_add(1);
    }

    pub(super) fn push(&mut self, code: Code, payload: &[u8]) {
        let short = self.skip.min(SKIP_MAX);
        self.bytes.push(code as u8 | (short as u8) << 3);
        if short == SKIP_MAX {
            let mut rest = self.skip - SKIP_MAX;
            while rest >= 0x80 {
                self.bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            self.bytes.push(rest as u8);
        }
        self.bytes.extend_from_slice(payload);
        self.skip = 0;
    }
}

/// Reads type bits in the order of the values.
#[derive(Clone, Debug)]
pub struct TypeBitsReader<'a> {
    rest: &'a [u8],
    skip: u32,
    next: Option<(Code, &'a [u8])>,
}

impl<'a> TypeBitsReader<'a> {
    /// Reads the bytes of [`TypeBits::as_bytes`]. From malformed bytes on, all values have default
    /// types.
    pub fn new(bytes: &'a [u8]) -> TypeBitsReader<'a> {
        let mut reader = TypeBitsReader { rest: bytes, skip: 0, next: None };
        reader.load();
        reader
    }

    fn load(&mut self) {
        self.next = self.load_entry();
        if self.next.is_none() {
            self.rest = &[];
        }
    }

    fn load_entry(&mut self) -> Option<(Code, &'a [u8])> {
        let (&head, mut rest) = self.rest.split_first()?;
        let code = Code::from_bits(head & 7)?;
        let mut skip = u32::from(head >> 3);
        if skip == SKIP_MAX {
            let mut more = 0u32;
            for shift in (0..32).step_by(7) {
                let (&byte, after) = rest.split_first()?;
                rest = after;
                more |= u32::from(byte & 0x7F).checked_shl(shift)?;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            skip = skip.saturating_add(more);
        }
        let (payload, rest) = rest.split_at_checked(code.payload_len())?;
        self.rest = rest;
        self.skip = skip;
        Some((code, payload))
    }

    /// The code of the next value; `None` for the default type.
    pub(super) fn next(&mut self) -> Option<(Code, &'a [u8])> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let entry = self.next?;
        self.load();
        Some(entry)
    }
}

//! The validation of BSON bytes, done once where they enter; all other code slices without
//! checking.
//!
//! One pass without recursion: a small stack records where each open document ends. It checks
//! lengths, terminators, names and strings (UTF-8), booleans, known types, regexes, code with
//! scope, and nesting. It does not check that array names count up, or that names are unique: the
//! reference accepts both.

use mayfly_base::limits::{MAX_BSON_DEPTH, MAX_COMMAND_DEPTH};
use mayfly_base::{Error, ErrorCode, Result};

use crate::raw::{RawDoc, find_zero, ty, zero_in};

/// Checks that the bytes are exactly one document, nested at most `max_depth` levels (never more
/// than [`MAX_COMMAND_DEPTH`]).
pub fn validate(bytes: &[u8], max_depth: usize) -> Result<RawDoc<'_>> {
    let mut walk = Walk {
        bytes,
        at: 0,
        ends: [0; MAX_COMMAND_DEPTH + 1],
        depth: 0,
        max_depth: max_depth.min(MAX_COMMAND_DEPTH),
    };
    match walk.run() {
        Ok(()) => RawDoc::new(bytes).ok_or_else(|| invalid("document length", 0)),
        Err(Fault::Malformed(what)) => Err(invalid(what, walk.at)),
        Err(Fault::TooDeep) => Err(Error::new(
            ErrorCode::Overflow,
            format!(
                "BSONObj exceeds maximum nested object depth: {}",
                walk.max_depth.min(MAX_BSON_DEPTH)
            ),
        )),
    }
}

fn invalid(what: &str, at: usize) -> Error {
    Error::new(ErrorCode::InvalidBSON, format!("invalid BSON: {what} at offset {at}"))
}

/// The highest bits of eight bytes: none of them is set in ASCII.
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// Whether the bytes are UTF-8. Most texts are ASCII, which a faster test detects.
#[inline]
fn is_text(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut all = 0;
    for block in blocks {
        for word in block.as_chunks::<8>().0 {
            all |= u64::from_ne_bytes(*word);
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        all |= u64::from_ne_bytes(*word);
    }
    let mut last = 0;
    for byte in rest {
        last |= byte;
    }
    let ascii = all & HIGHEST_BITS == 0 && last < 0x80;
    ascii || std::str::from_utf8(bytes).is_ok()
}

type Checked<T> = std::result::Result<T, Fault>;

/// Why the bytes are invalid; the walk has the offset.
enum Fault {
    Malformed(&'static str),
    TooDeep,
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset of the final zero byte of each open document; index 0 is the outermost. Lengths
    /// in BSON have 31 bits.
    ends: [u32; MAX_COMMAND_DEPTH + 1],
    depth: usize,
    max_depth: usize,
}

impl<'a> Walk<'a> {
    fn run(&mut self) -> Checked<()> {
        let end = self.framed_end(self.bytes.len())?;
        if end + 1 != self.bytes.len() {
            return Err(Fault::Malformed("document length"));
        }
        self.ends[0] = end as u32;
        self.at = 4;
        loop {
            let end = self.ends[self.depth] as usize;
            while self.at < end {
                let depth = self.depth;
                self.element(end)?;
                if self.depth != depth {
                    break;
                }
            }
            if self.at == self.ends[self.depth] as usize {
                self.at += 1;
                if self.depth == 0 {
                    return Ok(());
                }
                self.depth -= 1;
            }
        }
    }

    /// The offset of the final zero byte of the document that begins here and must end before
    /// `limit`.
    fn framed_end(&self, limit: usize) -> Checked<usize> {
        let len = self.length(self.at, limit)?;
        let past = self.at.checked_add(len).filter(|past| len >= 5 && *past <= limit);
        match past {
            Some(past) if self.bytes[past - 1] == 0 => Ok(past - 1),
            Some(_) => Err(Fault::Malformed("document terminator")),
            None => Err(Fault::Malformed("document length")),
        }
    }

    fn length(&self, at: usize, limit: usize) -> Checked<usize> {
        let chunk = self.bytes[..limit].get(at..).and_then(|rest| rest.first_chunk::<4>());
        chunk
            .and_then(|chunk| usize::try_from(i32::from_le_bytes(*chunk)).ok())
            .ok_or(Fault::Malformed("length"))
    }

    fn open(&mut self, end: usize) -> Checked<()> {
        if self.depth + 1 >= self.max_depth {
            return Err(Fault::TooDeep);
        }
        self.depth += 1;
        self.ends[self.depth] = end as u32;
        self.at += 4;
        Ok(())
    }

    #[inline]
    fn element(&mut self, limit: usize) -> Checked<()> {
        let type_byte = self.bytes[self.at];
        self.at += 1;
        self.cstring(limit, "field name")?;
        match type_byte {
            ty::DOUBLE | ty::DATE | ty::TIMESTAMP | ty::INT64 => self.skip(8, limit),
            ty::STRING | ty::CODE | ty::SYMBOL => self.string(limit),
            ty::DOCUMENT | ty::ARRAY => {
                let end = self.framed_end(limit)?;
                self.open(end)
            }
            ty::BINARY => {
                let len = self.length(self.at, limit)?;
                self.skip(len.saturating_add(5), limit)
            }
            ty::UNDEFINED | ty::NULL | ty::MIN_KEY | ty::MAX_KEY => Ok(()),
            ty::OBJECT_ID => self.skip(12, limit),
            ty::BOOL => {
                if self.at < limit && self.bytes[self.at] > 1 {
                    return Err(Fault::Malformed("boolean"));
                }
                self.skip(1, limit)
            }
            ty::REGEX => {
                self.cstring(limit, "regular expression")?;
                self.cstring(limit, "regular expression options")
            }
            ty::DB_POINTER => {
                self.string(limit)?;
                self.skip(12, limit)
            }
            ty::CODE_W_SCOPE => self.code_with_scope(limit),
            ty::INT32 => self.skip(4, limit),
            ty::DECIMAL => self.skip(16, limit),
            _ => Err(Fault::Malformed("unknown type")),
        }
    }

    #[inline]
    fn skip(&mut self, len: usize, limit: usize) -> Checked<()> {
        match self.at.checked_add(len) {
            Some(past) if past <= limit => {
                self.at = past;
                Ok(())
            }
            _ => Err(Fault::Malformed("value longer than its document")),
        }
    }

    #[inline]
    fn cstring(&mut self, limit: usize, what: &'static str) -> Checked<()> {
        let rest = &self.bytes[self.at.min(limit)..limit];
        // Most names are short and ASCII: one word shows where they end and that they are ASCII.
        if let Some(word) = rest.first_chunk::<8>()
            && let Some(len) = zero_in(*word)
        {
            let name = u64::from_le_bytes(*word) & !(u64::MAX << (8 * len));
            if name & HIGHEST_BITS == 0 {
                self.at += len + 1;
                return Ok(());
            }
        }
        self.long_cstring(rest, what)
    }

    fn long_cstring(&mut self, rest: &[u8], what: &'static str) -> Checked<()> {
        let len = find_zero(rest).ok_or(Fault::Malformed(what))?;
        let text = &rest[..len];
        if !text.is_ascii() && std::str::from_utf8(text).is_err() {
            return Err(Fault::Malformed(what));
        }
        self.at += len + 1;
        Ok(())
    }

    #[inline]
    fn string(&mut self, limit: usize) -> Checked<()> {
        let len = self.length(self.at, limit)?;
        let start = self.at + 4;
        let text = start.checked_add(len).and_then(|past| self.bytes[..limit].get(start..past));
        match text.and_then(<[u8]>::split_last) {
            Some((0, text)) if is_text(text) => {
                self.at = start + len;
                Ok(())
            }
            Some((0, _)) => Err(Fault::Malformed("string that is not UTF-8")),
            _ => Err(Fault::Malformed("string length or terminator")),
        }
    }

    fn code_with_scope(&mut self, limit: usize) -> Checked<()> {
        let len = self.length(self.at, limit)?;
        let past = self.at.checked_add(len).filter(|past| *past <= limit);
        let past = past.ok_or(Fault::Malformed("code with scope"))?;
        self.at += 4;
        if self.at > past {
            return Err(Fault::Malformed("code with scope"));
        }
        self.string(past)?;
        let end = self.framed_end(past)?;
        if end + 1 != past {
            return Err(Fault::Malformed("code with scope"));
        }
        self.open(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DocBuilder;

    fn nested(levels: usize) -> Vec<u8> {
        let mut builder = DocBuilder::new();
        for _ in 1..levels {
            builder.start_document("a");
        }
        builder.finish().into_bytes()
    }

    #[test]
    fn nesting_is_limited() {
        assert!(validate(&nested(200), 200).is_ok());
        let error = validate(&nested(201), 200).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overflow);
        assert_eq!(error.message(), "BSONObj exceeds maximum nested object depth: 200");
        // An argument of a command has the whole depth.
        assert!(validate(&nested(201), MAX_COMMAND_DEPTH).is_ok());
        let error = validate(&nested(202), MAX_COMMAND_DEPTH).unwrap_err();
        assert_eq!(error.message(), "BSONObj exceeds maximum nested object depth: 200");
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let cases: &[(&str, &[u8])] = &[
            ("empty", &[]),
            ("length too long", &[6, 0, 0, 0, 0]),
            ("no terminator", &[5, 0, 0, 0, 1]),
            ("unknown type", &[8, 0, 0, 0, 0x20, b'a', 0, 0]),
            ("bool 2", &[9, 0, 0, 0, 8, b'a', 0, 2, 0]),
            ("name not UTF-8", &[8, 0, 0, 0, 10, 0xC3, 0, 0]),
            ("name open", &[8, 0, 0, 0, 10, b'a', b'b', 0]),
            ("string length 0", &[12, 0, 0, 0, 2, b'a', 0, 0, 0, 0, 0, 0]),
            ("string not UTF-8", &[14, 0, 0, 0, 2, b'a', 0, 2, 0, 0, 0, 0xFF, 0, 0]),
            ("nested length", &[13, 0, 0, 0, 3, b'a', 0, 9, 0, 0, 0, 0, 0]),
        ];
        for (name, bytes) in cases {
            let refused = validate(bytes, 200).map(|_| ()).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::InvalidBSON, "{name}");
        }
    }
}

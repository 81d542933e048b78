//! Names of elements: finding their ends, and comparing them.

/// The index of the first zero byte. Names are short, so the first step, which tests eight bytes,
/// usually finds it.
#[inline]
pub(crate) fn find_zero(bytes: &[u8]) -> Option<usize> {
    if let Some(at) = bytes.first_chunk::<8>().and_then(|chunk| zero_in(*chunk)) {
        return Some(at);
    }
    find_zero_after(bytes)
}

/// The index of the first zero byte in a word.
#[inline]
pub(crate) fn zero_in(chunk: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(chunk);
    // Only the lowest set bit is exact, and only that one is used.
    let zeros = word.wrapping_sub(ONES) & !word & HIGHS;
    (zeros != 0).then_some((zeros.trailing_zeros() / 8) as usize)
}

/// The continuation for longer names.
fn find_zero_after(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        if let Some(zero) = zero_in(*chunk) {
            return Some(at + zero);
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == 0).map(|rest| at + rest)
}

/// A name to search for among the elements of a document. Comparing eight bytes at once
/// distinguishes most names and finds their ends.
pub(super) struct NamePattern<'n> {
    name: &'n [u8],
    /// The first eight bytes, including the terminating zero byte if it is among them, and a mask
    /// of the significant ones.
    word: u64,
    mask: u64,
}

impl<'n> NamePattern<'n> {
    /// `None` for a name with a zero byte, which no element can have.
    #[inline]
    pub(super) fn new(name: &'n [u8]) -> Option<NamePattern<'n>> {
        let mut word = [0; 8];
        let start = name.len().min(8);
        word[..start].copy_from_slice(&name[..start]);
        let mask = if name.len() < 8 { u64::MAX >> (56 - 8 * name.len()) } else { u64::MAX };
        let end = zero_in(word).unwrap_or(8);
        if end < start || name.get(8..).is_some_and(|rest| rest.contains(&0)) {
            return None;
        }
        Some(NamePattern { name, word: u64::from_le_bytes(word), mask })
    }

    /// The length of the name at the beginning of these bytes, and whether it is this one.
    #[inline]
    pub(super) fn compare(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        if let Some(chunk) = bytes.first_chunk::<8>() {
            let same = (u64::from_le_bytes(*chunk) ^ self.word) & self.mask == 0;
            if same && self.name.len() < 8 {
                return Some((self.name.len(), true));
            }
            if let Some(len) = zero_in(*chunk) {
                return Some((len, false));
            }
        }
        let len = find_zero_after(bytes)?;
        Some((len, &bytes[..len] == self.name))
    }
}

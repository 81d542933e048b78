//! Ranges of keys, and the direction, the limits and the end of a scan.

/// A half-open range: `start <= key < end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key in the range.
    pub start: Vec<u8>,
    /// The first key after the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with these bytes.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { start: prefix.to_vec(), end: prefix_end(prefix) }
    }

    /// All keys of a store: none begins with so many of these bytes, because they begin with ids,
    /// times or random bytes.
    pub fn all() -> KeyRange {
        KeyRange { start: Vec::new(), end: vec![0xFF; 32] }
    }

    /// Whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The rest of the range after this key in this direction.
    #[must_use]
    pub fn after(&self, last: &[u8], direction: Direction) -> KeyRange {
        match direction {
            Direction::Forward => {
                let mut start = Vec::with_capacity(last.len() + 1);
                start.extend_from_slice(last);
                start.push(0);
                KeyRange { start, end: self.end.clone() }
            }
            Direction::Backward => KeyRange { start: self.start.clone(), end: last.to_vec() },
        }
    }
}

/// The first key after all keys that begin with these bytes; sixteen `0xFF` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xFF; 16]
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Rows of the first page of a scan whose caller knows nothing better.
pub const FIRST_PAGE: usize = 16;
/// The most rows of a page.
pub const MAX_PAGE: usize = 1024;
/// Each page has this many times as many rows as the one before it.
const PAGE_GROWTH: usize = 4;

/// The rows of the page after one with this many rows.
pub fn next_page(rows: usize) -> usize {
    rows.saturating_mul(PAGE_GROWTH).min(MAX_PAGE)
}

/// The limits at which a scan pauses. It visits at least one entry if there is one.
///
/// An engine in another process sends the entries in pages. The caller says how many rows it
/// probably wants, because the visitor breaks off where it has enough; if it goes on, pages grow
/// ([`next_page`]). An embedded engine ignores the page.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimit {
    /// The number of entries.
    pub rows: usize,
    /// The number of bytes of keys and values.
    pub bytes: usize,
    /// The rows of the first page, if an engine reads in pages.
    pub page: usize,
    /// Whether the entries will probably not be read again soon. An engine reads them without
    /// keeping them in its cache, where they would replace what clients read.
    pub passing: bool,
}

impl ScanLimit {
    /// A scan with this limit never pauses; the visitor may break off soon.
    pub const NONE: ScanLimit =
        ScanLimit { rows: usize::MAX, bytes: usize::MAX, page: FIRST_PAGE, passing: false };

    /// A scan with this limit never pauses, and the visitor wants all entries.
    pub const ALL: ScanLimit = ScanLimit { page: MAX_PAGE, ..ScanLimit::NONE };

    /// A limit on the number of entries, of which the visitor wants all.
    pub const fn rows(rows: usize) -> ScanLimit {
        ScanLimit { rows, page: page_of(rows), ..ScanLimit::NONE }
    }

    /// A scan that never pauses, for a visitor that probably wants this many entries.
    pub const fn page(rows: usize) -> ScanLimit {
        ScanLimit { page: page_of(rows), ..ScanLimit::NONE }
    }

    /// The same with a limit on the number of bytes of keys and values.
    #[must_use]
    pub const fn bytes(self, bytes: usize) -> ScanLimit {
        ScanLimit { bytes, ..self }
    }

    /// The same for entries that will probably not be read again soon.
    #[must_use]
    pub const fn passing(self) -> ScanLimit {
        ScanLimit { passing: true, ..self }
    }
}

const fn page_of(rows: usize) -> usize {
    if rows == 0 {
        1
    } else if rows > MAX_PAGE {
        MAX_PAGE
    } else {
        rows
    }
}

/// How a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// The range has no further entry.
    Exhausted,
    /// The limit was reached, the visitor stopped, or many retired records followed each other;
    /// continue with [`KeyRange::after`] this key. The rest of the range may turn out to be empty.
    More {
        /// The last key that was visited or passed.
        last_key: Vec<u8>,
    },
}

//! A scan of stored entries, in pages that grow.
//!
//! A page is complete before its entries are visited, because the visitor may read on the same
//! connection. It has a limit of rows, and large values are fetched separately, so that it fits
//! into memory whatever the documents are.

use mayfly_kv::scan::{Cursor, ScanRequest};
use mayfly_kv::{Direction, KeyRange, Keyspace, KvError, KvResult, MAX_PAGE, RETIRED, next_page};
use tokio_postgres::Row;

use crate::large::LargeValues;
use crate::sql::{LARGE_VALUE, Sql};
use crate::txn::PostgresTxn;

/// Bytes of the values of a statement that is limited by them, but for its last row.
pub(crate) const PAGE_BYTES: i64 = 4 << 20;
/// Rows of a page even if the values of the page before it were large.
const FEWEST_ROWS: usize = 64;
/// A scan of one range.
pub(crate) struct PageCursor<'t> {
    txn: &'t PostgresTxn,
    keyspace: Keyspace,
    kind: PageKind,
    direction: Direction,
    /// The part of the range that has not been fetched.
    rest: KeyRange,
    page_rows: usize,
    rows: Vec<Row>,
    at: usize,
    /// Whether nothing is left to fetch.
    is_exhausted: bool,
    current: Current,
    large: LargeValues,
    error: Option<KvError>,
}

/// What a scan does with retired records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Hiding,
    Showing,
}

/// Where the value of the current entry is.
enum Current {
    InRow,
    Large,
    Marked(Vec<u8>),
}

impl<'t> PageCursor<'t> {
    /// A cursor on the first entry that omits retired records.
    pub(crate) fn hiding(txn: &'t PostgresTxn, request: ScanRequest<'_>) -> PageCursor<'t> {
        let ScanRequest { keyspace, range, direction, limit } = request;
        let rows = limit.page.min(limit.rows);
        PageCursor::new(txn, (keyspace, PageKind::Hiding), (range, direction), rows)
    }

    /// A cursor on the first entry that shows retired records.
    pub(crate) fn showing(
        txn: &'t PostgresTxn,
        keyspace: Keyspace,
        range: &KeyRange,
        rows: usize,
    ) -> PageCursor<'t> {
        PageCursor::new(txn, (keyspace, PageKind::Showing), (range, Direction::Forward), rows)
    }

    fn new(
        txn: &'t PostgresTxn,
        (keyspace, kind): (Keyspace, PageKind),
        (range, direction): (&KeyRange, Direction),
        rows: usize,
    ) -> PageCursor<'t> {
        let mut cursor = PageCursor {
            txn,
            keyspace,
            kind,
            direction,
            rest: range.clone(),
            page_rows: rows.clamp(1, MAX_PAGE),
            rows: Vec::new(),
            at: 0,
            is_exhausted: false,
            current: Current::InRow,
            large: LargeValues::default(),
            error: None,
        };
        cursor.step(PageCursor::fetch);
        cursor
    }

    /// Goes to another entry, and notes a failure for [`Cursor::entry`].
    fn step(&mut self, go: fn(&mut PageCursor<'t>) -> KvResult<()>) {
        if let Err(error) = go(self).and_then(|()| self.find_value()) {
            (self.rows, self.at, self.error) = (Vec::new(), 0, Some(error));
        }
    }

    /// Fetches the next page.
    fn fetch(&mut self) -> KvResult<()> {
        (self.rows, self.at, self.large) = (Vec::new(), 0, LargeValues::default());
        if self.is_exhausted || self.rest.is_empty() {
            return Ok(());
        }
        let rows = i64::try_from(self.page_rows).unwrap_or(i64::MAX);
        let (start, end) = (&self.rest.start, &self.rest.end);
        self.rows = match self.kind {
            PageKind::Hiding => {
                self.txn.query(Sql::Scan(self.keyspace, self.direction), &[start, end, &rows])?
            }
            PageKind::Showing => {
                let sql = Sql::ScanStored(self.keyspace);
                self.txn.query(sql, &[start, end, &rows, &PAGE_BYTES])?
            }
        };
        let mut bytes = 0;
        for row in &self.rows {
            bytes += optional_column(row, 1)?.map_or(LARGE_VALUE, <[u8]>::len);
        }
        // A page that shows retired records may also end because of its bytes.
        let is_cut = self.kind == PageKind::Showing && bytes as i64 >= PAGE_BYTES;
        self.is_exhausted = self.rows.len() < self.page_rows && !is_cut;
        if let Some(last) = self.rows.last() {
            self.rest = self.rest.after(column(last, 0)?, self.direction);
        }
        self.page_rows = next_rows(self.page_rows, self.rows.len(), bytes);
        Ok(())
    }

    /// Finds the value of the current entry.
    fn find_value(&mut self) -> KvResult<()> {
        self.current = Current::InRow;
        let Some(row) = self.rows.get(self.at) else { return Ok(()) };
        let is_retired = self.kind == PageKind::Showing && flag(row, 2)?;
        match (is_retired, optional_column(row, 1)?) {
            (true, Some(value)) => {
                let mut value = value.to_vec();
                value.iter_mut().take(1).for_each(|first| *first |= RETIRED);
                self.current = Current::Marked(value);
            }
            (false, Some(_)) => {}
            (_, None) => {
                let keys = large_keys(&self.rows[self.at..]);
                self.large.next(self.txn, self.keyspace, keys)?;
                self.current = Current::Large;
            }
        }
        Ok(())
    }
}

impl Cursor for PageCursor<'_> {
    fn entry(&self) -> KvResult<Option<(&[u8], &[u8])>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(row) = self.rows.get(self.at) else { return Ok(None) };
        let value = match &self.current {
            Current::InRow => column(row, 1)?,
            Current::Large => self.large.current()?,
            Current::Marked(value) => value,
        };
        Ok(Some((column(row, 0)?, value)))
    }

    fn advance(&mut self) {
        self.step(|cursor| {
            cursor.at += 1;
            if cursor.at >= cursor.rows.len() { cursor.fetch() } else { Ok(()) }
        });
    }
}

/// The rows of the page after one of `rows` rows, of which `found` were found with this many bytes.
pub(crate) fn next_rows(rows: usize, found: usize, bytes: usize) -> usize {
    let each = bytes / found.max(1);
    let fitting = PAGE_BYTES as usize / each.max(1);
    next_page(rows).min(fitting.max(FEWEST_ROWS))
}

/// The keys of large values, from the current entry on.
fn large_keys(rows: &[Row]) -> impl Iterator<Item = &[u8]> {
    let is_large = |row: &&Row| optional_column(row, 1).is_ok_and(|value| value.is_none());
    rows.iter().filter(is_large).filter_map(|row| column(row, 0).ok())
}

/// A column of bytes.
pub(crate) fn column(row: &Row, at: usize) -> KvResult<&[u8]> {
    row.try_get(at).map_err(|error| unreadable(&error))
}

/// A column that may be null.
pub(crate) fn optional_column(row: &Row, at: usize) -> KvResult<Option<&[u8]>> {
    row.try_get(at).map_err(|error| unreadable(&error))
}

/// A column with a number.
pub(crate) fn number(row: &Row, at: usize) -> KvResult<i64> {
    row.try_get(at).map_err(|error| unreadable(&error))
}

/// A column with a truth value.
pub(crate) fn flag(row: &Row, at: usize) -> KvResult<bool> {
    row.try_get(at).map_err(|error| unreadable(&error))
}

fn unreadable(error: &tokio_postgres::Error) -> KvError {
    KvError::Corrupt(format!("PostgreSQL returned another type than the table has: {error}"))
}

//! A scan of stored entries, in pages that grow.
//!
//! A page has a limit of rows and one of bytes, so that it fits into memory whatever the documents
//! are. It is complete before its entries are visited: the visitor may read on the same connection.

use mayfly_kv::scan::{Cursor, ScanRequest};
use mayfly_kv::{Direction, KeyRange, Keyspace, KvError, KvResult, MAX_PAGE, RETIRED, next_page};
use tokio_postgres::Row;

use crate::sql::Sql;
use crate::txn::PostgresTxn;

/// Bytes of the values of a page, but for its last row.
pub(crate) const PAGE_BYTES: i64 = 4 << 20;
/// Most rows of a page after one of retired records only: their values are not sent.
const RETIRED_PAGE: usize = 8 * MAX_PAGE;

/// What a retired record looks like to a scan that hides it.
const HIDDEN: &[u8] = &[RETIRED];

/// A scan of one range.
pub(crate) struct PageCursor<'t> {
    txn: &'t PostgresTxn,
    sql: Sql,
    hides: bool,
    direction: Direction,
    /// The part of the range that has not been fetched.
    rest: KeyRange,
    page_rows: usize,
    rows: Vec<Row>,
    at: usize,
    /// Whether nothing is left to fetch.
    is_exhausted: bool,
    /// The value of the current row with its mark, if the scan shows retired records.
    marked: Option<Vec<u8>>,
    error: Option<KvError>,
}

impl<'t> PageCursor<'t> {
    /// A cursor on the first entry that hides the values of retired records.
    pub(crate) fn hiding(txn: &'t PostgresTxn, request: ScanRequest<'_>) -> PageCursor<'t> {
        let ScanRequest { keyspace, range, direction, limit } = request;
        let rows = limit.page.min(limit.rows);
        PageCursor::new(txn, Sql::Scan(keyspace, direction), (range, direction), rows, true)
    }

    /// A cursor on the first entry that shows retired records.
    pub(crate) fn showing(
        txn: &'t PostgresTxn,
        keyspace: Keyspace,
        range: &KeyRange,
        rows: usize,
    ) -> PageCursor<'t> {
        let sql = Sql::ScanStored(keyspace);
        PageCursor::new(txn, sql, (range, Direction::Forward), rows, false)
    }

    fn new(
        txn: &'t PostgresTxn,
        sql: Sql,
        (range, direction): (&KeyRange, Direction),
        rows: usize,
        hides: bool,
    ) -> PageCursor<'t> {
        let mut cursor = PageCursor {
            txn,
            sql,
            hides,
            direction,
            rest: range.clone(),
            page_rows: rows.clamp(1, MAX_PAGE),
            rows: Vec::new(),
            at: 0,
            is_exhausted: false,
            marked: None,
            error: None,
        };
        cursor.fetch();
        cursor
    }

    /// Fetches the next page.
    fn fetch(&mut self) {
        if self.is_exhausted || self.rest.is_empty() {
            (self.rows, self.at) = (Vec::new(), 0);
            return;
        }
        if let Err(error) = self.try_fetch() {
            (self.rows, self.at, self.error) = (Vec::new(), 0, Some(error));
        }
        self.mark();
    }

    fn try_fetch(&mut self) -> KvResult<()> {
        let rows = i64::try_from(self.page_rows).unwrap_or(i64::MAX);
        let (start, end) = (&self.rest.start, &self.rest.end);
        self.rows = self.txn.query(self.sql, &[start, end, &rows, &PAGE_BYTES])?;
        self.at = 0;
        let (mut bytes, mut all_retired) = (0, true);
        for row in &self.rows {
            bytes += column(row, 1)?.len();
            all_retired &= is_marked(row)?;
        }
        // A page may also end because of its bytes.
        let is_full = self.rows.len() >= self.page_rows || bytes as i64 >= PAGE_BYTES;
        self.is_exhausted = !is_full;
        if let Some(last) = self.rows.last() {
            self.rest = self.rest.after(column(last, 0)?, self.direction);
        }
        self.page_rows = match all_retired {
            true => (self.page_rows * 4).min(RETIRED_PAGE),
            false => next_page(self.page_rows),
        };
        Ok(())
    }

    /// Sets the mark in a copy of the current value, if the record is retired and shown.
    fn mark(&mut self) {
        self.marked = None;
        let Some(row) = self.rows.get(self.at) else { return };
        if !self.hides && is_marked(row).unwrap_or(false) {
            let mut value = column(row, 1).unwrap_or_default().to_vec();
            value.iter_mut().take(1).for_each(|first| *first |= RETIRED);
            self.marked = Some(value);
        }
    }
}

impl Cursor for PageCursor<'_> {
    fn entry(&self) -> KvResult<Option<(&[u8], &[u8])>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(row) = self.rows.get(self.at) else { return Ok(None) };
        let value = match &self.marked {
            Some(marked) => marked,
            None if self.hides && is_marked(row)? => HIDDEN,
            None => column(row, 1)?,
        };
        Ok(Some((column(row, 0)?, value)))
    }

    fn advance(&mut self) {
        self.at += 1;
        if self.at >= self.rows.len() {
            self.fetch();
        } else {
            self.mark();
        }
    }
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

fn is_marked(row: &Row) -> KvResult<bool> {
    row.try_get(2).map_err(|error| unreadable(&error))
}

fn unreadable(error: &tokio_postgres::Error) -> KvError {
    KvError::Corrupt(format!("PostgreSQL returned another type than the table has: {error}"))
}

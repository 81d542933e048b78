//! A scan of several ranges: a page is one statement over many of them.

use mayfly_kv::{Direction, KeyRange, Keyspace, KvResult, MAX_PAGE, RangesVisitor, ScanEnd};
use tokio_postgres::Row;

use crate::cursor::{column, next_rows, number, optional_column};
use crate::large::LargeValues;
use crate::sql::Sql;
use crate::txn::PostgresTxn;

/// Most ranges of one statement.
const MANY_RANGES: usize = 256;

/// Visits the entries of the ranges, which this transaction has not written to.
pub(crate) fn visit(
    txn: &PostgresTxn,
    keyspace: Keyspace,
    ranges: &[KeyRange],
    (direction, page): (Direction, usize),
    visit: &mut RangesVisitor<'_>,
) -> KvResult<(usize, ScanEnd)> {
    let sql = Sql::ScanRanges(keyspace, direction);
    let (mut first, mut rows) = (0, page.clamp(1, MAX_PAGE));
    // What is left of the first range, if a part of it was visited.
    let mut rest: Option<KeyRange> = None;
    while first < ranges.len() {
        let chunk = &ranges[first..ranges.len().min(first + MANY_RANGES)];
        let parts = chunk.iter().enumerate().map(|(at, range)| match &rest {
            Some(rest) if at == 0 => rest,
            _ => range,
        });
        let (starts, ends): (Vec<&[u8]>, Vec<&[u8]>) =
            parts.map(|range| (&range.start[..], &range.end[..])).unzip();
        let most = i64::try_from(rows).unwrap_or(i64::MAX);
        let found = txn.query(sql, &[&starts, &ends, &most])?;
        let (mut bytes, mut last, mut large) = (0, None, LargeValues::default());
        for (n, row) in found.iter().enumerate() {
            let at = first + usize::try_from(number(row, 0)? - 1).unwrap_or(0);
            let key = column(row, 1)?;
            let value = match optional_column(row, 2)? {
                Some(value) => value,
                None => large.next(txn, keyspace, large_keys(&found[n..]))?,
            };
            bytes += value.len();
            if visit(at, key, value).is_break() {
                return Ok((at, ScanEnd::More { last_key: key.to_vec() }));
            }
            last = Some((at, key));
        }
        match last {
            Some((at, key)) if found.len() >= rows => {
                let range = ranges.get(at).map(|range| range.after(key, direction));
                rest = range.filter(|rest| !rest.is_empty());
                first = if rest.is_some() { at } else { at + 1 };
            }
            _ => (first, rest) = (first + chunk.len(), None),
        }
        rows = next_rows(rows, found.len(), bytes);
    }
    Ok((ranges.len().saturating_sub(1), ScanEnd::Exhausted))
}

fn large_keys(rows: &[Row]) -> impl Iterator<Item = &[u8]> {
    let is_large = |row: &&Row| optional_column(row, 2).is_ok_and(|value| value.is_none());
    rows.iter().filter(is_large).filter_map(|row| column(row, 1).ok())
}

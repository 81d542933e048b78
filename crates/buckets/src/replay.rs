//! Replay of bucket deltas. The log contains a delta when rows were appended to a packed bucket;
//! the bucket that it is applied to may be packed differently, or be newer than the log.
//!
//! The delta contains the new number of rows, and for each column either the appended bytes or, for
//! a short or new column, the whole column:
//!
//! ```text
//! { scontrol: { u: { count: n }, .. }, sdata: { b: { <field>: { o, d: runs } }, u: { <field>: column }, i: { .. } } }
//! ```
//!
//! Runs are self-contained, so the added rows can be decoded without the old bytes: they are the
//! last `k` of `n` rows, where `k` is the number of rows in the runs. A bucket with more than `n -
//! k` rows has some of them already.

use std::collections::HashMap;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue};

use crate::bucket::{Bucket, COLUMN};
use crate::column::{Column, MAX_ROWS};
use crate::exchange::{is_packed, logged};
use crate::options::TimeSeries;

/// The rows that a delta adds to a bucket.
pub struct AddedRows {
    /// Number of rows before them.
    before: usize,
    rows: usize,
    columns: Vec<(String, Column)>,
}

fn malformed(what: &str) -> Error {
    Error::failed_to_parse(format!("the delta of a bucket has {what}"))
}

fn part<'a>(document: RawDoc<'a>, path: &[&str]) -> Option<RawDoc<'a>> {
    path.iter().try_fold(document, |document, name| document.get(name)?.as_document())
}

impl AddedRows {
    /// Parses a delta.
    ///
    /// # Errors
    /// 9 FailedToParse for a delta that adds no rows.
    pub fn of(delta: RawDoc<'_>) -> Result<AddedRows> {
        let count = part(delta, &["scontrol", "u"]).or(part(delta, &["u", "control"]));
        let count = count.and_then(|control| control.get("count")).and_then(Number::from_value);
        let count =
            count.and_then(Number::to_i64_exact).and_then(|rows| usize::try_from(rows).ok());
        let count = count.filter(|rows| *rows <= MAX_ROWS);
        let count = count.ok_or_else(|| malformed("no number of rows"))?;
        let mut tails: HashMap<&str, Column> = HashMap::new();
        let mut columns = Vec::new();
        for element in part(delta, &["sdata", "b"]).unwrap_or(RawDoc::EMPTY) {
            let runs = element.value().as_document().and_then(|tail| tail.get("d"));
            let Some(RawValue::Binary { bytes, .. }) = runs else {
                return Err(malformed("a column without its end"));
            };
            let tail = Column::decode_tail(bytes).ok_or_else(|| malformed("bad runs"))?;
            tails.insert(element.name(), tail);
        }
        let rows = match tails.values().next() {
            Some(tail) => tail.len(),
            None => count,
        };
        let before = count.checked_sub(rows).ok_or_else(|| malformed("too many rows"))?;
        if rows == 0 || tails.values().any(|tail| tail.len() != rows) {
            return Err(malformed("columns of different lengths"));
        }
        columns.extend(tails.into_iter().map(|(name, tail)| (name.to_owned(), tail)));
        for path in [&["sdata", "u"], &["sdata", "i"], &["u", "data"]] {
            for element in part(delta, path).unwrap_or(RawDoc::EMPTY) {
                let RawValue::Binary { subtype: COLUMN, bytes } = element.value() else {
                    return Err(malformed("a column that is none"));
                };
                let whole =
                    Column::decode(bytes, count).ok_or_else(|| malformed("a bad column"))?;
                columns.push((element.name().to_owned(), whole.rows_from(before)));
            }
        }
        Ok(AddedRows { before, rows, columns })
    }

    /// Adds the rows that the bucket does not have; returns whether there were any.
    pub fn add_to(self, bucket: &mut Bucket) -> bool {
        let known = bucket.rows().saturating_sub(self.before);
        if known >= self.rows {
            return false;
        }
        let columns = self.columns.into_iter();
        let columns =
            columns.map(|(name, column)| (name.into_boxed_str(), column.rows_from(known)));
        bucket.extend_by(self.rows - known, columns);
        true
    }
}

/// Whether a bucket of a log, which is packed as this server stores it, is the same as this valid
/// one except for the division of its columns into runs. A replay then stores its exact bytes.
///
/// # Errors
/// As [`logged`].
pub fn is_same_bucket(
    logged_bucket: RawDoc<'_>,
    valid: RawDoc<'_>,
    series: &TimeSeries,
) -> Result<bool> {
    let others = |document: RawDoc<'_>| -> Vec<Vec<u8>> {
        let others = document.iter().filter(|field| field.name() != "data");
        let one = |field: RawElement<'_>| {
            let mut alone = DocBuilder::new();
            alone.append_element(field);
            alone.finish().into_bytes()
        };
        others.map(one).collect()
    };
    let names = |document: RawDoc<'_>| -> Option<Vec<String>> {
        let columns = document.get("data")?.as_document()?;
        Some(columns.iter().map(|column| column.name().to_owned()).collect())
    };
    if !is_packed(logged_bucket)
        || others(logged_bucket) != others(valid)
        || names(logged_bucket) != names(valid)
    {
        return Ok(false);
    }
    let canonical = |document| Ok(logged(document, series)?.document(&series.fields));
    let (given, valid): (DocBuf, DocBuf) = (canonical(logged_bucket)?, canonical(valid)?);
    Ok(given == valid)
}

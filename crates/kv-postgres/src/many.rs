//! The values of many stored keys, in the order in which they are asked for.

use mayfly_kv::{Keyspace, KvResult};
use tokio_postgres::Row;

use crate::cursor::{column, optional_column};
use crate::large::LargeValues;
use crate::sql::Sql;
use crate::txn::PostgresTxn;

/// Most keys of one statement. Their small values have at most 4 MiB.
pub(crate) const MANY_KEYS: usize = 256;

/// Values that are fetched when the first one is asked for.
pub(crate) struct StoredMany<'t, 'k> {
    txn: &'t PostgresTxn,
    keyspace: Keyspace,
    keys: Vec<&'k [u8]>,
    /// The index of the next key.
    next: usize,
    /// Key and value of those that are present, sorted by key.
    rows: Option<Vec<Row>>,
    large: LargeValues,
}

impl<'t, 'k> StoredMany<'t, 'k> {
    pub(crate) fn new(
        txn: &'t PostgresTxn,
        keyspace: Keyspace,
        keys: Vec<&'k [u8]>,
    ) -> StoredMany<'t, 'k> {
        let large = LargeValues::default();
        StoredMany { txn, keyspace, keys, next: 0, rows: None, large }
    }

    /// The value of the next key; `None` if it is absent.
    pub(crate) fn next(&mut self) -> KvResult<Option<&[u8]>> {
        if self.rows.is_none() {
            let mut rows = self.txn.query(Sql::GetAny(self.keyspace), &[&self.keys])?;
            rows.sort_by(|a, b| key_of(a).cmp(key_of(b)));
            self.rows = Some(rows);
        }
        let rows = self.rows.as_deref().unwrap_or_default();
        let row = |key: &[u8]| {
            rows.binary_search_by(|row| key_of(row).cmp(key)).ok().and_then(|at| rows.get(at))
        };
        let rest = self.keys.get(self.next..).unwrap_or_default();
        self.next += 1;
        let Some(found) = rest.first().and_then(|key| row(key)) else { return Ok(None) };
        if let Some(value) = optional_column(found, 1)? {
            return Ok(Some(value));
        }
        let is_large = |key: &[u8]| {
            row(key).is_some_and(|row| optional_column(row, 1).is_ok_and(|value| value.is_none()))
        };
        let large = rest.iter().copied().filter(|key| is_large(key));
        self.large.next(self.txn, self.keyspace, large).map(Some)
    }
}

fn key_of(row: &Row) -> &[u8] {
    column(row, 0).unwrap_or_default()
}

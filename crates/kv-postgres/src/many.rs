//! The values of many stored keys, in the order of the keys and in pages of bytes.

use mayfly_kv::{Keyspace, KvResult};
use tokio_postgres::Row;

use crate::cursor::{PAGE_BYTES, column, number};
use crate::sql::Sql;
use crate::txn::PostgresTxn;

/// Most keys of one statement.
pub(crate) const MANY_KEYS: usize = 1_000;

/// Values that are fetched when they are asked for.
pub(crate) struct StoredMany<'t, 'k> {
    txn: &'t PostgresTxn,
    keyspace: Keyspace,
    keys: Vec<&'k [u8]>,
    /// The index of the next key.
    next: usize,
    /// The rows of the last statement; they number its keys from 1.
    rows: Vec<Row>,
    at: usize,
    /// The index of the first key of the last statement, and the first one after those it answers.
    answered: (usize, usize),
}

impl<'t, 'k> StoredMany<'t, 'k> {
    pub(crate) fn new(
        txn: &'t PostgresTxn,
        keyspace: Keyspace,
        keys: Vec<&'k [u8]>,
    ) -> StoredMany<'t, 'k> {
        StoredMany { txn, keyspace, keys, next: 0, rows: Vec::new(), at: 0, answered: (0, 0) }
    }

    /// The value of the next key; `None` if it is absent.
    pub(crate) fn next(&mut self) -> KvResult<Option<&[u8]>> {
        if self.next >= self.answered.1 {
            self.fetch()?;
        }
        let number_of_next = self.next - self.answered.0 + 1;
        self.next += 1;
        let Some(row) = self.rows.get(self.at) else { return Ok(None) };
        if number(row, 0)? != number_of_next as i64 {
            return Ok(None);
        }
        self.at += 1;
        column(row, 1).map(Some)
    }

    /// Asks for the keys from the next one on. The answer may end early because of its bytes.
    fn fetch(&mut self) -> KvResult<()> {
        let first = self.next;
        let asked = self.keys.get(first..).unwrap_or_default();
        self.rows = self.txn.query(Sql::GetMany(self.keyspace), &[&asked, &PAGE_BYTES])?;
        (self.at, self.answered) = (0, (first, self.keys.len()));
        let mut bytes = 0;
        for row in &self.rows {
            bytes += column(row, 1)?.len();
        }
        if let Some(last) = self.rows.last()
            && bytes as i64 >= PAGE_BYTES
        {
            let answered = usize::try_from(number(last, 0)?).unwrap_or(0);
            self.answered.1 = first + answered;
        }
        Ok(())
    }
}

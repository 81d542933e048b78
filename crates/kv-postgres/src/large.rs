//! Values that are too large for a page of a scan.
//!
//! A page contains null instead of them. They are fetched when the scan comes to the first one, and
//! as many of the following ones as fit into [`PAGE_BYTES`].

use mayfly_kv::{Keyspace, KvError, KvResult};
use tokio_postgres::Row;

use crate::cursor::{PAGE_BYTES, column, number};
use crate::sql::{LARGE_VALUE, Sql};
use crate::txn::PostgresTxn;

/// Most keys of one statement.
const MOST: usize = 1 + PAGE_BYTES as usize / LARGE_VALUE;

/// Large values, in the order in which they are asked for.
#[derive(Default)]
pub(crate) struct LargeValues {
    rows: Vec<Row>,
    /// The index of the next value.
    at: usize,
}

impl LargeValues {
    /// The next large value: the first one of those with these keys. The others are those that
    /// will be asked for afterwards.
    pub(crate) fn next<'k>(
        &mut self,
        txn: &PostgresTxn,
        keyspace: Keyspace,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> KvResult<&[u8]> {
        if self.at >= self.rows.len() {
            let keys: Vec<&[u8]> = keys.take(MOST).collect();
            self.rows = txn.query(Sql::GetInOrder(keyspace), &[&keys, &PAGE_BYTES])?;
            self.at = 0;
            // All of them are present in the snapshot, so they are numbered without gaps.
            for (row, at) in self.rows.iter().zip(1..) {
                if number(row, 0)? != at {
                    return Err(missing());
                }
            }
        }
        let row = self.rows.get(self.at).ok_or_else(missing)?;
        self.at += 1;
        column(row, 1)
    }

    /// The value that was returned last.
    pub(crate) fn current(&self) -> KvResult<&[u8]> {
        column(self.rows.get(self.at.wrapping_sub(1)).ok_or_else(missing)?, 1)
    }
}

fn missing() -> KvError {
    KvError::Corrupt("PostgreSQL has not returned a value of the same snapshot".into())
}

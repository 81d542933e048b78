//! Bulk loading with COPY, which costs PostgreSQL less than statements with arrays.
//!
//! ```text
//! begin isolation level read committed
//! insert into commits values (token)
//! copy record (key, value, retired) from stdin (format binary)
//! commit
//! ```
//!
//! The entries are sent in chunks. Each chunk is a transaction with a token, so that one whose
//! reply was lost is settled, and sent again if it was not applied, as any other commit is. A
//! thread sends it while the next one is filled. One chunk at a time is under way, because
//! PostgreSQL fills the pages of an index best when keys arrive in their order.
//!
//! A load that is dropped waits for its last chunk: the caller sweeps the range then, and a chunk
//! that was committed after the sweep would stay.

use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use bytes::Bytes;
use futures_util::SinkExt;
use mayfly_kv::{Ingest, Keyspace, KvError, KvResult, RETIRED, is_retired};
use mayfly_work::current;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use crate::commit::{self, CommitLease, LastCall, Sent, Start};
use crate::connection::Connection;
use crate::engine::Store;
use crate::failure::Failure;
use crate::pool::{Admission, Lease};
use crate::sql::Sql;
use crate::txn::CAPS;
use crate::wait::Patience;

/// Bytes of a chunk. PostgreSQL works on it for a small part of the deadline of a statement.
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes of a message. PostgreSQL reads a message as a whole before it uses the rows.
const MESSAGE_BYTES: usize = 256 << 10;
/// The signature of the format, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The number of columns that ends the rows.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

pub(crate) struct PostgresIngest {
    store: Arc<Store>,
    keyspace: Keyspace,
    /// The next chunk, in the format of COPY; empty without rows.
    rows: Vec<u8>,
    /// The last key; `None` before the first one.
    last: Option<Vec<u8>>,
    under_way: Option<JoinHandle<KvResult<()>>>,
}

impl PostgresIngest {
    pub(crate) fn new(store: Arc<Store>, keyspace: Keyspace) -> PostgresIngest {
        PostgresIngest { store, keyspace, rows: Vec::new(), last: None, under_way: None }
    }

    fn append_row(&mut self, key: &[u8], value: &[u8]) {
        if self.rows.is_empty() {
            self.rows.reserve(CHUNK_BYTES + key.len() + value.len());
            self.rows.extend_from_slice(HEADER);
        }
        let columns = if self.keyspace == Keyspace::Record { 3_i16 } else { 2 };
        self.rows.extend_from_slice(&columns.to_be_bytes());
        append_field(&mut self.rows, key);
        append_field(&mut self.rows, value);
        if self.keyspace == Keyspace::Record {
            let is_retired = is_retired(self.keyspace, value);
            if is_retired {
                let first = self.rows.len() - value.len();
                self.rows[first] &= !RETIRED;
            }
            append_field(&mut self.rows, &[u8::from(is_retired)]);
        }
    }

    /// The rows as the data of one COPY.
    fn take_chunk(&mut self) -> Bytes {
        let mut rows = std::mem::take(&mut self.rows);
        rows.extend_from_slice(&TRAILER);
        rows.into()
    }

    /// Sends a full chunk on another thread, after the one before has ended.
    fn begin_chunk(&mut self) -> KvResult<()> {
        self.await_chunk()?;
        let (store, keyspace, rows) = (self.store.clone(), self.keyspace, self.take_chunk());
        let send = move || send_chunk(&store, keyspace, &rows);
        let thread = thread::Builder::new().name("bulk load".into()).spawn(send);
        let thread = thread.map_err(|error| KvError::Unavailable(format!("no thread: {error}")))?;
        self.under_way = Some(thread);
        Ok(())
    }

    /// Waits until no chunk is under way.
    fn await_chunk(&mut self) -> KvResult<()> {
        let Some(thread) = self.under_way.take() else { return Ok(()) };
        let panicked = |_| Err(KvError::Unavailable("a thread of a bulk load has panicked".into()));
        current::wait(|| thread.join()).unwrap_or_else(panicked)
    }
}

impl Ingest for PostgresIngest {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        CAPS.check_write(key, value, (0, 0))?;
        CAPS.check_ascending(self.last.as_deref(), key)?;
        self.append_row(key, value);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if self.rows.len() >= CHUNK_BYTES { self.begin_chunk() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> KvResult<()> {
        self.await_chunk()?;
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = self.take_chunk();
        send_chunk(&self.store, self.keyspace, &rows)
    }
}

impl Drop for PostgresIngest {
    fn drop(&mut self) {
        // The caller sweeps the range, whatever became of the chunk.
        let _ = self.await_chunk();
    }
}

fn append_field(rows: &mut Vec<u8>, field: &[u8]) {
    // Keys and values have far less than 2 GB.
    rows.extend_from_slice(&(field.len() as u32).to_be_bytes());
    rows.extend_from_slice(field);
}

/// Commits a chunk. It does not wait for one of the connections of transactions: the caller may
/// hold locks for which those that have them are waiting.
fn send_chunk(store: &Arc<Store>, keyspace: Keyspace, rows: &Bytes) -> KvResult<()> {
    let lease = store.pool.lease(Admission::AtOnce, store.deadline())?;
    let lease = Some(CommitLease::Free(lease));
    let sent = commit::commit_with(store, lease, |lease, start, token, deadline| {
        try_to_send(lease, (keyspace, rows), start, token, deadline)
    });
    sent.map_err(|error| match error {
        // Nothing else writes the keys of a load, so another try would find the same.
        KvError::Conflict => {
            KvError::Invalid("a key of a bulk load is already in the database".into())
        }
        other => other,
    })
}

fn try_to_send(
    lease: &Lease,
    (keyspace, rows): (Keyspace, &Bytes),
    start: &Start,
    token: i64,
    deadline: Instant,
) -> Sent {
    let connection = lease.connection();
    let prepared = |sql| connection.statement(sql, deadline);
    let (add_token, copy) = match (prepared(Sql::AddToken), prepared(Sql::CopyIn(keyspace))) {
        (Ok(add_token), Ok(copy)) => (add_token, copy),
        (Err(failure), _) | (_, Err(failure)) => return Sent::Unsent(failure),
    };
    lease.begin_transaction();
    let params: [&(dyn ToSql + Sync); 1] = [&token];
    let begin = vec![connection.plain_call(start.several), connection.call(add_token, &params)];
    // COPY follows only in a transaction: outside of one it would be committed on its own.
    match commit::replies(connection, begin, LastCall::Write, deadline) {
        Sent::Applied => {}
        other => return other,
    }
    let copied = copy_rows(connection, &copy, rows);
    match connection.wait(copied, deadline, Patience::UntilDeadline) {
        Ok(()) => {}
        Err(Failure::Refused(error)) => return Sent::Refused(error),
        Err(failure) => return Sent::Unsent(failure),
    }
    let end = vec![connection.plain_call("commit")];
    let sent = commit::replies(connection, end, LastCall::Commit, deadline);
    if matches!(sent, Sent::Applied) {
        lease.end_transaction();
    }
    sent
}

async fn copy_rows(
    connection: &Connection,
    statement: &Statement,
    rows: &Bytes,
) -> Result<(), Error> {
    let mut sink = pin!(connection.client().copy_in::<_, Bytes>(statement).await?);
    let mut rest = rows.clone();
    while !rest.is_empty() {
        let message = rest.split_to(rest.len().min(MESSAGE_BYTES));
        sink.feed(message).await?;
    }
    sink.finish().await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_its_length_before_it() {
        let mut rows = Vec::new();
        append_field(&mut rows, b"key");
        append_field(&mut rows, b"");
        assert_eq!(rows, b"\0\0\0\x03key\0\0\0\0");
        assert_eq!(HEADER.len(), 19);
    }
}

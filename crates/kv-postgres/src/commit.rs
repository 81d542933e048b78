//! What a commit sends: the token and the writes as arrays, without waiting in between.
//!
//! ```text
//! rollback; begin isolation level read committed
//! insert into commits values (token)
//! insert into record ... unnest(keys, values)   keys that must be absent
//! delete from index where key = any(keys)
//! insert into record ... on conflict do update  keys that may be present
//! commit
//! ```
//!
//! The writes are a transaction of their own, which sees the newest commits, as the batch of an
//! embedded engine is applied to the newest state. In the transaction of the reads, a delete would
//! ignore a row that was committed after the snapshot. Whether the reads are still valid was
//! decided before, by the conflict tracker.
//!
//! A small commit is one statement, which is a transaction of its own. A `rollback` precedes it if
//! the reads were a transaction:
//!
//! ```text
//! with w2 as (insert into record ...), w4 as (delete from index ...)
//!     insert into commits select token
//! ```
//!
//! Inside of a transaction it would not be committed, and therefore writes nothing there.
//! PostgreSQL reports how many tokens it has written: 0 in a transaction, otherwise 1
//! ([`crate::sql`]).
//!
//! Otherwise each statement is a message of its own: a failed one makes the later ones fail, and
//! COMMIT roll back. COMMIT reports no error then; therefore every reply is checked. If the
//! connection is lost before the last reply, the outcome is unknown: see [`settle`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use mayfly_kv::{Keyspace, KvError, KvResult};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use crate::connection::{Call, Connection, Pipeline};
use crate::engine::Store;
use crate::failure::Failure;
use crate::pool::{Admission, Lease};
use crate::session::MAX_TRIES;
use crate::settle;
use crate::sql::{Kinds, Sql};
use crate::txn::PostgresTxn;
use crate::wait::{Patience, block_on};

/// Bytes and keys of one statement.
const STATEMENT_BYTES: usize = 4 << 20;
const STATEMENT_KEYS: usize = 4_096;
/// Bytes that are sent before their replies are awaited.
const WINDOW_BYTES: usize = 16 << 20;

/// The parameters of one statement.
struct Batch<'b> {
    sql: Sql,
    keys: Vec<&'b [u8]>,
    values: Vec<&'b [u8]>,
    bytes: usize,
}

/// The result of sending a commit.
pub(crate) enum Sent {
    Applied,
    /// Nothing was applied.
    Refused(KvError),
    /// The connection was lost before COMMIT was sent: nothing was applied.
    Unsent(Failure),
    /// COMMIT was sent, and its reply did not come.
    Unknown(String),
}

/// What precedes the writes. Both end a transaction of the session, if there is one.
pub(crate) struct Start {
    /// Before a commit of one statement, which is executed outside of a transaction.
    one: Option<&'static str>,
    /// Before a commit of several statements.
    pub(crate) several: &'static str,
}

const IN_TRANSACTION: Start =
    Start { one: Some("rollback"), several: "rollback; begin isolation level read committed" };
const FREE: Start = Start { one: None, several: "begin isolation level read committed" };

/// The connection of a commit.
pub(crate) enum CommitLease {
    /// It is in the transaction of the reads.
    InTransaction(Lease),
    /// It is in no transaction.
    Free(Lease),
}

/// Commits a transaction that has written. The claims of the transaction keep others from writing
/// its keys, so that it can be sent again.
pub(crate) fn commit(txn: &PostgresTxn, lease: CommitLease) -> KvResult<()> {
    let (batches, together) = batches(&txn.buffer, &txn.late);
    commit_with(&txn.store, Some(lease), |lease, start, token, deadline| {
        send(lease, (&batches, together), start, token, deadline)
    })
}

/// Commits what a function sends with a token. If the connection is lost and the commit was not
/// applied, it is sent again on another one: the caller ensures that nothing else writes its keys.
pub(crate) fn commit_with(
    store: &Arc<Store>,
    mut lease: Option<CommitLease>,
    send: impl Fn(&Lease, &Start, i64, Instant) -> Sent,
) -> KvResult<()> {
    let (deadline, mut tries) = (store.deadline(), 0);
    settle::settle_earlier(store, deadline)?;
    store.openings.wait_before_commit();
    loop {
        tries += 1;
        let (lease, start) = match lease.take() {
            Some(CommitLease::InTransaction(lease)) => (lease, IN_TRANSACTION),
            Some(CommitLease::Free(lease)) => (lease, FREE),
            // The second try has waited already, and may hold up the log.
            None => (store.pool.lease(Admission::AtOnce, deadline)?, FREE),
        };
        let token = store.tokens.begin(store.pool.owner_number());
        let failure = match send(&lease, &start, token.number(), deadline) {
            Sent::Applied => {
                store.clean_tokens();
                return Ok(());
            }
            Sent::Refused(error) => return Err(error),
            Sent::Unsent(failure @ Failure::Lost(_)) => failure,
            Sent::Unsent(failure) => return Err(failure.into_kv()),
            Sent::Unknown(text) => {
                lease.connection().abandon();
                if settle::settle(store, lease.connection().session, token, &text)? {
                    return Ok(());
                }
                Failure::Lost(text)
            }
        };
        lease.connection().abandon();
        drop(lease);
        store.pool.drop_idle();
        if tries >= MAX_TRIES {
            return Err(failure.into_kv());
        }
    }
}

/// Sends a commit as one statement, which is committed only outside of a transaction.
fn send_together(
    lease: &Lease,
    (kinds, start): (Kinds, &Start),
    batches: &[Batch<'_>],
    token: i64,
    deadline: Instant,
) -> Sent {
    let connection = lease.connection();
    let statement = match connection.statement(Sql::Together(kinds), deadline) {
        Ok(statement) => statement,
        Err(failure) => return Sent::Unsent(failure),
    };
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&token];
    params.extend(batches.iter().flat_map(Batch::params_together));
    let mut tokens = 0;
    let rollback = start.one.map(|rollback| connection.plain_call(rollback));
    let write = connection.counting_call(statement, &params, &mut tokens);
    let calls: Vec<Call<'_>> = rollback.into_iter().chain([write]).collect();
    let replies = block_on(Pipeline::new(calls), deadline, Patience::UntilDeadline);
    let written = match replies {
        Ok(replies) => replies.into_iter().next_back().unwrap_or(Ok(())),
        Err(abandoned) => return Sent::Unknown(Failure::from(abandoned).into_kv().to_string()),
    };
    let written = written.map(|()| tokens).map_err(|error| Failure::of(&error));
    let sent = outcome(written);
    if !matches!(sent, Sent::Unsent(_)) {
        lease.end_transaction();
    }
    sent
}

/// What became of a commit of one statement, by the number of tokens that it has written. It has
/// written none in a transaction, which PostgreSQL did not end because an operator has cancelled
/// the ROLLBACK.
fn outcome(tokens: Result<u64, Failure>) -> Sent {
    match tokens {
        Ok(0) => Sent::Unsent(Failure::Lost("the session is in a transaction".into())),
        Ok(_) => Sent::Applied,
        Err(Failure::Refused(error)) => Sent::Refused(error),
        Err(failure) => Sent::Unknown(failure.into_kv().to_string()),
    }
}

fn send(
    lease: &Lease,
    (batches, together): (&[Batch<'_>], Option<Kinds>),
    start: &Start,
    token: i64,
    deadline: Instant,
) -> Sent {
    if let Some(kinds) = together {
        return send_together(lease, (kinds, start), batches, token, deadline);
    }
    let connection = lease.connection();
    let statements: Result<Vec<Statement>, Failure> = std::iter::once(Sql::AddToken)
        .chain(batches.iter().map(|batch| batch.sql))
        .map(|sql| connection.statement(sql, deadline))
        .collect();
    let statements = match statements {
        Ok(statements) => statements,
        Err(failure) => return Sent::Unsent(failure),
    };
    lease.begin_transaction();
    let (mut first, mut is_begun) = (0, false);
    loop {
        let mut bytes = 0;
        let window = batches[first..].iter().take_while(|batch| {
            let fits = bytes == 0 || bytes + batch.bytes <= WINDOW_BYTES;
            bytes += batch.bytes;
            fits
        });
        let after = first + window.count();
        let is_last = after == batches.len();
        let params: [&(dyn ToSql + Sync); 1] = [&token];
        let writes: Vec<Vec<_>> = batches[first..after].iter().map(Batch::params).collect();
        let mut calls: Vec<Call<'_>> = Vec::with_capacity(after - first + 3);
        if !is_begun {
            calls.push(connection.plain_call(start.several));
            calls.push(connection.call(statements[0].clone(), &params));
        }
        for (statement, params) in statements[first + 1..=after].iter().zip(&writes) {
            calls.push(connection.call(statement.clone(), params));
        }
        if is_last {
            calls.push(connection.plain_call("commit"));
        }
        let last = if is_last { LastCall::Commit } else { LastCall::Write };
        match replies(connection, calls, last, deadline) {
            Sent::Applied if !is_last => (first, is_begun) = (after, true),
            sent => {
                if is_last {
                    // A refused transaction was rolled back by COMMIT.
                    lease.end_transaction();
                }
                return sent;
            }
        }
    }
}

/// The last call of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastCall {
    Write,
    Commit,
}

/// Awaits the replies.
pub(crate) fn replies(
    connection: &Connection,
    calls: Vec<Call<'_>>,
    last: LastCall,
    deadline: Instant,
) -> Sent {
    let lost = |failure: Failure| match last {
        LastCall::Commit => Sent::Unknown(failure.into_kv().to_string()),
        LastCall::Write => Sent::Unsent(failure),
    };
    let of_commit = if last == LastCall::Commit { calls.len() - 1 } else { usize::MAX };
    let replies = match block_on(Pipeline::new(calls), deadline, Patience::UntilDeadline) {
        Ok(replies) => replies,
        Err(abandoned) => {
            connection.abandon();
            return lost(abandoned.into());
        }
    };
    for (at, reply) in replies.into_iter().enumerate() {
        let Err(error) = reply else { continue };
        return match Failure::of(&error) {
            // It aborts the transaction, whatever becomes of the connection afterwards.
            Failure::Refused(error) if at != of_commit => Sent::Refused(error),
            Failure::Refused(error) => Sent::Unknown(error.to_string()),
            failure => lost(failure),
        };
    }
    Sent::Applied
}

impl<'b> Batch<'b> {
    fn new(sql: Sql) -> Batch<'b> {
        Batch { sql, keys: Vec::new(), values: Vec::new(), bytes: 0 }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        match self.sql.has_values() {
            true => vec![&self.keys, &self.values],
            false => vec![&self.keys],
        }
    }

    /// The parameters in a commit of one statement, which has no arrays for a single key.
    fn params_together(&self) -> Vec<&(dyn ToSql + Sync)> {
        match (&self.keys[..], &self.values[..]) {
            ([key], [value]) => vec![key, value],
            ([key], []) => vec![key],
            _ => self.params(),
        }
    }
}

/// The last write to each key, as statements, and their kinds if one statement can execute them
/// all. Keys are in order, so that the transactions of two servers lock them in the same order.
fn batches<'b>(
    buffer: &'b WriteBuffer,
    late: &'b [(Keyspace, Vec<u8>)],
) -> (Vec<Batch<'b>>, Option<Kinds>) {
    let mut ops: Vec<_> = buffer.ops().collect();
    // Stable: the writes to a key stay in their order.
    ops.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let late: BTreeSet<(Keyspace, &[u8])> =
        late.iter().map(|(keyspace, key)| (*keyspace, &key[..])).collect();
    let (mut inserts, mut others) = (Vec::new(), Vec::new());
    for (at, (keyspace, key, write)) in ops.iter().enumerate() {
        let is_last = ops.get(at + 1).is_none_or(|next| (next.0, next.1) != (*keyspace, *key));
        if !is_last {
            continue;
        }
        let is_late = late.contains(&(*keyspace, *key));
        match write {
            OwnWrite::Put(value) if is_late => inserts.push((Sql::Insert(*keyspace), *key, *value)),
            OwnWrite::Put(value) => others.push((Sql::Put(*keyspace), *key, *value)),
            OwnWrite::Deleted => {
                if is_late {
                    // The key must have been absent, although it is deleted again.
                    inserts.push((Sql::Insert(*keyspace), *key, &[]));
                }
                others.push((Sql::Delete(*keyspace), *key, &[]));
            }
            OwnWrite::Retired => others.push((Sql::Retire, *key, &[])),
        }
    }
    let mut batches = Vec::new();
    add_batches(&mut batches, inserts);
    add_batches(&mut batches, others);
    let bytes: usize = batches.iter().map(|batch| batch.bytes).sum();
    let together = match bytes <= STATEMENT_BYTES {
        true => Kinds::of(batches.iter().map(|batch| (batch.sql, batch.keys.len()))),
        false => None,
    };
    if together.is_some() {
        batches.sort_by_key(|batch| Kinds::place(batch.sql));
    }
    (batches, together)
}

/// Adds the writes, those of one kind together.
fn add_batches<'b>(batches: &mut Vec<Batch<'b>>, writes: Vec<(Sql, &'b [u8], &'b [u8])>) {
    let begin = batches.len();
    for (sql, key, value) in writes {
        let bytes = key.len() + value.len();
        let has_room = |batch: &Batch<'_>| {
            batch.sql == sql
                && batch.keys.len() < STATEMENT_KEYS
                && batch.bytes + bytes <= STATEMENT_BYTES
        };
        let at = match batches[begin..].iter().rposition(has_room) {
            Some(at) => begin + at,
            None => {
                batches.push(Batch::new(sql));
                batches.len() - 1
            }
        };
        let batch = &mut batches[at];
        batch.keys.push(key);
        if sql.has_values() {
            batch.values.push(value);
        }
        batch.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_was_not_acknowledged_may_have_been_applied() {
        let refused = Err(Failure::Refused(KvError::Conflict));
        assert!(matches!(outcome(Ok(1)), Sent::Applied));
        assert!(matches!(outcome(Ok(0)), Sent::Unsent(Failure::Lost(_))));
        assert!(matches!(outcome(refused), Sent::Refused(KvError::Conflict)));
        assert!(matches!(outcome(Err(Failure::Lost("closed".into()))), Sent::Unknown(_)));
    }
}

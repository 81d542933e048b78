//! Repeatable writes: a record of each executed statement, written in the statement's own
//! transaction.
//!
//! ```text
//! session  | session id, 16 bytes | statement id, 4 bytes big-endian |
//!          | transaction number, 8 bytes | wall time ms, 8 bytes | statements, 4 bytes | result, BSON |      little-endian
//! ```
//!
//! A row may cover several statements with consecutive ids and one result (documents of one
//! insert). A later transaction number of the session invalidates rows of earlier ones; rows older
//! than a session's lifetime are swept.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, Guard, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::{DocBuf, RawDoc};

use super::WriteUnit;
use crate::catalog::Core;
use crate::isolation::SessionKey;
use crate::record::error::from_kv;

const HEADER: usize = 20;

/// A statement that a client may send again.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The session that sent it.
    pub session: SessionKey,
    /// The field `txnNumber`.
    pub txn_number: i64,
    /// The field `stmtId`, not negative.
    pub id: i32,
}

/// Executed statements that share a row.
#[derive(Clone, Debug)]
pub struct ExecutedStatements {
    /// The id of the first statement.
    pub id: i32,
    /// The number of statements, with consecutive ids.
    pub count: i32,
    /// The reply of each of them.
    pub result: DocBuf,
}

impl WriteUnit<'_> {
    /// Records that this unit has executed `count` statements, of which `statement` is the first,
    /// with this result.
    ///
    /// # Errors
    /// Errors of the engine, and of the view's function of
    /// [`ReadView::set_before_record`](crate::ReadView::set_before_record).
    pub fn record_statement(
        &mut self,
        statement: Statement,
        count: i32,
        result: RawDoc<'_>,
    ) -> Result<()> {
        self.context.view.before_record(statement.id)?;
        let (key, value) = statement_row(statement, count, self.now_ms(), result);
        self.txn.put(Keyspace::Session, &key, &value, Guard::Checked).map_err(from_kv)
    }
}

impl Core {
    /// The greatest transaction number of a session, and its executed statements.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn executed_statements(
        &self,
        session: &SessionKey,
    ) -> Result<Option<(i64, Vec<ExecutedStatements>)>> {
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut rows = Vec::new();
        let mut damaged = false;
        let mut range = KeyRange::prefix(session);
        let mut see = |key: &[u8], value: &[u8]| {
            match parse(key, value) {
                Some(row) => rows.push((row.txn_number, row.executed())),
                None => damaged = true,
            }
            ControlFlow::Continue(())
        };
        let (forward, all) = (Direction::Forward, ScanLimit::ALL);
        // An engine may end a page early.
        while let ScanEnd::More { last_key } =
            txn.scan(Keyspace::Session, &range, forward, all, &mut see).map_err(from_kv)?
        {
            range = range.after(&last_key, forward);
        }
        if damaged {
            let text = "a stored statement of a session is damaged";
            return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
        }
        let latest = rows.iter().map(|(txn_number, _)| *txn_number).max();
        Ok(latest.map(|latest| {
            let executed = rows.into_iter().filter(|(number, _)| *number == latest);
            (latest, executed.map(|(_, executed)| executed).collect())
        }))
    }
}

/// The key and value of the row.
pub(crate) fn statement_row(
    statement: Statement,
    count: i32,
    now_ms: i64,
    result: RawDoc<'_>,
) -> ([u8; 20], Vec<u8>) {
    let mut value = Vec::with_capacity(HEADER + result.as_bytes().len());
    value.extend_from_slice(&statement.txn_number.to_le_bytes());
    value.extend_from_slice(&now_ms.to_le_bytes());
    value.extend_from_slice(&count.to_le_bytes());
    value.extend_from_slice(result.as_bytes());
    (row_key(&statement.session, statement.id), value)
}

fn row_key(session: &SessionKey, id: i32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(session);
    key[16..].copy_from_slice(&id.to_be_bytes());
    key
}

struct Row<'a> {
    id: i32,
    txn_number: i64,
    wall_ms: i64,
    count: i32,
    result: RawDoc<'a>,
}

impl Row<'_> {
    fn executed(&self) -> ExecutedStatements {
        ExecutedStatements { id: self.id, count: self.count, result: self.result.to_owned() }
    }
}

fn parse<'a>(key: &[u8], value: &'a [u8]) -> Option<Row<'a>> {
    let (header, result) = value.split_at_checked(HEADER)?;
    Some(Row {
        id: i32::from_be_bytes(key.get(16..20)?.try_into().ok()?),
        txn_number: i64::from_le_bytes(header[..8].try_into().ok()?),
        wall_ms: i64::from_le_bytes(header[8..16].try_into().ok()?),
        count: i32::from_le_bytes(header[16..20].try_into().ok()?),
        result: RawDoc::new(result)?,
    })
}

/// When a row was written, in milliseconds since 1970; `None` for a damaged row.
pub(crate) fn recorded_at(key: &[u8], value: &[u8]) -> Option<i64> {
    parse(key, value).map(|row| row.wall_ms)
}

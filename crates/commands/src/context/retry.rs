//! Retryable writes: which statements were already executed, and with which results.
//!
//! 1. Dispatch checks the session out for the command ([`mayfly_service::Sessions::check_out`]).
//! 2. The handler calls [`CommandContext::attempt`] before each statement, and passes the
//!    statement's identity to the write unit, which records it in the same transaction.
//! 3. After the commit it calls [`CommandContext::committed`]. A crash in between loses nothing:
//!    the record is then read from the store.

use std::cell::RefCell;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::CheckedOut;
use mayfly_storage::{ExecutedStatements, Statement, WriteUnit};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;
use crate::request::Fields;
use mayfly_value::arguments::error::wrong_type;

/// The session of a retryable command while the command runs.
pub struct Retry {
    session: RefCell<CheckedOut>,
    /// Ids of statements that an earlier attempt executed.
    retried: RefCell<Vec<i32>>,
    ids: StatementIds,
}

/// The ids of a command's statements.
enum StatementIds {
    /// Consecutive ids from this one on.
    From(i32),
    /// One id per statement.
    Listed(Vec<i32>),
}

impl Retry {
    /// Reads `stmtId` and `stmtIds`.
    ///
    /// # Errors
    /// 14 TypeMismatch, 72 InvalidOptions for negative ids or both forms at once.
    pub(crate) fn parse(
        session: CheckedOut,
        body: RawDoc<'_>,
        command: &'static str,
    ) -> Result<Retry> {
        let fields = Fields::new(body, command);
        let first = fields.long("stmtId")?;
        let ids = match (first, fields.get("stmtIds")) {
            (Some(_), Some(_)) => {
                let text = "May not specify both stmtId and stmtIds in write command";
                return Err(Error::new(ErrorCode::InvalidOptions, text));
            }
            (first, None) => StatementIds::From(statement_id(first.unwrap_or(0))?),
            (None, Some(RawValue::Array(list))) => {
                let mut ids = Vec::new();
                for element in list {
                    match element.value() {
                        RawValue::Int32(id) => ids.push(statement_id(i64::from(id))?),
                        RawValue::Null | RawValue::Undefined => {}
                        other => return Err(wrong_type("stmtIds", other, "int")),
                    }
                }
                StatementIds::Listed(ids)
            }
            (None, Some(other)) => return Err(wrong_type("stmtIds", other, "array")),
        };
        Ok(Retry { session: RefCell::new(session), retried: RefCell::default(), ids })
    }

    /// Records that the command failed, perhaps after a commit.
    #[cold]
    pub(crate) fn doubt(&self) {
        self.session.borrow_mut().doubt();
    }

    /// The number of statements that an earlier attempt executed.
    pub(crate) fn count_retried(&self) -> u64 {
        self.retried.borrow().len() as u64
    }

    fn id(&self, at: usize) -> Result<i32> {
        let listed = match &self.ids {
            StatementIds::From(first) => {
                i32::try_from(at).ok().and_then(|at| first.checked_add(at))
            }
            StatementIds::Listed(ids) => ids.get(at).copied(),
        };
        listed.ok_or_else(|| {
            let text = "the number of stmtIds must match the number of statements";
            Error::new(ErrorCode::InvalidLength, text)
        })
    }

    /// Whether consecutive statements have consecutive ids.
    fn is_consecutive(&self) -> bool {
        matches!(self.ids, StatementIds::From(_))
    }

    /// The records of consecutive inserts: identity, and number of statements.
    fn groups(&self, first: usize, count: usize) -> Result<Vec<(Statement, i32)>> {
        if self.is_consecutive() {
            return Ok(vec![(self.statement(first)?, i32::try_from(count).unwrap_or(i32::MAX))]);
        }
        (first..first + count).map(|at| Ok((self.statement(at)?, 1))).collect()
    }

    /// Records inserts in their write unit.
    ///
    /// # Errors
    /// 16 InvalidLength without ids; errors of the engine.
    pub(crate) fn record_inserts(
        &self,
        unit: &mut WriteUnit<'_>,
        first: usize,
        count: usize,
    ) -> Result<()> {
        let result = inserted();
        for (statement, count) in self.groups(first, count)? {
            unit.record_statement(statement, count, result.as_doc())?;
        }
        Ok(())
    }

    /// Remembers committed inserts.
    ///
    /// # Errors
    /// 16 InvalidLength without ids.
    pub(crate) fn note_inserts(&self, first: usize, count: usize) -> Result<()> {
        for (statement, count) in self.groups(first, count)? {
            self.note(statement, count, inserted());
        }
        Ok(())
    }

    /// The result of the statement at this index, if an earlier attempt executed it.
    fn executed(&self, at: usize) -> Result<Option<DocBuf>> {
        let id = self.id(at)?;
        let found = self.session.borrow().executed(id).cloned();
        if found.is_some() {
            self.retried.borrow_mut().push(id);
        }
        Ok(found)
    }

    /// The identity of the statement at this index.
    fn statement(&self, at: usize) -> Result<Statement> {
        Ok(self.session.borrow().statement(self.id(at)?))
    }

    fn note(&self, statement: Statement, count: i32, result: DocBuf) {
        self.session.borrow_mut().note(ExecutedStatements { id: statement.id, count, result });
    }
}

fn inserted() -> DocBuf {
    let mut result = DocBuilder::new();
    result.append("n", 1);
    result.finish()
}

/// Whether a statement is to be executed.
pub(crate) enum Attempt {
    /// An earlier attempt executed it with this result.
    Again(DocBuf),
    /// It is to be executed, and recorded under this identity if there is one.
    First(Option<Statement>),
}

impl CommandContext<'_> {
    /// Called before the statement at this index.
    ///
    /// # Errors
    /// 16 InvalidLength when it has no id.
    pub(crate) fn attempt(&self, at: usize) -> Result<Attempt> {
        let Some(retry) = &self.retry else { return Ok(Attempt::First(None)) };
        match retry.executed(at)? {
            Some(record) => Ok(Attempt::Again(record)),
            None => retry.statement(at).map(|statement| Attempt::First(Some(statement))),
        }
    }

    /// The identity of the statement at this index; `None` if an earlier attempt executed it.
    ///
    /// # Errors
    /// 16 InvalidLength when it has no id.
    pub(crate) fn first_attempt(&self, at: usize) -> Result<Option<Option<Statement>>> {
        let Some(retry) = &self.retry else { return Ok(Some(None)) };
        let statement = retry.statement(at)?;
        let executed = retry.session.borrow().executed(statement.id).is_some();
        Ok((!executed).then_some(Some(statement)))
    }

    /// Remembers a committed statement with its record.
    pub(crate) fn committed(&self, statement: Option<Statement>, record: impl FnOnce() -> DocBuf) {
        if let (Some(retry), Some(statement)) = (&self.retry, statement) {
            retry.note(statement, 1, record());
        }
    }

    /// Refuses an option of a write that is retryable otherwise.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    pub(crate) fn check_repeatable(&self, refused: Option<&str>) -> Result<()> {
        match (refused, &self.retry) {
            (Some(option), Some(_)) => {
                let text = format!("Cannot use retryable writes with {option}");
                Err(Error::new(ErrorCode::InvalidOptions, text))
            }
            (None, _) | (_, None) => Ok(()),
        }
    }

    /// Appends `retriedStmtId` if an earlier attempt executed the command's only statement.
    pub(crate) fn append_retried_one(&self, reply: &mut DocBuilder) {
        let first = self.retry.as_ref().and_then(|retry| retry.retried.borrow().first().copied());
        if let Some(id) = first {
            reply.append("retriedStmtId", id);
        }
    }

    /// Appends `retriedStmtIds` if there are any.
    pub(crate) fn append_retried(&self, reply: &mut DocBuilder) {
        let Some(retry) = &self.retry else { return };
        let retried = retry.retried.borrow();
        if !retried.is_empty() {
            reply.start_array("retriedStmtIds");
            for id in retried.iter() {
                reply.push(*id);
            }
            reply.end();
        }
    }
}

fn statement_id(id: i64) -> Result<i32> {
    i32::try_from(id)
        .ok()
        .filter(|id| *id >= 0)
        .ok_or_else(|| Error::new(ErrorCode::InvalidOptions, format!("invalid statement id: {id}")))
}

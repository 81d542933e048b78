//! Writes that a client may send again: which of their statements were executed already, and what they were answered.
//!
//! 1. The dispatcher checks the session out for the command ([`mayfly_service::Sessions::check_out`]).
//! 2. The handler asks [`Retry::executed`] before each statement, and passes [`Retry::statement`] to the write unit, which
//!    records it in the statement's own transaction.
//! 3. After the commit it says [`Retry::note`]. A crash in between loses nothing: the store is asked the next time.

use std::cell::RefCell;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::CheckedOut;
use mayfly_storage::{Executed, Statement};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::Fields;
use crate::fields::wrong_type;

/// The session of a repeatable command, while the command runs.
#[allow(dead_code, reason = "the write commands ask it from the next change on")]
pub struct Retry {
    session: RefCell<CheckedOut>,
    /// Statements that an earlier attempt had executed.
    retried: RefCell<Vec<i32>>,
    ids: StatementIds,
}

/// How the statements of a command are numbered.
enum StatementIds {
    /// From this one on.
    From(i32),
    /// One by one.
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
                    let Some(id) = crate::fields::whole_number(element.value()) else {
                        return Err(wrong_type("stmtIds", element.value(), "int"));
                    };
                    ids.push(statement_id(id)?);
                }
                StatementIds::Listed(ids)
            }
            (None, Some(other)) => return Err(wrong_type("stmtIds", other, "array")),
        };
        Ok(Retry { session: RefCell::new(session), retried: RefCell::default(), ids })
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

    /// Whether the ids of consecutive statements are consecutive, too.
    pub(crate) fn is_consecutive(&self) -> bool {
        matches!(self.ids, StatementIds::From(_))
    }

    /// What the statement at this place was answered by an earlier attempt.
    ///
    /// # Errors
    /// 16 InvalidLength when it has no id.
    pub(crate) fn executed(&self, at: usize) -> Result<Option<DocBuf>> {
        let id = self.id(at)?;
        let found = self.session.borrow().executed(id).cloned();
        if found.is_some() {
            self.retried.borrow_mut().push(id);
        }
        Ok(found)
    }

    /// The name under which the statement at this place is recorded.
    ///
    /// # Errors
    /// 16 InvalidLength when it has no id.
    pub(crate) fn statement(&self, at: usize) -> Result<Statement> {
        Ok(self.session.borrow().statement(self.id(at)?))
    }

    /// The statement and `count - 1` after it are committed with this result.
    pub(crate) fn note(&self, statement: Statement, count: i32, result: DocBuf) {
        self.session.borrow_mut().note(Executed { id: statement.id, count, result });
    }

    /// Adds `retriedStmtIds` when there are any.
    pub(crate) fn append_retried(&self, reply: &mut DocBuilder) {
        let retried = self.retried.borrow();
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

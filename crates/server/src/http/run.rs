//! Runs a command for a reader of the page, as a client's connection would.

use std::sync::Arc;

use mayfly_commands::{Dispatched, Incoming, Next, Outcome, dispatch};
use mayfly_service::{Connection, Service};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::peer::Peer;
use super::site::Site;
use crate::durability;

/// The code of an error for a missing right.
const UNAUTHORIZED: i32 = 13;

/// The error of a command.
#[derive(Clone, Debug)]
pub(super) struct CommandError {
    pub(super) code: i32,
    pub(super) text: String,
}

impl CommandError {
    /// Whether the user has no right to the command.
    pub(super) fn is_missing_right(&self) -> bool {
        self.code == UNAUTHORIZED
    }
}

/// A reply, and what the connection's loop does before it sends it.
struct Answer {
    reply: DocBuf,
    outcome: Outcome,
}

/// The first fields of a command on a database.
pub(super) fn command<'v>(
    db: &str,
    name: &str,
    value: impl Into<RawValue<'v>>,
    fill: impl FnOnce(&mut DocBuilder),
) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append(name, value);
    fill(&mut doc);
    doc.append("$db", db);
    doc.finish()
}

fn answer(service: &Arc<Service>, connection: &Arc<Connection>, command: &DocBuf) -> Answer {
    let incoming = Incoming::new(command.as_doc());
    let Dispatched { doc, next, .. } = dispatch(service, connection, &incoming, DocBuilder::new());
    let outcome = match next {
        Next::Reply(outcome) => outcome,
        // The page sends no command that waits for data.
        Next::Wait(..) | Next::HangUp => Outcome { failed: true, ..Outcome::default() },
    };
    Answer { reply: doc.finish(), outcome }
}

impl Answer {
    fn checked(self) -> Result<DocBuf, CommandError> {
        if !self.outcome.failed {
            return Ok(self.reply);
        }
        let doc = self.reply.as_doc();
        let code = match doc.get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        };
        let text = doc.get("errmsg").and_then(RawValue::as_str).unwrap_or("no answer");
        Err(CommandError { code, text: text.to_owned() })
    }
}

/// Reads data for the page; for blocking threads.
pub(super) struct Reader {
    pub(super) service: Arc<Service>,
    pub(super) connection: Arc<Connection>,
}

impl Reader {
    /// Runs a command that reads.
    ///
    /// # Errors
    /// The error that the command replied.
    pub(super) fn run(&self, command: &DocBuf) -> Result<DocBuf, CommandError> {
        answer(&self.service, &self.connection, command).checked()
    }
}

impl Site {
    /// Runs a command on a blocking thread, and waits until its reply may be sent.
    ///
    /// # Errors
    /// The error that the command replied.
    pub(super) async fn run(&self, peer: &Peer, command: DocBuf) -> Result<DocBuf, CommandError> {
        let (service, connection) = (self.service.clone(), peer.connection.clone());
        let ran = tokio::task::spawn_blocking(move || answer(&service, &connection, &command));
        let Ok(answer) = ran.await else {
            return Err(CommandError { code: 1, text: "the command was interrupted".to_owned() });
        };
        let pause = answer.outcome.pause;
        if !pause.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.service.shutdown.begun() => {}
            }
        }
        if let Err(error) = durability::wait(&self.service, &answer.outcome, None).await {
            return Err(CommandError { code: 1, text: error.message().to_owned() });
        }
        answer.checked()
    }
}

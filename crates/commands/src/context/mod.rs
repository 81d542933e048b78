//! What a handler is given beside its request: the server, its operation and connection, its session. A handler reads it, and
//! records in its [`Effects`] what the dispatcher has to do after it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use mayfly_service::metrics::Counter;
use mayfly_service::{Authority, CheckedOut, Connection, CursorOwner, Service, SessionId};
use mayfly_work::OpCtx;

use mayfly_storage::StoreSession;

use crate::request::OpKind;

pub(crate) mod command;
mod effects;
pub(crate) mod retry;

pub use command::{Command, Entry, Explained, Handler, Run, Table};
pub use effects::{DataWait, Effects, Wait};
pub use retry::Retry;

/// Context of one running command.
pub struct CommandContext<'a> {
    /// The server.
    pub service: &'a Arc<Service>,
    /// The table of commands, for handlers that run, list or explain others.
    pub commands: &'static Table,
    /// The operation: deadline, kill flag, counters.
    pub op: &'a Arc<OpCtx>,
    /// The store with this operation, and what the command sees of it.
    pub store: StoreSession<'a>,
    /// The connection that it came in on.
    pub connection: &'a Arc<Connection>,
    /// The rights of its client.
    pub authority: Authority,
    /// Whether the command shows only what is durable by the time of the reply, and its cursor does so later.
    pub only_durable: bool,
    /// Streaming replies and waiting; only the handshake uses it.
    pub exhaust: Exhaust,
    /// The session of a write that the client may send again.
    pub retry: Option<&'a Retry>,
    /// The session of a statement of a transaction.
    pub transaction: Option<&'a RefCell<CheckedOut>>,
    /// The logical session.
    pub session: Option<SessionId>,
    /// How long the command has waited for data so far.
    pub waited: Duration,
    /// What the command does beside its reply.
    pub effects: &'a Effects,
}

/// How many documents a command changed, for `serverStatus.metrics.document`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DocumentChanges {
    pub(crate) inserted: i64,
    pub(crate) updated: i64,
    pub(crate) deleted: i64,
}

/// How the handshake waits and streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exhaust {
    /// The client can take further replies to this request.
    pub allowed: bool,
    /// It is a repetition without a new request; the counter that the last reply carried.
    pub last_counter: Option<i64>,
    /// The wait that the handler asked for is over.
    pub waited: bool,
}

impl CommandContext<'_> {
    /// Whose cursors it opens and asks for.
    pub fn cursor_owner(&self) -> CursorOwner {
        CursorOwner {
            user: match &self.authority {
                Authority::User(user) => Some(user.name.clone()),
                Authority::Unrestricted | Authority::FirstUser | Authority::Nobody => None,
            },
            session: self.session,
            transaction: self.transaction.as_ref().map(|held| {
                let held = held.borrow();
                (held.txn_number(), held.alive())
            }),
        }
    }

    /// Counts written documents in `opcounters`; the dispatcher counts all other commands.
    pub fn count(&self, kind: OpKind, documents: u64) {
        counter(self.service, kind).add(documents);
    }

    /// Counts documents that the command changed.
    pub(crate) fn count_modified(&self, changes: &DocumentChanges) {
        let documents = &self.service.metrics.documents;
        let count =
            |counter: &Counter, changed: i64| counter.add(u64::try_from(changed).unwrap_or(0));
        count(&documents.inserted, changes.inserted);
        count(&documents.updated, changes.updated);
        count(&documents.deleted, changes.deleted);
    }
}

/// The counter of a kind of operation.
pub(crate) fn counter(service: &Service, kind: OpKind) -> &Counter {
    let counters = &service.metrics.opcounters;
    match kind {
        OpKind::Insert => &counters.insert,
        OpKind::Query => &counters.query,
        OpKind::Update => &counters.update,
        OpKind::Delete => &counters.delete,
        OpKind::GetMore => &counters.getmore,
        OpKind::Command => &counters.command,
    }
}

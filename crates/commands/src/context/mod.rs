//! The context of a handler: the server, the operation, the connection, the session. A handler
//! reads it, and records in [`Effects`] what dispatch has to do afterwards.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::{Namespace, Result};
use mayfly_expr::OperationTime;
use mayfly_service::metrics::Counter;
use mayfly_service::{Authority, CheckedOut, Connection, CursorOwner, Service, SessionId};
use mayfly_value::arguments::Argument;
use mayfly_work::OpCtx;

use mayfly_storage::StoreSession;

use crate::request::{Fields, OpKind, Unmet, WriteConcern};

pub(crate) mod command;
mod effects;
pub(crate) mod retry;

pub use command::{Command, Entry, Handler, Run, Table};
pub(crate) use effects::StatementFigures;
pub use effects::{DataWait, Effects, Wait};
pub use retry::Retry;

/// Context of one running command.
pub struct CommandContext<'a> {
    /// State that outlives the command: connections, sessions, cursors, parameters.
    pub service: &'a Arc<Service>,
    /// The table of commands, for handlers that run, list or explain other commands.
    pub commands: &'static Table,
    /// The operation, with deadline, kill flag and counters.
    pub op: &'a Arc<OpCtx>,
    /// The store with this operation and its view of the data.
    pub store: StoreSession<'a>,
    /// The connection of the request.
    pub connection: &'a Arc<Connection>,
    /// The client's rights.
    pub authority: Authority,
    /// Whether the reply must only contain durable data; this also applies to the batches of its
    /// cursor.
    pub only_durable: bool,
    /// Streaming and waiting; only the handshake uses it.
    pub exhaust: Exhaust,
    /// The session of a retryable write.
    pub retry: Option<&'a Retry>,
    /// The session of a statement in a transaction.
    pub transaction: Option<&'a RefCell<CheckedOut>>,
    /// The logical session.
    pub session: Option<SessionId>,
    /// The write concern.
    pub write_concern: WriteConcern,
    /// How long the command has waited for data so far.
    pub waited: Duration,
    /// The effects besides the reply.
    pub effects: &'a Effects,
}

/// The numbers of changed documents, for `serverStatus.metrics.document`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DocumentChanges {
    pub(crate) inserted: i64,
    pub(crate) updated: i64,
    pub(crate) deleted: i64,
}

/// The state of waiting and streaming of the handshake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exhaust {
    /// Whether the client accepts further replies to this request.
    pub allowed: bool,
    /// The counter in the previous reply of a stream; `None` for a new request.
    pub last_counter: Option<i64>,
    /// Whether the wait that the handler asked for is over.
    pub waited: bool,
}

/// The expected UUID of the collection that a command names.
pub(crate) const COLLECTION_UUID: Argument = Argument::uuid("collectionUUID").unstable();

impl CommandContext<'_> {
    /// Checks that the collection has the UUID that the command expects, if it names one.
    ///
    /// # Errors
    /// 361 CollectionUUIDMismatch.
    pub(crate) fn check_uuid(&self, ns: &Namespace, fields: &Fields<'_>) -> Result<()> {
        match fields.uuid(COLLECTION_UUID.name) {
            Some(uuid) => self.service.store.check_uuid(ns, uuid),
            None => Ok(()),
        }
    }

    /// The time of an operation that begins now, for `$$NOW` and `$$CLUSTER_TIME`. The cluster time
    /// is not earlier than the last write, not later than the next one, and goes on without writes.
    pub fn time(&self) -> OperationTime {
        let now_ms = self.op.now_ms();
        OperationTime { now_ms, cluster: Some(self.service.store.cluster_time(now_ms)) }
    }

    /// The owner of the command's cursors.
    pub fn cursor_owner(&self) -> CursorOwner {
        CursorOwner {
            user: match &self.authority {
                Authority::User(user) => Some(user.name.clone()),
                Authority::Unrestricted | Authority::FirstUser | Authority::NotAuthenticated => {
                    None
                }
            },
            session: self.session,
            transaction: self.transaction.as_ref().map(|held| {
                let held = held.borrow();
                (held.txn_number(), held.alive())
            }),
        }
    }

    /// Counts written documents in `opcounters` and by write concern; dispatch counts all other
    /// commands.
    pub fn count(&self, kind: OpKind, documents: u64) {
        counter(self.service, kind).add(documents);
        let [inserts, updates, deletes] = &self.service.metrics.write_concerns;
        let counts = match kind {
            OpKind::Insert => inserts,
            OpKind::Update => updates,
            OpKind::Delete => deletes,
            OpKind::Query | OpKind::GetMore | OpKind::Command => return,
        };
        let concern = &self.write_concern;
        let counter = match (concern.w, concern.unmet) {
            _ if !concern.given => &counts.none,
            (_, Some(Unmet::Mode | Unmet::Tags)) => &counts.tag,
            (None, _) => &counts.majority,
            (Some(w), _) => match usize::try_from(w).ok().and_then(|w| counts.number.get(w)) {
                Some(counter) => counter,
                None => &counts.tag,
            },
        };
        counter.add(documents);
    }

    /// Counts changed documents.
    pub(crate) fn count_modified(&self, changes: &DocumentChanges) {
        let documents = &self.service.metrics.documents;
        let count =
            |counter: &Counter, changed: i64| counter.add(u64::try_from(changed).unwrap_or(0));
        count(&documents.inserted, changes.inserted);
        count(&documents.updated, changes.updated);
        count(&documents.deleted, changes.deleted);
        let changed = u64::try_from(changes.updated + changes.deleted).unwrap_or(0);
        self.op.docs_returned.fetch_add(changed, Ordering::Relaxed);
    }
}

/// The counter in `opcounters` for a kind of operation.
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

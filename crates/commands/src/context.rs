//! What a handler is given beside its request, and what it tells the dispatcher beside its reply.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use mayfly_query::Awaited;
use mayfly_service::metrics::Counter;
use mayfly_service::{Authority, CheckedOut, Connection, CursorOwner, Service, SessionId};
use mayfly_work::OpCtx;

use crate::OpKind;
use crate::faults::Faults;
use crate::retry::Retry;

/// Around one running command.
pub struct CommandContext<'a> {
    /// The server.
    pub service: &'a Arc<Service>,
    /// The operation: deadline, kill flag, counters.
    pub op: &'a Arc<OpCtx>,
    /// The connection that it came in on.
    pub connection: &'a Arc<Connection>,
    /// By what right it runs.
    pub authority: Authority,
    /// Set it after a write that must be durable before the reply goes out.
    pub wait_for_sync: bool,
    /// Set it after a read: everything up to this timestamp of the log must be durable before the reply goes out.
    pub shown_up_to: u64,
    /// Whether the command shows only what is durable by the time of the reply, and its cursor does so later.
    pub only_durable: bool,
    /// The time that everything is read as of, with read concern `snapshot`.
    pub snapshot_time: Option<u64>,
    /// Streaming replies and waiting; only the handshake uses it.
    pub exhaust: Exhaust,
    /// Set it to close the connection after the reply.
    pub close_connection: bool,
    /// The reply waits so long: a login failed, as others did before it.
    pub pause: Cell<Duration>,
    /// What fail points ask for.
    pub(crate) faults: Faults,
    /// The session of a write that the client may send again.
    pub retry: Option<Retry>,
    /// The session of a statement of a transaction.
    pub transaction: Option<CheckedOut>,
    /// The logical session.
    pub session: Option<SessionId>,
    /// `bypassDocumentValidation` of a write: documents need not follow the collection's rules.
    pub bypass_validation: bool,
    /// `bypassEmptyTsReplacement` of a write: empty timestamps stay as they are.
    pub keep_empty_timestamps: bool,
    /// The UUID that a collection gets which the command creates; nothing: a new one.
    pub collection_uuid: Option<[u8; 16]>,
    /// How long the command has waited for data so far.
    pub waited: Duration,
    /// Set by the handler: wait for this, then run the command again.
    pub wait: Option<Wait>,
}

/// How many documents a command changed, for `serverStatus.metrics.document`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DocumentChanges {
    pub(crate) inserted: i64,
    pub(crate) updated: i64,
    pub(crate) deleted: i64,
}

/// What a command that cannot be answered yet waits for, before it runs again.
pub enum Wait {
    /// Data.
    Data(DataWait),
    /// A change of the topology.
    Topology {
        /// The counter that the client knows.
        seen: i64,
        /// At most so long.
        longest: Duration,
    },
}

impl Wait {
    /// How long the wait may take at most.
    pub fn longest(&self) -> Duration {
        match self {
            Wait::Data(data) => data.longest,
            Wait::Topology { longest, .. } => *longest,
        }
    }
}

/// What a command that found nothing waits for.
pub struct DataWait {
    /// What may bring data.
    pub awaited: Awaited,
    /// As [`Awaited::seen`] gave it before the command looked.
    pub seen: u64,
    /// At most so long.
    pub longest: Duration,
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
    /// Set by the handler: this reply is followed by another.
    pub more_to_come: bool,
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
            transaction: self.transaction.as_ref().map(|held| (held.txn_number(), held.alive())),
        }
    }

    /// Counts written documents in `opcounters`; the dispatcher counts all other commands.
    pub fn count(&self, kind: OpKind, documents: u64) {
        crate::dispatch::counter(self.service, kind).add(documents);
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

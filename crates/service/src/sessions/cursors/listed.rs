//! Open cursors as `$currentOp` and `$listLocalCursors` list them. The entry of a cursor has a copy
//! of these values, because a batch takes the cursor itself out of the table.

use mayfly_auth::UserName;
use mayfly_base::Namespace;
use mayfly_query::{Cursor, CursorOrigin, Returned};

use super::{Cursors, Entry};
use crate::clients::SessionId;

/// What is shown of a cursor.
#[derive(Clone)]
pub(super) struct Shown {
    is_tailable: bool,
    awaits_data: bool,
    pub(super) returned: Returned,
    origin: Option<CursorOrigin>,
    created_micros: i64,
}

impl Shown {
    pub(super) fn of(cursor: &Cursor, created_micros: i64) -> Shown {
        Shown {
            is_tailable: cursor.is_tailable(),
            awaits_data: cursor.await_data,
            returned: cursor.returned,
            origin: cursor.origin.clone(),
            created_micros,
        }
    }
}

/// An open cursor.
pub struct OpenCursor {
    /// The number that clients continue it by.
    pub id: i64,
    /// The namespace that is shown to clients.
    pub namespace: Namespace,
    /// The user that opened it, if access control is on.
    pub user: Option<UserName>,
    /// The session that it was opened in.
    pub session: Option<SessionId>,
    /// Whether no batch of it runs or waits for data.
    pub is_idle: bool,
    /// Whether it has no timeout of its own.
    pub no_timeout: bool,
    /// Whether it stays open at the end of its results.
    pub is_tailable: bool,
    /// Whether a batch without documents waits for some.
    pub awaits_data: bool,
    /// What its batches have contained.
    pub returned: Returned,
    /// The command that opened it, and its plan.
    pub origin: Option<CursorOrigin>,
    /// When it was opened, in monotonic microseconds.
    pub created_micros: i64,
    /// When its last batch ended, in monotonic microseconds.
    pub last_used_micros: i64,
}

impl OpenCursor {
    fn new(id: i64, entry: &Entry) -> OpenCursor {
        let shown = &entry.shown;
        OpenCursor {
            id,
            namespace: entry.namespace.clone(),
            user: entry.owner.user.clone(),
            session: entry.owner.session,
            is_idle: !entry.is_in_use(),
            no_timeout: entry.no_timeout,
            is_tailable: shown.is_tailable,
            awaits_data: shown.awaits_data,
            returned: shown.returned,
            origin: shown.origin.clone(),
            created_micros: shown.created_micros,
            last_used_micros: entry.last_used_micros,
        }
    }
}

impl Cursors {
    /// All open cursors, in the order of their opening.
    pub fn list(&self, now_micros: i64) -> Vec<OpenCursor> {
        self.close_idle(now_micros);
        let open = self.open.lock();
        let alive = open.iter().filter(|(_, entry)| !entry.owner.is_over() && !entry.killed);
        let mut list: Vec<_> = alive.map(|(id, entry)| OpenCursor::new(*id, entry)).collect();
        drop(open);
        list.sort_unstable_by_key(|cursor| (cursor.created_micros, cursor.id));
        list
    }

    /// An open cursor.
    pub fn find(&self, id: i64) -> Option<OpenCursor> {
        let open = self.open.lock();
        let entry = open.get(&id).filter(|entry| !entry.owner.is_over())?;
        Some(OpenCursor::new(id, entry))
    }
}

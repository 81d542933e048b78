//! One server owns a store at a time: its memory has a part of the state.
//!
//! Two locks of the database (advisory locks, which end with their session) keep it so:
//!
//! 1. The *owner lock* is held by one session of the owner, as long as it lives. A second server
//!    does not get it, and reports [`OpenError::InUse`].
//! 2. The new owner increments the number in the table `format`, then ends every session that
//!    holds the *session lock*, which all other sessions of an owner share, and waits until they
//!    are gone. After that, no commit of an earlier owner can come.
//! 3. A new session takes the session lock first, and reads the number of the owner afterwards. If
//!    it is the number of another owner, the engine is fenced: it refuses all writes.
//!
//! Either the new owner sees the session lock and ends the session, or the session sees the new
//! number. So a server that lost its network for a while cannot write into the store of its
//! successor.

use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::KvError;
use mayfly_work::current;

use crate::connection::{Connection, Connector, Session};
use crate::open_error::OpenError;
use crate::settle;

pub(crate) const OWNER_LOCK: u8 = 2;
const SESSION_LOCK: u8 = 3;
/// Held, shared with others, by each server that waits for the store.
pub(crate) const WAITING_LOCK: u8 = 4;
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// How long a server that ends waits until the owner lock is released.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// The session that holds the owner lock, and the number of this owner.
pub(crate) struct Ownership {
    /// `None` once the store was closed.
    pub(crate) connection: Option<Connection>,
    pub(crate) number: i64,
}

pub(crate) fn lock(schema: &str, which: u8) -> String {
    format!("hashtextextended('{schema}', {which})")
}

/// The sessions that hold a lock, but for this one.
pub(crate) fn holders(schema: &str, which: u8) -> String {
    let lock = lock(schema, which);
    format!(
        "from pg_locks l where l.locktype = 'advisory' and l.granted and l.objsubid = 1 \
         and l.database = (select oid from pg_database where datname = current_database()) \
         and l.classid::bigint = ({lock} >> 32) & 4294967295 \
         and l.objid::bigint = {lock} & 4294967295 and l.pid <> pg_backend_pid()"
    )
}

fn text(row: &[Option<String>], at: usize) -> String {
    row.get(at).cloned().flatten().unwrap_or_default()
}

fn pause() {
    current::wait(|| thread::sleep(RETRY_EVERY));
}

impl Ownership {
    /// Takes the owner lock with this session; waits until then for another owner to end.
    pub(crate) fn take(
        mut connection: Connection,
        schema: &str,
        wait: Duration,
        deadline: Instant,
    ) -> Result<Ownership, OpenError> {
        let give_up = (Instant::now() + wait).min(deadline);
        let try_lock = format!("select pg_try_advisory_lock({})", lock(schema, OWNER_LOCK));
        while text(&connection.open_with(&try_lock, deadline)?, 0) != "t" {
            if Instant::now() >= give_up {
                let who = format!(
                    "select (select concat_ws(' ', a.application_name, 'from', \
                     coalesce(host(a.client_addr), 'this machine'), 'since', \
                     a.backend_start::text) from pg_stat_activity a where a.pid = l.pid) {}",
                    holders(schema, OWNER_LOCK)
                );
                return Err(OpenError::InUse(text(&connection.open_with(&who, deadline)?, 0)));
            }
            pause();
        }
        let increment = format!("update \"{schema}\".format set owner = owner + 1 returning owner");
        let number = text(&connection.open_with(&increment, deadline)?, 0).parse();
        let number = number.map_err(|_| OpenError::Foreign("the store has no owner".into()))?;
        let end_others =
            format!("select count(pg_terminate_backend(l.pid)) {}", holders(schema, SESSION_LOCK));
        let count = format!("select count(*) {}", holders(schema, SESSION_LOCK));
        connection.open_with(&end_others, deadline)?;
        while text(&connection.open_with(&count, deadline)?, 0) != "0" {
            if Instant::now() >= deadline {
                return Err(OpenError::InUse("its sessions do not end".into()));
            }
            pause();
        }
        let row = connection.open_with(&format!("select {SESSION}"), deadline)?;
        connection.session =
            session(&row).map_err(|error| OpenError::Unavailable(error.to_string()))?;
        // The tokens of commits concern sessions that have ended.
        connection.open_with(&format!("truncate \"{schema}\".commits"), deadline)?;
        Ok(Ownership { connection: Some(connection), number })
    }

    /// Takes the lock again after its session was lost. PostgreSQL may not know that yet: when a
    /// network did not forward anything for a while, the former session lives, and holds the lock
    /// until it is ended.
    pub(crate) fn retake(
        connector: &Connector,
        number: i64,
        former: Session,
        deadline: Instant,
    ) -> Result<Ownership, KvError> {
        let schema = &connector.schema;
        let connection = connector.connect(deadline).map_err(OpenError::unavailable)?;
        let connection = identify(connection, deadline)?;
        settle::end_session(&connection, former, deadline)?;
        let try_lock = format!(
            "select pg_try_advisory_lock({}); select pg_try_advisory_lock({}), \
             (select owner from \"{schema}\".format)",
            lock(schema, OWNER_LOCK),
            lock(schema, OWNER_LOCK),
        );
        let row = connection.open_with(&try_lock, deadline).map_err(OpenError::unavailable)?;
        if text(&row, 1) != number.to_string() {
            return Err(fenced());
        }
        if text(&row, 0) != "t" {
            // Another server has it, and is about to write its number.
            return Err(KvError::Unavailable("the owner lock is not free".into()));
        }
        Ok(Ownership { connection: Some(connection), number })
    }
}

/// Releases the owner lock. PostgreSQL would notice later that the session has ended.
pub(crate) fn release(connection: &Connection) {
    let deadline = Instant::now() + RELEASED_WITHIN;
    if let Err(error) = connection.open_with("select pg_advisory_unlock_all()", deadline) {
        tracing::debug!(?error, "the owner lock is released when PostgreSQL ends its session");
    }
}

pub(crate) fn fenced() -> KvError {
    KvError::Fenced("another server has taken the store over".into())
}

/// The columns that identify a session.
const SESSION: &str = "pg_backend_pid(), (select (extract(epoch from backend_start) * \
    1000000)::bigint from pg_stat_activity where pid = pg_backend_pid())";

/// The identity of a session, by which another one can end it, from the row of [`SESSION`].
fn session(row: &[Option<String>]) -> Result<Session, KvError> {
    let (pid, began_micros) = (text(row, 0).parse(), text(row, 1).parse());
    let (Ok(pid), Ok(began_micros)) = (pid, began_micros) else {
        return Err(KvError::Unavailable("the server does not show the own session".into()));
    };
    Ok(Session { pid, began_micros })
}

/// Notes the identity of a session that only reads, and therefore belongs to no owner.
pub(crate) fn identify(
    mut connection: Connection,
    deadline: Instant,
) -> Result<Connection, KvError> {
    let row = connection
        .open_with(&format!("select {SESSION}"), deadline)
        .map_err(OpenError::unavailable)?;
    connection.session = session(&row)?;
    Ok(connection)
}

/// Takes the session lock with a new session, and checks the owner.
pub(crate) fn join(
    connection: &mut Connection,
    schema: &str,
    number: i64,
    deadline: Instant,
) -> Result<(), KvError> {
    let enter = format!(
        "select pg_advisory_lock_shared({}); select {SESSION}, (select owner from \"{schema}\".format)",
        lock(schema, SESSION_LOCK)
    );
    let row = connection.open_with(&enter, deadline).map_err(OpenError::unavailable)?;
    if text(&row, 2) != number.to_string() {
        return Err(fenced());
    }
    connection.session = session(&row)?;
    Ok(())
}

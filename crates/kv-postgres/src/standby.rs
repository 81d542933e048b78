//! Servers that wait for a store to become free, and take it over when its owner is gone.
//!
//! An owner that others may replace *beats*: every three seconds it writes the time of the database
//! into the table `beat`. A server that waits takes the store over
//!
//! * at once, when the owner lock is free: the owner has closed the store, or its process or its
//!   connection has ended. If PostgreSQL was restarted or another server of it was promoted since
//!   the last beat, all sessions are gone, and the owner may be connecting again: it has until the
//!   end of the lease;
//! * when the last beat is older than the lease (ten seconds) allows. The owner may be stopped, or
//!   its network cut. Its session with the owner lock is ended; opening the store ends the others
//!   ([`crate::owner`]), so nothing of it can be committed later. The lease includes the time of a
//!   beat in which the waiting server sees the database all the time: when that has not answered
//!   for a while, or its clock has jumped, the owner beats first.
//!
//! Of the secondaries that find the store free, one *stands for owner*: it writes its address into
//! the table `candidate` ([`crate::members`]), ends its service of reads, and opens the store. The
//! others go on serving reads. If no server owns the store three seconds later, another one stands.
//! The table saves the others an interruption; who owns the store is decided by the owner lock.
//!
//! All times are those of the database. An owner that does not beat is never ended.
//!
//! A member of a set that could not beat for the length of the lease gives its connections up
//! ([`Pool::note_missed_beat`]): another one may have taken the store over. It goes on when it can
//! beat.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::KvError;
use tokio::runtime::Builder;

use crate::connection::{Connection, Connector};
use crate::engine::PostgresEngine;
use crate::members;
use crate::open_error::OpenError;
use crate::options::{PostgresOptions, Target};
use crate::owner::{OWNER_LOCK, WAITING_LOCK, holders, lock};
use crate::pool::Pool;

/// How often an owner beats.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(3);
/// For how long a waiting server must have found the owner late: longer than a beat.
const CONFIRMED: Duration = Duration::from_millis(3_500);
/// How often a waiting server looks at the store.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long PostgreSQL has for each answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the server keeps the session when this program says nothing, in milliseconds.
const IDLE_MS: u64 = 60_000;

/// An instance of PostgreSQL: it differs after a restart and on a promoted standby.
const INSTANCE: &str =
    "concat_ws(' ', inet_server_addr(), inet_server_port(), pg_postmaster_start_time())";

/// What a waiting server is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// This server owns the store.
    Owner(String),
    /// No server owns it. The former owner may be connecting again.
    FormerOwner,
    /// No server owns it. Another server is about to open it.
    Candidate,
    /// The database does not answer.
    Database(String),
}

/// Makes the table of beats, if it is missing.
pub(crate) fn prepare(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    let begin = format!(
        "begin; select pg_advisory_xact_lock(hashtextextended('{schema}', 1)); \
         select to_regclass('\"{schema}\".beat')"
    );
    let row = connection.open_with(&begin, deadline)?;
    let made = match row.first() {
        Some(Some(_)) => Ok(()),
        _ => {
            let create = format!(
                "create table \"{schema}\".beat \
                 (owner bigint not null, at timestamptz not null, instance text not null); \
                 insert into \"{schema}\".beat values (0, 'epoch', '')"
            );
            connection.open_with(&create, deadline).map(|_| ())
        }
    };
    let end = if made.is_ok() { "commit" } else { "rollback" };
    let ended = connection.open_with(end, deadline);
    made.and(ended.map(|_| ()))
}

/// Writes that the owner with this number lives; returns false if another one owns the store.
pub(crate) fn beat(
    connection: &Connection,
    schema: &str,
    number: i64,
    deadline: Instant,
) -> Result<bool, OpenError> {
    let update = format!(
        "update \"{schema}\".beat set owner = {number}, at = clock_timestamp(), \
         instance = {INSTANCE} where (select owner from \"{schema}\".format) = {number} \
         returning owner"
    );
    Ok(!connection.open_with(&update, deadline)?.is_empty())
}

/// Beats for as long as the pool is open.
pub(crate) fn keep_beating(pool: &Arc<Pool>) -> std::io::Result<()> {
    let pool = Arc::downgrade(pool);
    let run = move || while beat_once(&pool) {};
    thread::Builder::new().name("beat".into()).spawn(run).map(drop)
}

/// Waits, and beats. Returns false when the pool is closed or the store was taken over.
fn beat_once(pool: &Weak<Pool>) -> bool {
    let Some(pause) = pool.upgrade().map(|pool| pool.beats_every()) else { return false };
    thread::sleep(pause);
    let Some(pool) = pool.upgrade() else { return false };
    let began = Instant::now();
    let beat = pool.beat(began + PATIENCE);
    match &beat {
        Ok(_) => pool.note_beat(began),
        Err(_) => pool.note_missed_beat(),
    }
    match beat {
        Ok(_) => true,
        Err(KvError::Fenced(_)) => false,
        Err(_) if pool.check_open().is_err() => false,
        Err(error) => {
            tracing::warn!(%error, "other servers cannot see that this one owns the store");
            true
        }
    }
}

/// What a server does that finds the store free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFree {
    /// It opens the store.
    Open,
    /// It serves reads, and opens the store unless another server is about to do so.
    StandForOwner,
    /// It goes on waiting while there is another server that waits for the store.
    LeaveToOthers,
}

/// What a look at the store has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Free,
    /// This owner has not beaten for longer than its lease allows.
    Late(String),
    Waiting(Waiting),
}

impl PostgresEngine {
    /// Waits until the store of this URL can be opened. An owner whose lease has run out is ended.
    /// After each look, a few times a second, `when_free` is called to decide about a free store,
    /// and `look` with the reason for waiting, which ends the wait by returning false. Returns
    /// whether the store can be opened.
    ///
    /// # Errors
    /// The options or the URL are wrong.
    pub fn await_store(
        url: &str,
        options: &PostgresOptions,
        when_free: &dyn Fn() -> WhenFree,
        look: &mut dyn FnMut(&Waiting) -> bool,
    ) -> Result<bool, OpenError> {
        options.check()?;
        let target = Target::parse(url)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Unavailable(error.to_string()))?;
        let limits = (PATIENCE.as_millis(), IDLE_MS);
        let connector = Connector::new(target, &options.schema, runtime.handle().clone(), limits);
        let (mut view, mut late) = (None, None);
        let is_free = loop {
            let found = look_at(&connector, &mut view, options)
                .and_then(|found| stand(found, connection_of(&view), options, when_free()));
            let found = match found {
                Ok(found) => found,
                Err(OpenError::Unavailable(text)) => {
                    view = None;
                    Found::Waiting(Waiting::Database(text))
                }
                // Opening the store reports it.
                Err(_) => break true,
            };
            let (waits_for, is_late) = match found {
                Found::Free => break true,
                Found::Late(owner) => (Waiting::Owner(owner), true),
                Found::Waiting(waiting) => (waiting, false),
            };
            // A new owner has taken the lock before its first beat.
            late = late
                .filter(|(owner, _)| is_late && *owner == waits_for)
                .or_else(|| is_late.then(|| (waits_for.clone(), Instant::now())));
            if late.as_ref().is_some_and(|(_, since)| since.elapsed() >= CONFIRMED)
                && let Some(connection) = connection_of(&view)
            {
                end_owner(connection, &options.schema, &waits_for);
            }
            if !look(&waits_for) {
                break false;
            }
            thread::sleep(LOOK_EVERY);
        };
        runtime.shutdown_background();
        Ok(is_free)
    }
}

/// Stands for owner, if the store is free and this is to be done. The store counts as owned while
/// another server is about to open it.
fn stand(
    found: Found,
    connection: Option<&Connection>,
    options: &PostgresOptions,
    when_free: WhenFree,
) -> Result<Found, OpenError> {
    match (&found, when_free, connection, &options.address) {
        (Found::Free, WhenFree::StandForOwner, Some(connection), Some(address)) => {
            let deadline = Instant::now() + PATIENCE;
            match members::stand_for_owner(connection, &options.schema, address, deadline)? {
                true => Ok(Found::Free),
                false => Ok(Found::Waiting(Waiting::Candidate)),
            }
        }
        (Found::Free, WhenFree::LeaveToOthers, Some(connection), Some(address)) => {
            let deadline = Instant::now() + PATIENCE;
            match members::leaves_to_others(connection, &options.schema, address, deadline)? {
                true => Ok(Found::Waiting(Waiting::Candidate)),
                false => Ok(Found::Free),
            }
        }
        _ => Ok(found),
    }
}

/// What a waiting server looks at the store with.
struct View {
    connection: Connection,
    /// Whether the statement for all further looks is prepared: the tables were there. They are not
    /// removed, and a primary that becomes a standby ends its sessions.
    is_prepared: bool,
}

fn connection_of(view: &Option<View>) -> Option<&Connection> {
    view.as_ref().map(|view| &view.connection)
}

/// Looks at the store, on the connection of before if there is one.
fn look_at(
    connector: &Connector,
    view: &mut Option<View>,
    options: &PostgresOptions,
) -> Result<Found, OpenError> {
    let deadline = Instant::now() + PATIENCE;
    let view = match view {
        Some(view) if view.connection.is_usable() => view,
        _ => {
            let connection = connector.connect(deadline)?;
            let made = view.insert(View { connection, is_prepared: false });
            let lock = lock(&options.schema, WAITING_LOCK);
            let wait = format!("select pg_advisory_lock_shared({lock})");
            made.connection.open_with(&wait, deadline)?;
            made
        }
    };
    let (schema, connection) = (&options.schema, &view.connection);
    if !view.is_prepared {
        let present = format!(
            "select to_regclass('\"{schema}\".format'), to_regclass('\"{schema}\".beat'), \
             pg_is_in_recovery()"
        );
        let row = connection.open_with(&present, deadline)?;
        let is_there = |at: usize| row.get(at).is_some_and(Option::is_some);
        if row.get(2).and_then(Option::as_deref) == Some("t") {
            return Err(OpenError::Unavailable("the server is a standby".into()));
        }
        if !is_there(0) {
            return Ok(Found::Free);
        }
        let select = select_owner(schema, is_there(1));
        connection.open_with(&format!("deallocate all; prepare look as {select}"), deadline)?;
        // An owner that others may replace makes the second table.
        view.is_prepared = is_there(1);
    }
    let row = connection.open_with("execute look", deadline)?;
    let text = |at: usize| row.get(at).cloned().flatten();
    let age_ms = text(1).and_then(|age| age.parse::<i64>().ok());
    let lease = options.lease.saturating_sub(CONFIRMED);
    let is_late = age_ms.is_some_and(|age| age > lease.as_millis() as i64);
    let found = match (text(0), age_ms) {
        (Some(owner), _) if is_late => Found::Late(owner),
        (Some(owner), _) => Found::Waiting(Waiting::Owner(owner)),
        // Its sessions are gone because it has ended them.
        (None, Some(_)) if is_late || text(2).as_deref() == Some("t") => Found::Free,
        (None, Some(_)) => Found::Waiting(Waiting::FormerOwner),
        (None, None) => Found::Free,
    };
    Ok(found)
}

/// A statement that selects the session with the owner lock, the milliseconds since the last beat
/// of the present owner, and whether it came from this instance of PostgreSQL.
fn select_owner(schema: &str, has_beats: bool) -> String {
    let beats = match has_beats {
        true => format!(
            "select f.owner, extract(epoch from clock_timestamp() - b.at) * 1000 as age, \
             b.instance = {INSTANCE} as same from \"{schema}\".format f \
             join \"{schema}\".beat b on b.owner = f.owner"
        ),
        false => "select null::bigint as owner, null::numeric as age, null::boolean as same \
                  where false"
            .to_owned(),
    };
    format!(
        "select (select concat_ws(' ', 'the server', host(a.client_addr), 'since', \
         a.backend_start::text) from pg_stat_activity a where a.pid = l.pid), \
         b.age::bigint, b.same from (select 1) one left join (select l.pid {}) l on true \
         left join ({beats}) b on true limit 1",
        holders(schema, OWNER_LOCK)
    )
}

/// Ends the session with the owner lock.
fn end_owner(connection: &Connection, schema: &str, owner: &Waiting) {
    if let Waiting::Owner(owner) = owner {
        tracing::warn!(owner, "the owner of the store has shown no sign of life; it is replaced");
    }
    let end = format!("select count(pg_terminate_backend(l.pid)) {}", holders(schema, OWNER_LOCK));
    if let Err(error) = connection.open_with(&end, Instant::now() + PATIENCE) {
        tracing::warn!(%error, "the session of the owner could not be ended");
    }
}

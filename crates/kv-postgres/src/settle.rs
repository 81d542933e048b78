//! Settling a commit whose reply was lost.
//!
//! The server may have received COMMIT or not, and may still be executing it. Before the engine
//! reports an error, it finds out:
//!
//! 1. Another connection ends the session of the commit (`pg_terminate_backend`), and waits until
//!    it is gone. From then on the commit is either applied or never will be.
//! 2. It looks for the commit's token in the table `commits`, which was written in the same
//!    transaction, and writes it once more if it is there. PostgreSQL makes a commit visible when
//!    its session ends, or after a crash, although no synchronous standby may have it. The second
//!    commit waits for the standby, which then has the first one as well.
//!
//! If the server cannot be reached until the deadline, the commit fails with
//! [`KvError::CommitUnknown`]. Later commits settle it first, so that none of them is overtaken by
//! a commit that was reported as failed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::{KvError, KvResult};
use mayfly_work::current;
use parking_lot::Mutex;

use crate::connection::{Connection, Session};
use crate::engine::Store;
use crate::failure::Failure;
use crate::wait::lock_until;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How often tokens of commits whose outcome is known are removed, in commits.
const CLEAN_EVERY: i64 = 10_000;
/// Numbers of tokens of one owner.
const TOKENS_OF_OWNER: i64 = 1 << 40;

/// The tokens of commits that are being sent.
#[derive(Default)]
pub(crate) struct Tokens {
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    last: i64,
    active: BTreeSet<i64>,
}

/// The token of a commit; removed from the active ones when dropped.
pub(crate) struct Token {
    tokens: Arc<Tokens>,
    number: i64,
}

impl Tokens {
    /// A token for the next commit of this owner.
    pub(crate) fn begin(self: &Arc<Tokens>, owner: i64) -> Token {
        let mut state = self.state.lock();
        state.last += 1;
        let number = owner.wrapping_mul(TOKENS_OF_OWNER).wrapping_add(state.last);
        state.active.insert(number);
        Token { tokens: self.clone(), number }
    }

    /// From time to time: the number below which no token is needed.
    pub(crate) fn cleaned_below(&self) -> Option<i64> {
        let state = self.state.lock();
        (state.last % CLEAN_EVERY == 0).then(|| state.active.first().copied()).flatten()
    }
}

impl Token {
    pub(crate) fn number(&self) -> i64 {
        self.number
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.state.lock().active.remove(&self.number);
    }
}

/// A commit whose outcome was reported as unknown, and whose session may still live.
pub(crate) struct Unsettled {
    session: Session,
    token: Token,
}

fn pause(pause: &mut Duration) {
    current::wait(|| thread::sleep(*pause));
    *pause = (*pause * 2).min(LONGEST_PAUSE);
}

/// Returns whether the commit was applied.
pub(crate) fn settle(
    store: &Arc<Store>,
    session: Session,
    token: Token,
    cause: &str,
) -> KvResult<bool> {
    // The deadline of the commit itself has passed if the server has not answered.
    let (deadline, mut between) = (store.deadline(), FIRST_PAUSE);
    tracing::warn!(cause, "a commit is being settled, because its reply was lost");
    loop {
        match try_to_settle(store, session, &token, deadline) {
            Ok(applied) => return Ok(applied),
            // Another server has the store: it has ended the session, but the token may be gone.
            Err(error @ KvError::Fenced(_)) => {
                return Err(KvError::CommitUnknown(error.to_string()));
            }
            Err(error) if Instant::now() >= deadline || store.pool.is_out_of_reach() => {
                current::wait(|| store.unsettled.lock()).push(Unsettled { session, token });
                return Err(KvError::CommitUnknown(format!("{cause}; {error}")));
            }
            Err(_) => pause(&mut between),
        }
    }
}

/// Makes sure that no earlier commit with an unknown outcome can still be applied.
pub(crate) fn settle_earlier(store: &Arc<Store>, deadline: Instant) -> KvResult<()> {
    let mut unsettled = lock_until(&store.unsettled, deadline)?;
    while let Some(earlier) = unsettled.last() {
        try_to_settle(store, earlier.session, &earlier.token, deadline)?;
        unsettled.pop();
    }
    Ok(())
}

fn try_to_settle(
    store: &Store,
    session: Session,
    token: &Token,
    deadline: Instant,
) -> KvResult<bool> {
    let connection = store.pool.connect(deadline)?;
    end_session(&connection, session, deadline)?;
    // Repeating it after a lost reply finds the same.
    let look = format!(
        "with found as (update \"{}\".commits set token = token where token = {} returning token) \
         select count(*) from found",
        store.schema,
        token.number()
    );
    let row = connection.simple(&look, deadline).map_err(Failure::into_kv)?;
    match row.first() {
        Some(Some(found)) => Ok(found != "0"),
        _ => Err(KvError::Unavailable("the tokens of commits cannot be read".into())),
    }
}

/// Ends a session of the server, and waits until it is gone.
pub(crate) fn end_session(
    connection: &Connection,
    session: Session,
    deadline: Instant,
) -> KvResult<()> {
    let of_session = format!(
        "from pg_stat_activity where pid = {} \
         and (extract(epoch from backend_start) * 1000000)::bigint = {}",
        session.pid, session.began_micros
    );
    let end = format!("select count(pg_terminate_backend(pid)) {of_session}");
    let count = format!("select count(*) {of_session}");
    connection.simple(&end, deadline).map_err(Failure::into_kv)?;
    let mut between = FIRST_PAUSE;
    loop {
        let row = connection.simple(&count, deadline).map_err(Failure::into_kv)?;
        if row.first().is_some_and(|count| count.as_deref() == Some("0")) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(KvError::Unavailable("a session of the server does not end".into()));
        }
        pause(&mut between);
    }
}

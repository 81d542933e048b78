//! One session of PostgreSQL: prepared statements, and calls that wait for their reply.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, NoTls, Row, SimpleQueryMessage, Statement};

use crate::failure::Failure;
use crate::open_error::OpenError;
use crate::options::Target;
use crate::sql::Sql;
use crate::wait::{Patience, block_on};

/// Settings of each session. The tables are read and written by their keys only; the planner need
/// not consider anything but their indexes, and not for every execution. They are statements, not
/// options of the connection, which PgBouncer refuses.
const SETTINGS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
    set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
    set jit = off; set max_parallel_workers_per_gather = 0; \
    set default_transaction_isolation = 'read committed'; \
    set default_transaction_read_only = off; set default_transaction_deferrable = off; \
    set search_path = pg_catalog; set tcp_keepalives_idle = 10; \
    set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; \
    set client_min_messages = warning";

/// Parameters of a statement.
pub(crate) type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

/// How to make connections.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) schema: Arc<str>,
    pub(crate) runtime: Handle,
    /// What a new session executes first.
    pub(crate) settings: Arc<str>,
    pub(crate) tasks: Tasks,
}

/// The tasks that connect, and those that move the bytes of connections. When such a task is
/// aborted, the calls that wait for a reply end as when the connection is lost.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<TaskList>>);

#[derive(Default)]
struct TaskList {
    tasks: Vec<AbortHandle>,
    /// Whether tasks that are added are aborted at once.
    is_ended: bool,
}

impl Tasks {
    pub(crate) fn add(&self, task: &AbortHandle) {
        let mut list = self.0.lock();
        if list.is_ended {
            task.abort();
            return;
        }
        list.tasks.retain(|task| !task.is_finished());
        list.tasks.push(task.clone());
    }

    fn abort(&self) {
        self.0.lock().tasks.drain(..).for_each(|task| task.abort());
    }

    fn end(&self) {
        self.0.lock().is_ended = true;
        self.abort();
    }
}

impl Connector {
    pub(crate) fn new(
        mut target: Target,
        schema: &str,
        runtime: Handle,
        (statement_ms, session_ms): (u128, u64),
    ) -> Connector {
        let settings = format!(
            "{SETTINGS}; set statement_timeout = {statement_ms}; \
             set lock_timeout = {statement_ms}; set idle_in_transaction_session_timeout = {session_ms}"
        );
        let config = &mut target.config;
        if config.get_application_name().is_none() {
            config.application_name("mayflydb");
        }
        let timeout = std::time::Duration::from_secs(5);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(timeout);
        }
        config.keepalives_idle(std::time::Duration::from_secs(10));
        Connector {
            target,
            schema: schema.into(),
            runtime,
            settings: settings.into(),
            tasks: Tasks::default(),
        }
    }

    /// Ends all connections at once, without a word to the server, which may not be reachable.
    pub(crate) fn drop_all(&self) {
        self.tasks.abort();
    }

    /// The same; later ones fail, too.
    pub(crate) fn end(&self) {
        self.tasks.end();
    }

    /// Connects and logs in.
    pub(crate) fn connect(&self, deadline: Instant) -> Result<Connection, OpenError> {
        let (config, tls, runtime) =
            (self.target.config.clone(), self.target.tls.clone(), self.runtime.clone());
        let tasks = self.tasks.clone();
        let connecting = self.runtime.spawn(async move {
            // The task of the connection ends with it.
            let (client, driver) = match tls {
                Some(tls) => config.connect(tls).await.map(|(client, connection)| {
                    (client, runtime.spawn(async move { connection.await.is_ok() }))
                })?,
                None => config.connect(NoTls).await.map(|(client, connection)| {
                    (client, runtime.spawn(async move { connection.await.is_ok() }))
                })?,
            };
            tasks.add(&driver.abort_handle());
            Ok(client)
        });
        self.tasks.add(&connecting.abort_handle());
        let client = match block_on(connecting, deadline, Patience::UntilDeadline) {
            Ok(Ok(connected)) => connected.map_err(|error: Error| OpenError::of(&error))?,
            Ok(Err(error)) => return Err(OpenError::Unavailable(error.to_string())),
            Err(_) => return Err(OpenError::Unavailable("the server does not answer".into())),
        };
        let connection = Connection {
            client,
            connector: self.clone(),
            statements: Mutex::default(),
            is_broken: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            session: Session::default(),
        };
        connection.open_with(&self.settings, deadline)?;
        Ok(connection)
    }
}

/// What identifies a session to other ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// The process.
    pub(crate) pid: i32,
    /// When it began, because numbers of processes are used again.
    pub(crate) began_micros: i64,
}

/// A session.
pub(crate) struct Connection {
    client: Client,
    connector: Connector,
    statements: Mutex<HashMap<Sql, Statement>>,
    /// Whether a statement may still be running, or its result unread.
    is_broken: AtomicBool,
    /// Whether statements of other threads may be under way.
    is_shared: AtomicBool,
    pub(crate) session: Session,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Connection {
    /// Whether it can be used for another transaction.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire) && !self.client.is_closed()
    }

    /// From now on threads send statements without waiting for those of others.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Only one thread uses it from now on.
    pub(crate) fn unshare(&self) {
        self.is_shared.store(false, Ordering::Release);
    }

    /// Accepts no other transaction, and cancels what the session executes. A shared session ends
    /// its statements first, since the cancellation might hit that of another thread.
    pub(crate) fn abandon(&self) {
        let is_first = !self.is_broken.swap(true, Ordering::AcqRel);
        if is_first && !self.client.is_closed() && !self.is_shared.load(Ordering::Acquire) {
            let (token, tls) = (self.client.cancel_token(), self.connector.target.tls.clone());
            self.connector.runtime.spawn(async move {
                let cancelled = match tls {
                    Some(tls) => token.cancel_query(tls).await,
                    None => token.cancel_query(NoTls).await,
                };
                if let Err(error) = cancelled {
                    tracing::debug!(%error, "a statement could not be cancelled");
                }
            });
        }
    }

    /// Waits for the reply of a call on this session.
    pub(crate) fn wait<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
        deadline: Instant,
        patience: Patience,
    ) -> Result<T, Failure> {
        match block_on(call, deadline, patience) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(Failure::of(&error)),
            Err(abandoned) => {
                self.abandon();
                Err(abandoned.into())
            }
        }
    }

    /// The prepared statement.
    pub(crate) fn statement(&self, sql: Sql, deadline: Instant) -> Result<Statement, Failure> {
        if let Some(statement) = self.statements.lock().get(&sql) {
            return Ok(statement.clone());
        }
        let text = sql.text(&self.connector.schema);
        let prepared = self.wait(self.client.prepare(&text), deadline, Patience::WhileWanted)?;
        self.statements.lock().insert(sql, prepared.clone());
        Ok(prepared)
    }

    /// Executes a statement that returns rows.
    pub(crate) fn query(
        &self,
        sql: Sql,
        params: Params<'_>,
        deadline: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let statement = self.statement(sql, deadline)?;
        self.wait(self.client.query(&statement, params), deadline, Patience::WhileWanted)
    }

    /// Begins a transaction and executes its first statements, in one round trip. Returns the rows
    /// of each.
    pub(crate) fn query_first<const N: usize>(
        &self,
        begin: &str,
        queries: [(Sql, Params<'_>); N],
        deadline: Instant,
    ) -> Result<[Vec<Row>; N], Failure> {
        let mut found = [const { Vec::new() }; N];
        let mut calls = vec![self.plain_call(begin)];
        for ((sql, params), rows) in queries.into_iter().zip(&mut found) {
            let (statement, client) = (self.statement(sql, deadline)?, &self.client);
            calls.push(Box::pin(async move {
                *rows = client.query(&statement, params).await?;
                Ok(())
            }));
        }
        let replies = block_on(Pipeline::new(calls), deadline, Patience::WhileWanted);
        let replies = replies.inspect_err(|_| self.abandon())?;
        replies.into_iter().try_for_each(|reply| reply.map_err(|error| Failure::of(&error)))?;
        Ok(found)
    }

    /// Executes statements without parameters, and returns the columns of the last row.
    pub(crate) fn simple(
        &self,
        text: &str,
        deadline: Instant,
    ) -> Result<Vec<Option<String>>, Failure> {
        let call = self.client.simple_query(text);
        let replies = self.wait(call, deadline, Patience::UntilDeadline)?;
        Ok(last_row(replies))
    }

    /// The same while opening, with the errors of opening.
    pub(crate) fn open_with(
        &self,
        text: &str,
        deadline: Instant,
    ) -> Result<Vec<Option<String>>, OpenError> {
        let call = self.client.simple_query(text);
        match block_on(call, deadline, Patience::UntilDeadline) {
            Ok(Ok(replies)) => Ok(last_row(replies)),
            Ok(Err(error)) => Err(OpenError::of(&error)),
            Err(_) => {
                self.abandon();
                Err(OpenError::Unavailable("the server has not answered in time".into()))
            }
        }
    }

    /// A statement without parameters, as a call of a pipeline.
    pub(crate) fn plain_call<'c>(&'c self, text: &'c str) -> Call<'c> {
        Box::pin(self.client.batch_execute(text))
    }

    /// A prepared statement, as a call of a pipeline.
    pub(crate) fn call<'c>(&'c self, statement: Statement, params: Params<'c>) -> Call<'c> {
        Box::pin(async move { self.client.execute(&statement, params).await.map(|_| ()) })
    }

    /// The same; `rows` becomes the number of rows that it has written.
    pub(crate) fn counting_call<'c>(
        &'c self,
        statement: Statement,
        params: Params<'c>,
        rows: &'c mut u64,
    ) -> Call<'c> {
        Box::pin(async move {
            *rows = self.client.execute(&statement, params).await?;
            Ok(())
        })
    }

    /// Sends a statement without waiting for its reply. Later statements of the session are
    /// executed after it.
    pub(crate) fn send_and_forget(&self, text: &str) {
        let call = std::pin::pin!(self.client.batch_execute(text));
        // The first poll puts the message into the queue of the connection.
        let _ = call.poll(&mut Context::from_waker(std::task::Waker::noop()));
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The runtime of the engine.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.connector.runtime
    }
}

/// The columns of the last row; none if there is no row.
fn last_row(replies: Vec<SimpleQueryMessage>) -> Vec<Option<String>> {
    let last = replies.into_iter().rev().find_map(|reply| match reply {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    });
    last.unwrap_or_default()
}

/// A statement that is sent by its first poll.
pub(crate) type Call<'c> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'c>>;

/// Calls that are sent together, in their order, and whose replies are awaited together.
pub(crate) struct Pipeline<'c> {
    calls: Vec<Call<'c>>,
    replies: Vec<Option<Result<(), Error>>>,
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(calls: Vec<Call<'c>>) -> Pipeline<'c> {
        let replies = calls.iter().map(|_| None).collect();
        Pipeline { calls, replies }
    }
}

impl Future for Pipeline<'_> {
    type Output = Vec<Result<(), Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        for (call, reply) in this.calls.iter_mut().zip(&mut this.replies) {
            if reply.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(context)
            {
                *reply = Some(ready);
            }
        }
        match this.replies.iter().all(Option::is_some) {
            true => Poll::Ready(this.replies.drain(..).flatten().collect()),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_no_options_of_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let connector = |url: &str| {
            let target = Target::parse(url).unwrap();
            Connector::new(target, "mayflydb", runtime.handle().clone(), (30_000, 660_000))
        };
        // PgBouncer refuses them. Those of the URL are the operator's.
        let plain = connector("postgresql://me@127.0.0.1/data?sslmode=disable");
        assert_eq!(plain.target.config.get_options(), None);
        let own =
            connector("postgresql://me@127.0.0.1/data?sslmode=disable&options=-c%20jit%3Doff");
        assert_eq!(own.target.config.get_options(), Some("-c jit=off"));
        assert!(plain.settings.contains("statement_timeout = 30000"));
    }
}

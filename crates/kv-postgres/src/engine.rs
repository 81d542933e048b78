//! The calls of the [`Engine`] contract: opening, transactions, sweeps, sizes, closing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_kv::conflict::ConflictTracker;
use mayfly_kv::{
    Caps, CheckpointFile, Engine, EngineStats, Expected, HeldSnapshot, Ingest, KeyRange, Keyspace,
    KvError, KvResult, LogClock, NamedKey, Sharing, SweepEnd, ThroughVisitor, Txn, TxnOptions,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio_postgres::Row;

use crate::connection::{Connector, Params};
use crate::cursor::{column, flag, number, optional_column};
use crate::failure::Failure;
use crate::figures;
use crate::held::{HeldSession, HeldSessions, MAX_AGE, PostgresHeld};
use crate::ingest::PostgresIngest;
use crate::members;
use crate::open_error::OpenError;
use crate::opening::{Openings, Waits};
use crate::options::{PostgresOptions, Target};
use crate::owner::Ownership;
use crate::pool::{Admission, Lease, Pool};
use crate::schema;
use crate::session::{MAX_TRIES, TxnSession};
use crate::settle::{self, Tokens, Unsettled};
use crate::sql::Sql;
use crate::standby;
use crate::txn::{CAPS, PostgresTxn, part_of, show};
use crate::wait::Patience;

/// Threads that move bytes between sockets and the threads of operations.
const NETWORK_THREADS: usize = 2;
/// Most entries that one call of a sweep removes.
const SWEEP_MAX: usize = 10_000;
/// Entries of a range whose sizes are added; the rest is estimated.
const SIZED_ENTRIES: i64 = 10_000;
/// How long a VACUUM may take.
const LONGEST_VACUUM: Duration = Duration::from_secs(86_400);
/// How much longer the server keeps an idle transaction than the engine uses it.
const GRACE: Duration = Duration::from_secs(60);

/// A store in a schema of a PostgreSQL database.
pub struct PostgresEngine {
    pub(crate) store: Arc<Store>,
}

/// What this server does with the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is the only one that writes.
    Owner,
    /// It reads what the owner writes.
    Secondary,
}

/// What the engine and its transactions share.
pub(crate) struct Store {
    pub(crate) pool: Arc<Pool>,
    pub(crate) schema: Arc<str>,
    options: PostgresOptions,
    conflicts: Arc<ConflictTracker>,
    pub(crate) log: Arc<LogClock>,
    held: HeldSessions,
    pub(crate) openings: Arc<Openings>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) unsettled: Mutex<Vec<Unsettled>>,
    /// The task of a secondary that listens to announcements.
    pub(crate) listening: Mutex<Option<AbortHandle>>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl PostgresEngine {
    /// Opens the store in a database, and makes its tables if they are missing. The URL is that of
    /// libpq, for example `postgresql://user@host:5432/database?sslmode=verify-full`.
    ///
    /// # Errors
    /// The reason; no text contains the password.
    pub fn open(url: &str, options: PostgresOptions) -> Result<Arc<PostgresEngine>, OpenError> {
        PostgresEngine::open_as(Role::Owner, url, options)
    }

    fn open_as(
        role: Role,
        url: &str,
        options: PostgresOptions,
    ) -> Result<Arc<PostgresEngine>, OpenError> {
        options.check()?;
        let target = Target::parse(url)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Unavailable(error.to_string()))?;
        let opened = PostgresEngine::open_on(role, &runtime, target, &options);
        let pool = match opened {
            Ok(pool) => pool,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let store = Store {
            pool,
            schema: options.schema.as_str().into(),
            options,
            conflicts: ConflictTracker::new(),
            log: LogClock::new(),
            held: HeldSessions::default(),
            openings: Arc::default(),
            tokens: Arc::default(),
            unsettled: Mutex::default(),
            listening: Mutex::default(),
            runtime: Some(runtime),
        };
        Ok(Arc::new(PostgresEngine { store: Arc::new(store) }))
    }

    /// Opens the store that another server owns, to read it.
    ///
    /// # Errors
    /// As [`PostgresEngine::open`]; [`OpenError::Foreign`] if there is no store.
    pub fn open_secondary(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Arc<PostgresEngine>, OpenError> {
        PostgresEngine::open_as(Role::Secondary, url, options)
    }

    fn open_on(
        role: Role,
        runtime: &Runtime,
        target: Target,
        options: &PostgresOptions,
    ) -> Result<Arc<Pool>, OpenError> {
        let limits = (options.deadline.as_millis(), (MAX_AGE + GRACE).as_millis() as u64);
        let connector = Connector::new(target, &options.schema, runtime.handle().clone(), limits);
        let deadline = Instant::now() + options.deadline + options.wait_for_owner;
        let connection = connector.connect(deadline)?;
        schema::check_server(&connection, deadline)?;
        let unavailable = |error: String| OpenError::Unavailable(error);
        if role == Role::Secondary {
            schema::check_present(&connection, &options.schema, deadline)?;
            members::prepare(&connection, &options.schema, deadline)?;
            let pool = Pool::new(connector, None, options);
            let since = pool.beat(deadline).map_err(|error| unavailable(error.to_string()))?;
            standby::keep_beating(&pool).map_err(|error| unavailable(error.to_string()))?;
            std::thread::sleep(members::KNOWN_AFTER.saturating_sub(since));
            return Ok(pool);
        }
        schema::prepare(&connection, &options.schema, deadline)?;
        let wait = options.wait_for_owner;
        if options.others_wait {
            standby::prepare(&connection, &options.schema, deadline)?;
            members::prepare(&connection, &options.schema, deadline)?;
        }
        let owner = Ownership::take(connection, &options.schema, wait, deadline)?;
        if let (true, Some(session)) = (options.others_wait, &owner.connection) {
            members::end_candidacy(session, &options.schema, deadline)?;
        }
        let pool = Pool::new(connector, Some(owner), options);
        if options.others_wait {
            pool.beat(deadline).map_err(|error| unavailable(error.to_string()))?;
            standby::keep_beating(&pool).map_err(|error| unavailable(error.to_string()))?;
        }
        Ok(pool)
    }

    /// A session with an open read-only transaction, whose snapshot was taken.
    fn begin_now(&self, admission: Admission) -> KvResult<Lease> {
        let (store, deadline) = (&self.store, self.store.deadline());
        for tries in 1.. {
            let lease = store.pool.lease(admission, deadline)?;
            match store.openings.begin(&lease, Waits::Reader, None).wait(deadline) {
                Ok(()) => return Ok(lease),
                Err(Failure::Lost(_)) if tries < MAX_TRIES => {
                    lease.connection().abandon();
                    store.pool.drop_idle();
                }
                Err(failure) => {
                    lease.connection().abandon();
                    return Err(failure.into_kv());
                }
            }
        }
        unreachable!("the last try returns")
    }
}

impl Store {
    /// When a call that begins now must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.options.deadline
    }

    /// Executes a single statement, outside of transactions.
    fn query_once(&self, sql: Sql, params: Params<'_>) -> KvResult<Vec<Row>> {
        let deadline = self.deadline();
        for tries in 1.. {
            let reader = self.pool.reader(deadline)?;
            match reader.query(sql, params, deadline) {
                Ok(rows) => return Ok(rows),
                // It is found closed by the next call, or is closed now.
                Err(Failure::Lost(_)) if tries < MAX_TRIES => reader.abandon(),
                Err(failure) => return Err(failure.into_kv()),
            }
        }
        unreachable!("the last try returns")
    }

    /// Removes the tokens of commits whose outcome is known, from time to time. It does not wait,
    /// and a failure only costs space until the next time.
    pub(crate) fn clean_tokens(&self) {
        if let Some(below) = self.tokens.cleaned_below()
            && let Ok(reader) = self.pool.reader(self.deadline())
        {
            let schema = &self.schema;
            reader.send_and_forget(&format!(
                "delete from \"{schema}\".commits where token < {below}"
            ));
        }
    }

    /// Executes statements without parameters, outside of transactions.
    fn simple_once(&self, text: &str) -> KvResult<Vec<Option<String>>> {
        let deadline = self.deadline();
        let reader = self.pool.reader(deadline)?;
        reader.simple(text, deadline).map_err(Failure::into_kv)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which is forbidden in a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine for PostgresEngine {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn caps(&self) -> Caps {
        Caps { max_open_txns: self.store.options.connections / 2, ..CAPS }
    }

    fn sharing(&self) -> &dyn Sharing {
        self
    }

    fn log(&self) -> &Arc<LogClock> {
        &self.store.log
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.store.pool.check_open()?;
        if self.store.pool.is_secondary() && !options.read_only {
            return Err(only_reads());
        }
        let store = self.store.clone();
        Ok(Box::new(match options.read_only {
            true if store.openings.waits() == Waits::Reader => {
                let session = TxnSession::reader(store, self.begin_now(Admission::Queued)?, None);
                PostgresTxn::new(session, None)
            }
            true => {
                let lease = store.pool.lease(Admission::Queued, store.deadline())?;
                let opening = store.openings.begin(&lease, Waits::Commits, None);
                PostgresTxn::new(TxnSession::reader(store, lease, Some(opening)), None)
            }
            // The claims are begun before the snapshot is taken: see the conflict tracker.
            false => {
                let claims = store.conflicts.begin();
                let admission = match options.stays_open {
                    true => Admission::AtOnce,
                    false => Admission::Queued,
                };
                PostgresTxn::new(TxnSession::writer(store, admission), Some(claims))
            }
        }))
    }

    /// Over a network the snapshot is taken with the first read.
    fn begin_if(&self, expected: &Expected<'_>) -> KvResult<Box<dyn Txn>> {
        self.store.pool.check_open()?;
        let session = TxnSession::reader_if(self.store.clone(), expected);
        Ok(Box::new(PostgresTxn::new(session, None)))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        let store = self.store.clone();
        store.held.make_room(store.options.held_snapshots);
        let session = store.held.add(self.begin_now(Admission::AtOnce)?);
        Ok(Arc::new(PostgresHeld { store, session }))
    }

    fn hold_for_export(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        let session = HeldSession::for_export(self.begin_now(Admission::AtOnce)?);
        Ok(Arc::new(PostgresHeld { store: self.store.clone(), session }))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        show(self.store.query_once(Sql::Get(keyspace), &[&key])?.first(), see)
    }

    fn get_through_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        let (offset, length) = part_of(named)?;
        let sql = Sql::GetThrough(keyspace, named.keyspace);
        let rows = self.store.query_once(sql, &[&key, &named.prefix, &offset, &length])?;
        let Some(row) = rows.first() else { return Ok(false) };
        see(column(row, 0)?, optional_column(row, 1)?);
        Ok(true)
    }

    fn get_if(
        &self,
        expected: &Expected<'_>,
        (keyspace, key): (Keyspace, &[u8]),
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<Option<bool>> {
        let sql = Sql::GetBeside(keyspace, expected.keyspace);
        let rows = self.store.query_once(sql, &[&key, &expected.key])?;
        let Some(row) = rows.first() else { return Ok(None) };
        if optional_column(row, 0)? != Some(expected.value) {
            return Ok(None);
        }
        let Some(value) = optional_column(row, 1)? else { return Ok(Some(false)) };
        see(value);
        Ok(Some(true))
    }

    fn get_through_if(
        &self,
        expected: &Expected<'_>,
        (keyspace, key): (Keyspace, &[u8]),
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<Option<bool>> {
        let (offset, length) = part_of(named)?;
        let sql = Sql::GetThroughBeside(keyspace, named.keyspace, expected.keyspace);
        let params: Params<'_> = &[&key, &named.prefix, &offset, &length, &expected.key];
        let rows = self.store.query_once(sql, params)?;
        let Some(row) = rows.first() else { return Ok(None) };
        if optional_column(row, 0)? != Some(expected.value) {
            return Ok(None);
        }
        let Some(first) = optional_column(row, 1)? else { return Ok(Some(false)) };
        see(first, optional_column(row, 2)?);
        Ok(Some(true))
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.store.pool.check_open()?;
        if range.is_empty() {
            return Ok(SweepEnd::Done);
        }
        // A commit that was reported as failed must not write into the range after the sweep.
        settle::settle_earlier(&self.store, self.store.deadline())?;
        let most = max.clamp(1, SWEEP_MAX) as i64;
        let params: Params<'_> = &[&range.start, &range.end, &most];
        let rows = self.store.query_once(Sql::Sweep(keyspace), params)?;
        let more = rows.first().map_or(Ok(false), |row| flag(row, 0))?;
        Ok(if more { SweepEnd::More } else { SweepEnd::Done })
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.store.pool.check_open()?;
        if self.store.pool.is_secondary() {
            return Err(only_reads());
        }
        Ok(Some(Box::new(PostgresIngest::new(self.store.clone(), keyspace))))
    }

    /// Each commit is durable when it returns, as the settings of the server say.
    fn sync(&self) -> KvResult<()> {
        self.store.pool.check_open()
    }

    /// Exact for short ranges; otherwise the planner's estimate of the number of entries.
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.store.pool.check_open()?;
        if range.is_empty() {
            return Ok(0);
        }
        let params: Params<'_> = &[&range.start, &range.end, &SIZED_ENTRIES];
        let rows = self.store.query_once(Sql::Size(keyspace), params)?;
        let Some(row) = rows.first() else { return Ok(0) };
        let (entries, bytes) = (number(row, 0)?, number(row, 1)?);
        let bytes = u64::try_from(bytes).unwrap_or(0);
        if entries < SIZED_ENTRIES {
            return Ok(bytes);
        }
        let explain = format!(
            "explain (format json) select from \"{}\".\"{}\" \
             where key >= '\\x{}' and key < '\\x{}'",
            self.store.schema,
            keyspace.name(),
            hex(&range.start),
            hex(&range.end),
        );
        let plan = self.store.simple_once(&explain)?;
        let estimated = plan.iter().flatten().find_map(|plan| estimated_rows(plan)).unwrap_or(0);
        Ok(bytes / SIZED_ENTRIES as u64 * estimated.max(SIZED_ENTRIES as u64))
    }

    fn entry_bytes(&self, keyspace: Keyspace) -> KvResult<u64> {
        self.approximate_bytes(keyspace, &KeyRange::all())
    }

    /// Each table has a VACUUM on a connection of its own, which cannot be in a transaction.
    fn vacuum(&self, keyspaces: &[Keyspace]) -> KvResult<()> {
        let connection = self.store.pool.connect(self.store.deadline())?;
        connection
            .simple("set statement_timeout = 0", self.store.deadline())
            .map_err(Failure::into_kv)?;
        for keyspace in keyspaces {
            let vacuum = format!("vacuum \"{}\".\"{}\"", self.store.schema, keyspace.name());
            let call = connection.plain_call(&vacuum);
            let deadline = Instant::now() + LONGEST_VACUUM;
            connection.wait(call, deadline, Patience::WhileWanted).map_err(Failure::into_kv)?;
        }
        Ok(())
    }

    fn checkpoint(&self, _: &Path) -> KvResult<Vec<CheckpointFile>> {
        Err(KvError::Unsupported(
            "the store is in PostgreSQL: copy it with pg_dump or pg_basebackup".into(),
        ))
    }

    fn wall_ms(&self) -> KvResult<Option<i64>> {
        let select = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
        let row = self.store.simple_once(select)?;
        Ok(row.first().cloned().flatten().and_then(|wall_ms| wall_ms.parse().ok()))
    }

    fn stats(&self) -> EngineStats {
        let row = self.store.simple_once(&figures::select(&self.store.schema));
        figures::stats(&row.unwrap_or_default())
    }

    fn begin_to_close(&self) {
        let (pool, longest) = (Arc::downgrade(&self.store.pool), self.store.options.longest_close);
        let Some(runtime) = &self.store.runtime else { return };
        runtime.spawn(async move {
            tokio::time::sleep(longest).await;
            if let Some(pool) = pool.upgrade() {
                pool.cut();
            }
        });
    }

    fn close(&self) -> KvResult<()> {
        if let Some(task) = self.store.listening.lock().take() {
            task.abort();
        }
        self.store.pool.close();
        Ok(())
    }
}

fn only_reads() -> KvError {
    KvError::Fenced("this server only reads".into())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The estimated number of rows of the first node of a plan.
fn estimated_rows(plan: &str) -> Option<u64> {
    let (_, after) = plan.split_once("\"Plan Rows\": ")?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

//! Counters since the start, as in `serverStatus`.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_work::OpCtx;
use mayfly_work::spill::SpillCounters;

/// The largest number of commands with counters of their own.
pub const MAX_COMMANDS: usize = 512;

/// A counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The count, capped at the largest int64.
    pub fn get(&self) -> i64 {
        i64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

/// Operations since the start by kind: the section `opcounters`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct OpCounters {
    pub insert: Counter,
    pub query: Counter,
    pub update: Counter,
    pub delete: Counter,
    pub getmore: Counter,
    pub command: Counter,
}

/// Documents that commands returned, inserted, updated and deleted since the start: the section
/// `metrics.document`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct DocumentCounts {
    pub deleted: Counter,
    pub inserted: Counter,
    pub returned: Counter,
    pub updated: Counter,
}

/// Traffic with clients since the start: the section `network`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct Network {
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub requests: Counter,
    /// Connections by TLS version, in the order of [`TLS_VERSIONS`].
    pub tls: [Counter; TLS_VERSIONS.len()],
}

/// The names of TLS versions in `transportSecurity`.
pub const TLS_VERSIONS: [&str; 5] = ["1.0", "1.1", "1.2", "1.3", "unknown"];

/// Login mechanisms, in the order of [`Metrics::logins`].
pub const LOGIN_MECHANISMS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// The counts of logins by one mechanism.
#[derive(Debug, Default)]
pub struct Logins {
    /// In the handshake (`speculativeAuthenticate`).
    pub speculative: LoginCounts,
    /// In commands of their own.
    pub asked: LoginCounts,
}

impl Metrics {
    /// The counts of logins by a mechanism; `None` for an unknown one.
    pub fn logins(&self, mechanism: &str) -> Option<&Logins> {
        let at = LOGIN_MECHANISMS.iter().position(|name| *name == mechanism)?;
        self.logins.get(at)
    }
}

/// The numbers of logins that began and that succeeded.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct LoginCounts {
    pub received: Counter,
    pub successful: Counter,
}

/// Errors since the start by cause: the section `asserts`.
#[derive(Debug, Default)]
pub struct Asserts {
    /// Errors caused by clients.
    pub user: Counter,
    /// Errors that the server caused itself, such as a broken invariant.
    pub msg: Counter,
}

/// The numbers of executions and failures of a command.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct CommandCounts {
    pub total: Counter,
    pub failed: Counter,
}

/// What queries read: the section `metrics.queryExecutor`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct QueryExecutor {
    /// Index entries that were read.
    pub scanned: Counter,
    /// Documents that were read.
    pub scanned_objects: Counter,
    pub collection_scans: Counter,
    /// Collection scans without a tailable cursor.
    pub non_tailable_scans: Counter,
}

/// The names of read concerns in `opReadConcernCounters`, in the order of
/// [`Metrics::read_concerns`]; the last one counts reads without a level.
pub const READ_CONCERNS: [&str; 6] =
    ["available", "linearizable", "local", "majority", "snapshot", "none"];

/// The largest number of members in a write concern.
const MAX_MEMBERS: usize = 50;

/// Written documents of a kind by the write concern of the command: a field of
/// `opWriteConcernCounters`.
#[derive(Debug)]
pub struct WriteConcernCounts {
    /// The concern is `w: "majority"`.
    pub majority: Counter,
    /// `w` is a number, which is the index.
    pub number: [Counter; MAX_MEMBERS + 1],
    /// `w` is a mode, or counts members by tags.
    pub tag: Counter,
    /// The command has no write concern.
    pub none: Counter,
}

impl Default for WriteConcernCounts {
    fn default() -> WriteConcernCounts {
        let number = std::array::from_fn(|_| Counter::default());
        let (majority, tag, none) = Default::default();
        WriteConcernCounts { majority, number, tag, none }
    }
}

/// Waits of writes for their write concern: the section `metrics.getLastError`.
#[derive(Debug, Default)]
pub struct WriteConcernWaits {
    /// Commands that waited for the sync of the log.
    pub count: Counter,
    /// The time of these waits in microseconds.
    pub micros: Counter,
    /// Write concerns from the defaults that this member cannot meet.
    pub unsatisfiable_defaults: Counter,
}

/// All counters of a server.
#[allow(missing_docs, reason = "the names are the sections of serverStatus")]
pub struct Metrics {
    pub opcounters: OpCounters,
    pub network: Network,
    pub asserts: Asserts,
    /// Logins by mechanism, in the order of [`LOGIN_MECHANISMS`].
    pub logins: [Logins; LOGIN_MECHANISMS.len()],
    /// Documents returned to clients, and inserted, updated and deleted by them.
    pub documents: DocumentCounts,
    pub query_executor: QueryExecutor,
    /// Operations that sorted documents: `metrics.operation.scanAndOrder`.
    pub scan_and_order: Counter,
    /// Reads by read concern, in the order of [`READ_CONCERNS`].
    pub read_concerns: [Counter; READ_CONCERNS.len()],
    /// Inserts, updates and deletes by write concern.
    pub write_concerns: [WriteConcernCounts; 3],
    pub write_concern_waits: WriteConcernWaits,
    /// Statements that were sent again after they had been executed.
    pub retried_statements: Counter,
    /// Sorted documents: `metrics.query.sort.totalKeysSorted`.
    pub keys_sorted: Counter,
    /// Bytes of the sorted documents.
    pub bytes_sorted: Counter,
    /// The amounts that operators spilled to files: `metrics.query`.
    pub spills: SpillCounters,
    /// Idle cursors that were closed because the memory limit was near.
    pub closed_for_memory: Counter,
    commands: Vec<CommandCounts>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            opcounters: OpCounters::default(),
            network: Network::default(),
            asserts: Asserts::default(),
            logins: Default::default(),
            documents: DocumentCounts::default(),
            query_executor: QueryExecutor::default(),
            scan_and_order: Counter::default(),
            read_concerns: Default::default(),
            write_concerns: Default::default(),
            write_concern_waits: WriteConcernWaits::default(),
            retried_statements: Counter::default(),
            keys_sorted: Counter::default(),
            bytes_sorted: Counter::default(),
            spills: SpillCounters::default(),
            closed_for_memory: Counter::default(),
            commands: (0..MAX_COMMANDS).map(|_| CommandCounts::default()).collect(),
        }
    }
}

impl Metrics {
    /// Adds what a finished operation read, sorted and spilled.
    pub fn count_work(&self, op: &OpCtx) {
        for (counter, read) in [
            (&self.query_executor.scanned, &op.keys_examined),
            (&self.query_executor.scanned_objects, &op.docs_examined),
        ] {
            match read.load(Ordering::Relaxed) {
                0 => {}
                read => counter.add(read),
            }
        }
        if op.has_sort_stage.load(Ordering::Relaxed) {
            self.scan_and_order.add(1);
            self.keys_sorted.add(op.keys_sorted.load(Ordering::Relaxed));
            self.bytes_sorted.add(op.bytes_sorted.load(Ordering::Relaxed));
        }
        self.spills.add_all(&op.spills);
    }

    /// The counts of the command with this index in the command table.
    pub fn command(&self, index: usize) -> &CommandCounts {
        // A test checks that the table fits; an index beyond it shares the last counter.
        &self.commands[index.min(MAX_COMMANDS - 1)]
    }
}

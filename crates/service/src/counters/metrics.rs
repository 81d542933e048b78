//! Counters since start, as `serverStatus` shows them.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_work::OpCtx;
use mayfly_work::spill::SpillCounters;

/// Most commands that have counters of their own.
pub const MAX_COMMANDS: usize = 512;

/// A count that only goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts this many more.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The count as an int64.
    pub fn get(&self) -> i64 {
        i64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
    }
}

/// `opcounters`.
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

/// `metrics.document`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct DocumentCounts {
    pub deleted: Counter,
    pub inserted: Counter,
    pub returned: Counter,
    pub updated: Counter,
}

/// `network`.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct Network {
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub requests: Counter,
    /// Connections by the version of TLS that they speak: those of [`TLS_VERSIONS`].
    pub tls: [Counter; TLS_VERSIONS.len()],
}

/// Versions of TLS as `transportSecurity` calls them.
pub const TLS_VERSIONS: [&str; 5] = ["1.0", "1.1", "1.2", "1.3", "unknown"];

/// Mechanisms of logins, in the order of [`Metrics::logins`].
pub const LOGIN_MECHANISMS: [&str; 3] = ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// Logins by one mechanism.
#[derive(Debug, Default)]
pub struct Logins {
    /// Inside of the handshake.
    pub speculative: LoginCounts,
    /// By a command of their own.
    pub asked: LoginCounts,
}

impl Metrics {
    /// The counts of logins by a mechanism; of an unknown one there are none.
    pub fn logins(&self, mechanism: &str) -> Option<&Logins> {
        let at = LOGIN_MECHANISMS.iter().position(|name| *name == mechanism)?;
        self.logins.get(at)
    }
}

/// How many logins were begun, and how many succeeded.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct LoginCounts {
    pub received: Counter,
    pub successful: Counter,
}

/// `asserts`.
#[derive(Debug, Default)]
pub struct Asserts {
    /// Errors of users.
    pub user: Counter,
    /// Bugs of ours.
    pub msg: Counter,
}

/// How often a command ran and failed.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of serverStatus")]
pub struct CommandCounts {
    pub total: Counter,
    pub failed: Counter,
}

/// All counters of a server.
#[allow(missing_docs, reason = "the names are the sections of serverStatus")]
pub struct Metrics {
    pub opcounters: OpCounters,
    pub network: Network,
    pub asserts: Asserts,
    /// Logins, by the mechanisms of [`LOGIN_MECHANISMS`].
    pub logins: [Logins; LOGIN_MECHANISMS.len()],
    /// Documents returned to clients, and inserted, updated and deleted by them.
    pub documents: DocumentCounts,
    /// Statements that an earlier attempt had executed.
    pub retried_statements: Counter,
    /// Documents that were sorted: `metrics.query.sort.totalKeysSorted`.
    pub keys_sorted: Counter,
    /// Their bytes.
    pub bytes_sorted: Counter,
    /// What operators wrote into files: `metrics.query`.
    pub spills: SpillCounters,
    /// Idle cursors that were closed because memory was used up.
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
    /// Counts what an operation that is over has sorted and written into files.
    pub fn count_memory(&self, op: &OpCtx) {
        if op.has_sort_stage.load(Ordering::Relaxed) {
            self.keys_sorted.add(op.keys_sorted.load(Ordering::Relaxed));
            self.bytes_sorted.add(op.bytes_sorted.load(Ordering::Relaxed));
        }
        self.spills.add_all(&op.spills);
    }

    /// The counts of the command at this place of the command table.
    pub fn command(&self, index: usize) -> &CommandCounts {
        // The table is tested to fit; a place beyond it shares the last counter.
        &self.commands[index.min(MAX_COMMANDS - 1)]
    }
}

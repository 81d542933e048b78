//! The load: connections, the network, logins, operations and their latencies, sessions,
//! transactions.

use mayfly_work::queued_operations;

use crate::counters::metrics::{LOGIN_MECHANISMS, LoginCounts, OpCounters, TLS_VERSIONS};
use crate::counters::top::Usage;
use crate::observe::Representation;
use crate::observe::figure::{Figure, Points, Unit, counter, expected, gauge};
use crate::observe::reading::Reading;

pub(super) const ROWS: &[Figure] = &[
    expected("asserts.regular", "Always zero: this server has no such assertions.").int().zero(),
    expected("asserts.warning", "Always zero: this server has no such assertions.").int().zero(),
    counter(
        "asserts.{kind}",
        "mayflydb_errors_total",
        "Failed commands, by cause: user for an error of the client, msg for an error of the server.",
    )
    .int()
    .each(|r, out| {
        out.add(&["msg"], r.service.metrics.asserts.msg.get());
        out.add(&["user"], r.service.metrics.asserts.user.get());
    }),
    expected("asserts.tripwire", "Always zero: this server has no such assertions.").int().zero(),
    expected("asserts.rollovers", "Always zero: counters have 64 bits.").int().zero(),
    gauge("connections.current", "mayflydb_connections", "Open connections.")
        .int()
        .read(|r| r.service.connections.current() as i64),
    gauge(
        "connections.available",
        "mayflydb_connections_available",
        "Connections that may still be opened.",
    )
    .int()
    .read(|r| r.service.connections.available() as i64),
    counter(
        "connections.totalCreated",
        "mayflydb_connections_opened_total",
        "Connections that were opened.",
    )
    .int()
    .read(|r| r.service.connections.total_created()),
    gauge(
        "connections.active",
        "mayflydb_operations_running",
        "Running operations, those of the server included.",
    )
    .int()
    .read(|r| r.running().len() as i64),
    expected("globalLock.totalTime", "Repeats uptimeMillis, in microseconds.")
        .read(|r| r.service.uptime_ms().saturating_mul(1000)),
    gauge(
        "globalLock.currentQueue.total",
        "mayflydb_operations_queued",
        "Long operations that wait for a scheduler slot.",
    )
    .int()
    .read(|_| queued_operations() as i64),
    expected(
        "globalLock.currentQueue.readers",
        "Always zero: the queue is the same for all operations.",
    )
    .int()
    .zero(),
    expected("globalLock.currentQueue.writers", "Repeats globalLock.currentQueue.total.")
        .int()
        .read(|_| queued_operations() as i64),
    expected("globalLock.activeClients.total", "Repeats connections.active.")
        .int()
        .read(|r| r.running().len() as i64),
    expected(
        "globalLock.activeClients.readers",
        "A part of connections.active: operations that may only read.",
    )
    .int()
    .read(|r| r.running_reads()),
    expected("globalLock.activeClients.writers", "The other part of connections.active.")
        .int()
        .read(|r| r.running().len() as i64 - r.running_reads()),
    counter(
        "locks.{level}.acquireCount.{mode}",
        "mayflydb_locks_acquired_total",
        "Locks that operations took, by level and mode (r: shared, w: for writing).",
    )
    .each(locks),
    gauge(
        "logicalSessionRecordCache.activeSessionsCount",
        "mayflydb_sessions",
        "Logical sessions that have not timed out.",
    )
    .int()
    .read(|r| r.service.sessions.count(r.service.clock.now_ms()) as i64),
    counter("network.bytesIn", "mayflydb_network_received_bytes_total", "Bytes that clients sent.")
        .bytes()
        .read(|r| r.service.metrics.network.bytes_in.get()),
    counter(
        "network.bytesOut",
        "mayflydb_network_sent_bytes_total",
        "Bytes that were sent to clients.",
    )
    .bytes()
    .read(|r| r.service.metrics.network.bytes_out.get()),
    counter("network.numRequests", "mayflydb_network_requests_total", "Requests of clients.")
        .read(|r| r.service.metrics.network.requests.get()),
    counter(
        "opLatencies.{kind}.latency",
        "mayflydb_operation_duration_seconds_total",
        "Time that operations took, by kind.",
    )
    .micros()
    .each(|r, out| latencies(r, out, |used| used.micros)),
    counter(
        "opLatencies.{kind}.ops",
        "mayflydb_operations_timed_total",
        "Operations in mayflydb_operation_duration_seconds_total, by kind.",
    )
    .each(|r, out| latencies(r, out, |used| used.count)),
    expected(
        "opLatencies.transactions.latency",
        "Always zero: statements count by their own kind.",
    )
    .zero(),
    expected("opLatencies.transactions.ops", "Always zero: statements count by their own kind.")
        .zero(),
    counter("opcounters.{kind}", "mayflydb_operations_total", "Operations of clients, by kind.")
        .each(|r, out| operations(&r.service.metrics.opcounters, out)),
    expected("opcountersRepl.{kind}", "Always zero: a set has one member.")
        .each(|_, out| operations(&OpCounters::default(), out)),
    counter(
        "security.authentication.mechanisms.{mechanism}.{step}.received",
        "mayflydb_logins_begun_total",
        "Logins that were begun, by mechanism and step.",
    )
    .each(|r, out| logins(r, out, |counts| counts.received.get())),
    counter(
        "security.authentication.mechanisms.{mechanism}.{step}.successful",
        "mayflydb_logins_total",
        "Logins that succeeded, by mechanism and step.",
    )
    .each(|r, out| logins(r, out, |counts| counts.successful.get())),
    counter(
        "transportSecurity.{version}",
        "mayflydb_connections_encrypted_total",
        "Encrypted connections that were opened, by version of TLS.",
    )
    .each(|r, out| {
        for (version, count) in TLS_VERSIONS.iter().zip(&r.service.metrics.network.tls) {
            out.add(&[version], count.get());
        }
    }),
    counter(
        "transactions.retriedCommandsCount",
        "mayflydb_commands_retried_total",
        "Retried commands that had already been executed.",
    )
    .read(|r| r.service.sessions.transactions.retried_commands.get()),
    counter(
        "transactions.retriedStatementsCount",
        "mayflydb_statements_retried_total",
        "Retried statements that had already been executed.",
    )
    .read(|r| r.service.metrics.retried_statements.get()),
    expected(
        "transactions.transactionsCollectionWriteCount",
        "Always zero: records of sessions are no collection.",
    )
    .zero(),
    gauge(
        "transactions.currentActive",
        "mayflydb_transactions_active",
        "Open transactions with a running statement.",
    )
    .read(|r| r.transactions().active),
    gauge(
        "transactions.currentInactive",
        "mayflydb_transactions_inactive",
        "Open transactions without a running statement.",
    )
    .read(|r| r.transactions().inactive),
    expected("transactions.currentOpen", "The sum of currentActive and currentInactive.")
        .read(|r| r.transactions().active + r.transactions().inactive),
    counter(
        "transactions.totalAborted",
        "mayflydb_transactions_aborted_total",
        "Transactions that were aborted.",
    )
    .read(|r| r.service.sessions.transactions.aborted.get()),
    counter(
        "transactions.totalCommitted",
        "mayflydb_transactions_committed_total",
        "Transactions that were committed.",
    )
    .read(|r| r.service.sessions.transactions.committed.get()),
    counter(
        "transactions.totalStarted",
        "mayflydb_transactions_started_total",
        "Transactions that were started.",
    )
    .read(|r| r.service.sessions.transactions.started.get()),
    expected("transactions.totalPrepared", "Always zero: nothing is prepared on one server.")
        .zero(),
    expected(
        "transactions.totalPreparedThenCommitted",
        "Always zero: nothing is prepared on one server.",
    )
    .zero(),
    expected(
        "transactions.totalPreparedThenAborted",
        "Always zero: nothing is prepared on one server.",
    )
    .zero(),
    expected("transactions.currentPrepared", "Always zero: nothing is prepared on one server.")
        .zero(),
    expected("uptime", "Repeats uptimeMillis, in whole seconds.")
        .unit(Unit::Millis)
        .shown(Representation::WholeSeconds)
        .read(|r| r.service.uptime_ms()),
    gauge("uptimeMillis", "mayflydb_uptime_seconds", "Time since the start of the server.")
        .unit(Unit::Millis)
        .read(|r| r.service.uptime_ms()),
    expected("uptimeEstimate", "Repeats uptimeMillis, in whole seconds.")
        .unit(Unit::Millis)
        .shown(Representation::Thousandth)
        .read(|r| r.service.uptime_ms()),
];

/// An operation on documents takes the lock of its collection in shared mode, and thereby the locks
/// above it; other commands take only the global lock. Wait times are not measured.
fn locks(reading: &Reading<'_>, out: &mut Points<'_>) {
    let top = &reading.service.top;
    let (reads, writes) = (top.reads.get().count, top.writes.get().count);
    let commands = top.commands.get().count;
    for (level, shared) in
        [("Global", reads + commands), ("Database", reads), ("Collection", reads)]
    {
        out.add(&[level, "r"], shared);
        out.add(&[level, "w"], writes);
    }
}

fn latencies(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(Usage) -> i64) {
    let top = &reading.service.top;
    let kinds = [("reads", &top.reads), ("writes", &top.writes), ("commands", &top.commands)];
    kinds.into_iter().for_each(|(kind, latency)| out.add(&[kind], of(latency.get())));
}

fn operations(counters: &OpCounters, out: &mut Points<'_>) {
    out.add(&["insert"], counters.insert.get());
    out.add(&["query"], counters.query.get());
    out.add(&["update"], counters.update.get());
    out.add(&["delete"], counters.delete.get());
    out.add(&["getmore"], counters.getmore.get());
    out.add(&["command"], counters.command.get());
}

fn logins(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&LoginCounts) -> i64) {
    for (mechanism, logins) in LOGIN_MECHANISMS.iter().zip(&reading.service.metrics.logins) {
        out.add(&[mechanism, "speculativeAuthenticate"], of(&logins.speculative));
        // Members of a cluster log in this way; there are none.
        out.add(&[mechanism, "clusterAuthenticate"], 0);
        out.add(&[mechanism, "authenticate"], of(&logins.asked));
    }
}

//! `serverStatus`: what monitoring reads. Sections that this server has nothing to say about are left out;
//! `<section>: 0` leaves one out, too.

use mayfly_storage::ReadView;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::Service;
use mayfly_service::metrics::{LOGIN_MECHANISMS, OpCounters, TLS_VERSIONS};
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::spill::Operator;
use mayfly_work::{memory as held_memory, queued_operations};

use super::build_info::VERSION;
use super::member::append_member;
use super::process;
use crate::context::{Command, CommandContext};
use crate::request::fields::whole_number;
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("serverStatus", "Shows the server's counters", run)
    .needs(Needs::Cluster(&[Action::ServerStatus]))
    .flags(RowFlags::LENIENT);

/// A section: its name and what writes its fields.
type Section = (&'static str, fn(&Service, &mut DocBuilder));

const SECTIONS: &[Section] = &[
    ("asserts", asserts),
    ("batchedDeletes", batched_deletes),
    ("catalogStats", catalog_stats),
    ("connections", connections),
    ("diskSpace", disk_space),
    ("extra_info", extra_info),
    ("globalLock", global_lock),
    ("locks", locks),
    ("logicalSessionRecordCache", sessions),
    ("network", network),
    ("oplogTruncation", oplog_truncation),
    ("opLatencies", op_latencies),
    ("opcounters", |service, doc| opcounters(&service.metrics.opcounters, doc)),
    ("opcountersRepl", |_, doc| opcounters(&OpCounters::default(), doc)),
    ("security", security),
    ("storageEngine", storage_engine),
    ("transportSecurity", transport_security),
    ("transactions", transactions),
    ("ttl", ttl),
    ("mem", memory),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    append(ctx, request, doc);
    Ok(())
}

/// The whole reply.
pub(super) fn append(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) {
    let service = ctx.service;
    let uptime_ms = service.uptime_ms();
    doc.append("host", service.host.as_str());
    doc.append("version", VERSION);
    doc.append("process", "mongod");
    doc.start_array("service").push("mongod").end();
    doc.append("pid", i64::from(std::process::id()));
    doc.append("uptime", (uptime_ms / 1000) as f64);
    doc.append("uptimeMillis", uptime_ms);
    doc.append("uptimeEstimate", uptime_ms / 1000);
    doc.append("localTime", RawValue::Date(service.clock.now_ms()));
    if let (Some(set), false) = (service.replica_set.get(), switched_off(request, "repl")) {
        let primary = service.is_primary();
        // mongostat knows the primary by the older name.
        doc.start_document("repl").append("ismaster", primary);
        doc.append("isWritablePrimary", primary);
        append_member(ctx, set, primary, doc);
        doc.append("rbid", 1);
        let blocked = service.store.user_writes_blocked().is_some();
        doc.append("userWriteBlockMode", if blocked { 2 } else { 1 }).end();
    }
    for (name, write) in SECTIONS {
        if !switched_off(request, name) {
            doc.start_document(name);
            write(service, doc);
            doc.end();
        }
    }
    if !switched_off(request, "metrics") {
        doc.start_document("metrics");
        metrics(ctx, doc);
        doc.end();
    }
}

fn switched_off(request: &Request<'_>, section: &str) -> bool {
    match request.body.get(section) {
        Some(RawValue::Bool(flag)) => !flag,
        Some(value) => whole_number(value) == Some(0),
        None => false,
    }
}

fn asserts(service: &Service, doc: &mut DocBuilder) {
    let asserts = &service.metrics.asserts;
    doc.append("regular", 0).append("warning", 0);
    doc.append("msg", small(asserts.msg.get())).append("user", small(asserts.user.get()));
    doc.append("tripwire", 0).append("rollovers", 0);
}

/// The reference shows these as int32.
fn small(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn get(counter: &AtomicI64) -> i64 {
    counter.load(Ordering::Relaxed)
}

/// Collections by what they are.
#[derive(Default)]
struct CatalogCounts {
    collections: i64,
    capped: i64,
    clustered: i64,
    time_series: i64,
    views: i64,
    internal_collections: i64,
}

fn batched_deletes(service: &Service, doc: &mut DocBuilder) {
    let stats = service.store.ttl_stats();
    doc.append("batches", get(&stats.batches));
    doc.append("docs", get(&stats.batch_docs));
    doc.append("stagedSizeBytes", get(&stats.staged_size_bytes));
    doc.append("timeInBatchMillis", get(&stats.time_in_batch_micros) / 1000);
    doc.append("refetchesDueToYield", get(&stats.refetches_due_to_yield));
}

fn catalog_stats(service: &Service, doc: &mut DocBuilder) {
    let mut counts = CatalogCounts::default();
    let mut databases = BTreeSet::new();
    for collection in service.store.collections(None) {
        let ns = collection.namespace();
        let internal = matches!(ns.db(), "admin" | "config" | "local");
        let system = ns.collection().starts_with("system.");
        let count = match internal || system {
            true => &mut counts.internal_collections,
            false => &mut counts.collections,
        };
        *count += 1;
        counts.capped += i64::from(collection.capped().is_some());
        counts.time_series += i64::from(collection.time_series().is_some());
        let clustered = collection.options().as_doc().get("clusteredIndex").is_some();
        counts.clustered += i64::from(clustered);
        databases.insert(ns.db().to_owned());
    }
    // A database whose views cannot be read has none to count.
    let views = |db: &String| {
        service.store.views(&ReadView::now(), db).map_or(0, |views| views.len() as i64)
    };
    counts.views = databases.iter().map(views).sum();
    doc.append("collections", small(counts.collections)).append("capped", small(counts.capped));
    doc.append("clustered", small(counts.clustered));
    doc.append("timeseries", small(counts.time_series)).append("views", small(counts.views));
    doc.append("internalCollections", small(counts.internal_collections));
    doc.append("internalViews", 0);
}

fn connections(service: &Service, doc: &mut DocBuilder) {
    let current = service.connections.current() as i64;
    doc.append("current", small(current));
    doc.append("available", small(service.connections.available() as i64));
    doc.append("totalCreated", service.connections.total_created());
    doc.append("active", small(service.ops.list().len() as i64));
}

fn extra_info(_: &Service, doc: &mut DocBuilder) {
    doc.append("note", "fields vary by platform").append("page_faults", process::page_faults());
}

fn global_lock(service: &Service, doc: &mut DocBuilder) {
    let counts = |doc: &mut DocBuilder, name: &str, total: i32, readers: i32| {
        doc.start_document(name);
        doc.append("total", total).append("readers", readers).append("writers", total - readers);
        doc.end();
    };
    let running = service.ops.list();
    let read = |op: &str| matches!(op, "query" | "getmore" | "command");
    let readers = running.iter().filter(|running| read(running.info().op)).count();
    doc.append("totalTime", service.uptime_ms().saturating_mul(1000));
    counts(doc, "currentQueue", small(queued_operations() as i64), 0);
    counts(doc, "activeClients", small(running.len() as i64), small(readers as i64));
}

/// How often the server's locks were taken. An operation on documents takes that of its collection, shared, and thereby those
/// above it; other commands pass only the global one. Nothing is said about waiting, which is not measured.
fn locks(service: &Service, doc: &mut DocBuilder) {
    let top = &service.top;
    let (reads, writes) = (top.reads.get().count, top.writes.get().count);
    let commands = top.commands.get().count;
    for (name, shared) in [("Global", reads + commands), ("Database", reads), ("Collection", reads)]
    {
        doc.start_document(name).start_document("acquireCount");
        doc.append("r", shared).append("w", writes).end().end();
    }
}

fn sessions(service: &Service, doc: &mut DocBuilder) {
    let active = service.sessions.count(service.clock.now_ms());
    doc.append("activeSessionsCount", small(active as i64));
}

fn network(service: &Service, doc: &mut DocBuilder) {
    let network = &service.metrics.network;
    doc.append("bytesIn", network.bytes_in.get());
    doc.append("bytesOut", network.bytes_out.get());
    doc.append("numRequests", network.requests.get());
}

/// Logins by mechanism, and the certificate of this server where it has one.
fn security(service: &Service, doc: &mut DocBuilder) {
    doc.start_document("authentication").start_document("mechanisms");
    for (name, logins) in LOGIN_MECHANISMS.iter().zip(&service.metrics.logins) {
        doc.start_document(name);
        let kinds = [
            ("speculativeAuthenticate", Some(&logins.speculative)),
            ("clusterAuthenticate", None),
            ("authenticate", Some(&logins.asked)),
        ];
        for (kind, counts) in kinds {
            doc.start_document(kind);
            doc.append("received", counts.map_or(0, |counts| counts.received.get()));
            doc.append("successful", counts.map_or(0, |counts| counts.successful.get())).end();
        }
        doc.end();
    }
    doc.end().end();
    let transport = service.transport.get();
    let Some(certificate) = transport.and_then(|transport| transport.certificate()) else { return };
    doc.append("SSLServerSubjectName", certificate.subject.as_str());
    doc.append("SSLServerHasCertificateAuthority", certificate.has_authority);
    let expires = RawValue::Date(certificate.expires_ms);
    doc.append("SSLServerCertificateExpirationDate", expires);
}

fn transport_security(service: &Service, doc: &mut DocBuilder) {
    for (version, count) in TLS_VERSIONS.iter().zip(&service.metrics.network.tls) {
        doc.append(version, count.get());
    }
}

fn op_latencies(service: &Service, doc: &mut DocBuilder) {
    let top = &service.top;
    for (name, latency) in
        [("reads", &top.reads), ("writes", &top.writes), ("commands", &top.commands)]
    {
        let used = latency.get();
        doc.start_document(name).append("latency", used.micros).append("ops", used.count).end();
    }
    doc.start_document("transactions").append("latency", 0i64).append("ops", 0i64).end();
}

fn opcounters(counters: &OpCounters, doc: &mut DocBuilder) {
    doc.append("insert", counters.insert.get()).append("query", counters.query.get());
    doc.append("update", counters.update.get()).append("delete", counters.delete.get());
    doc.append("getmore", counters.getmore.get()).append("command", counters.command.get());
}

fn storage_engine(service: &Service, doc: &mut DocBuilder) {
    let stats = service.store.engine_stats();
    doc.append("name", service.engine_name);
    doc.append("supportsCommittedReads", true);
    doc.append("persistent", service.engine_name != "memory");
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    doc.append("memoryBytes", bytes(stats.memory_bytes))
        .append("diskBytes", bytes(stats.disk_bytes));
    doc.append("writtenBytes", bytes(stats.written_bytes));
    doc.append("writeAheadLogBytes", bytes(stats.log_bytes));
    // Of the tables in diskBytes: what deletions left for change streams.
    doc.append("keptVersionBytes", bytes(service.store.kept_bytes().unwrap_or(0)));
}

fn transactions(service: &Service, doc: &mut DocBuilder) {
    let all = &service.sessions.transactions;
    let counts = all.counts();
    doc.append("retriedCommandsCount", all.retried_commands.get());
    doc.append("retriedStatementsCount", service.metrics.retried_statements.get());
    doc.append("transactionsCollectionWriteCount", 0i64);
    doc.append("currentActive", counts.active).append("currentInactive", counts.inactive);
    doc.append("currentOpen", counts.active + counts.inactive);
    doc.append("totalAborted", all.aborted.get()).append("totalCommitted", all.committed.get());
    doc.append("totalStarted", all.started.get());
    doc.append("totalPrepared", 0i64).append("totalPreparedThenCommitted", 0i64);
    doc.append("totalPreparedThenAborted", 0i64).append("currentPrepared", 0i64);
}

/// An extension: whether expiry is suspended because the clock cannot be trusted.
fn ttl(service: &Service, doc: &mut DocBuilder) {
    let suspension = service.store.expiry_suspension();
    doc.append("suspended", suspension.is_some());
    if let Some(suspension) = suspension {
        suspension.append_to(doc);
    }
    doc.append("suspendedPasses", get(&service.store.ttl_stats().suspended_passes));
}

/// An extension: how the disk of the data stands, and what gave way on it.
fn disk_space(service: &Service, doc: &mut DocBuilder) {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(room) = service.store.engine_stats().room {
        doc.append("totalBytes", count(room.total_bytes));
        doc.append("freeBytes", count(room.free_bytes));
        doc.append("reserveBytes", count(room.reserve_bytes));
        doc.append("nearlyFull", room.nearly_full);
        doc.append("timesNearlyFull", count(room.times_nearly_full));
    }
    let scratch = service.ops.scratch();
    doc.start_document("scratch").append("usedBytes", count(scratch.used()));
    doc.append("limitBytes", count(scratch.limit_bytes()));
    doc.append("operationLimitBytes", count(scratch.operation_limit_bytes()));
    doc.append("refused", count(scratch.refused())).end();
    doc.append("oplogCuts", count(service.store.oplog().cuts_for_room()));
}

fn oplog_truncation(service: &Service, doc: &mut DocBuilder) {
    let hours = service.store.oplog().limits().retention_ms as f64 / 3_600_000.0;
    doc.append("oplogMinRetentionHours", hours);
}

fn memory(service: &Service, doc: &mut DocBuilder) {
    let (resident, virt) = process::memory();
    let megabytes = |bytes: u64| small((bytes >> 20) as i64);
    doc.append("bits", 64);
    doc.append("resident", megabytes(resident)).append("virtual", megabytes(virt));
    doc.append("supported", true);
    let (requests, replies, closed) = service.buffers.counts();
    let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    doc.start_document("heap").append("limitBytes", bytes(held_memory::limit()));
    doc.append("heldBytes", bytes(held_memory::total()));
    doc.append("cursorBytes", bytes(service.cursors.kept_bytes()));
    doc.append("requestBytes", bytes(requests)).append("replyBytes", bytes(replies));
    doc.append("refusedOperations", i64::try_from(held_memory::refusals()).unwrap_or(i64::MAX));
    doc.append("closedCursors", service.metrics.closed_for_memory.get());
    doc.append("closedConnections", i64::try_from(closed).unwrap_or(i64::MAX)).end();
}

/// What operators wrote into files because memory did not suffice, and what was sorted.
fn query(service: &Service, doc: &mut DocBuilder) {
    let metrics = &service.metrics;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    doc.start_document("query");
    for operator in Operator::ALL {
        let spilled = metrics.spills.of(operator);
        doc.start_document(operator.name());
        doc.append("spills", number(spilled.spills));
        doc.append("spilledBytes", number(spilled.bytes));
        doc.append("spilledRecords", number(spilled.records));
        doc.append("spilledDataStorageSize", number(spilled.file_bytes));
        if operator == Operator::Sort {
            doc.append("spillToDisk", number(spilled.spills));
            doc.append("totalBytesSorted", metrics.bytes_sorted.get());
            doc.append("totalKeysSorted", metrics.keys_sorted.get());
        }
        doc.end();
    }
    doc.end();
}

fn metrics(ctx: &CommandContext<'_>, doc: &mut DocBuilder) {
    let service = ctx.service;
    doc.start_document("commands");
    for (index, command) in ctx.commands.commands().iter().enumerate() {
        let counts = service.metrics.command(index);
        if counts.total.get() > 0 {
            doc.start_document(command.row.name);
            doc.append("failed", counts.failed.get()).append("total", counts.total.get());
            doc.end();
        }
    }
    doc.end();
    let followed = service.store.oplog().entries_followed();
    doc.start_document("changeStreams")
        .append("logEntriesRead", i64::try_from(followed).unwrap_or(i64::MAX))
        .end();
    let (open, timed_out) = service.cursors.counts(service.clock.monotonic_micros());
    doc.start_document("cursor").append("timedOut", timed_out);
    doc.start_document("open").append("total", open).end();
    doc.end();
    let documents = &service.metrics.documents;
    doc.start_document("document");
    doc.append("deleted", documents.deleted.get()).append("inserted", documents.inserted.get());
    doc.append("returned", documents.returned.get()).append("updated", documents.updated.get());
    doc.end();
    doc.start_document("operation");
    doc.append("writeConflicts", get(&service.store.write_conflicts));
    doc.end();
    query(service, doc);
    let stats = service.store.ttl_stats();
    doc.start_document("ttl");
    doc.append("deletedDocuments", get(&stats.deleted_documents));
    doc.append("deletedKeys", get(&stats.deleted_keys));
    doc.append("passes", get(&stats.passes));
    doc.append("subPasses", get(&stats.sub_passes));
    doc.append("examinedDocuments", get(&stats.examined_documents));
    doc.append("examinedKeys", get(&stats.examined_keys));
    doc.append("durationMicros", get(&stats.duration_micros));
    doc.append("invalidTTLIndexSkips", get(&stats.invalid_ttl_index_skips));
    doc.end();
}

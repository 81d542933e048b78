//! The section `metrics`: commands, cursors, documents, queries, expiry.

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_storage::TtlStats;
use mayfly_work::spill::{Operator, Spilled};

use super::long;
use crate::counters::metrics::CommandCounts;
use crate::observe::Representation;
use crate::observe::figure::{Figure, Points, counter, expected, gauge};
use crate::observe::reading::Reading;

pub(super) const ROWS: &[Figure] = &[
    counter(
        "metrics.commands.{command}.failed",
        "mayflydb_commands_failed_total",
        "Commands that failed, by command, without commands that never ran.",
    )
    .without_history()
    .each(|r, out| commands(r, out, |counts| counts.failed.get())),
    counter(
        "metrics.commands.{command}.total",
        "mayflydb_commands_total",
        "Commands that ran, by command, without commands that never ran.",
    )
    .without_history()
    .each(|r, out| commands(r, out, |counts| counts.total.get())),
    counter(
        "metrics.changeStreams.logEntriesRead",
        "mayflydb_change_streams_log_entries_read_total",
        "Entries of the operation log that change streams read.",
    )
    .read(|r| long(r.service.store.oplog().entries_followed())),
    counter(
        "metrics.cursor.timedOut",
        "mayflydb_cursors_timed_out_total",
        "Idle cursors that were closed because they timed out.",
    )
    .read(|r| r.cursors().timed_out),
    counter(
        "metrics.cursor.moreThanOneBatch",
        "mayflydb_cursors_opened_total",
        "Cursors that stayed open after their first batch.",
    )
    .read(|r| r.cursors().opened),
    expected(
        "metrics.cursor.totalOpened",
        "Repeats moreThanOneBatch: a cursor that ends with its first batch is not counted.",
    )
    .read(|r| r.cursors().opened),
    gauge(
        "metrics.cursor.open.noTimeout",
        "mayflydb_cursors_open_without_timeout",
        "Open cursors that have no timeout of their own.",
    )
    .read(|r| r.cursors().no_timeout),
    gauge(
        "metrics.cursor.open.pinned",
        "mayflydb_cursors_in_use",
        "Open cursors of which a batch is being read.",
    )
    .read(|r| r.cursors().pinned),
    gauge("metrics.cursor.open.total", "mayflydb_cursors_open", "Open cursors.")
        .read(|r| r.cursors().open),
    counter(
        "metrics.document.{change}",
        "mayflydb_documents_total",
        "Documents that commands deleted, inserted, returned and updated.",
    )
    .each(|r, out| {
        let documents = &r.service.metrics.documents;
        out.add(&["deleted"], documents.deleted.get());
        out.add(&["inserted"], documents.inserted.get());
        out.add(&["returned"], documents.returned.get());
        out.add(&["updated"], documents.updated.get());
    }),
    counter(
        "metrics.getLastError.wtime.num",
        "mayflydb_write_concern_waits_total",
        "Commands that waited for the sync of the write-ahead log, as their write concern asks.",
    )
    .read(|r| r.service.metrics.write_concern_waits.count.get()),
    counter(
        "metrics.getLastError.wtime.totalMillis",
        "mayflydb_write_concern_wait_seconds_total",
        "Time that commands waited for the sync of the write-ahead log.",
    )
    .micros()
    .shown(Representation::Thousandth)
    .read(|r| r.service.metrics.write_concern_waits.micros.get()),
    expected("metrics.getLastError.wtimeouts", "Always zero: a sync of the log has no timeout.")
        .zero(),
    counter(
        "metrics.getLastError.default.unsatisfiable",
        "mayflydb_write_concern_defaults_unsatisfiable_total",
        "Writes with a default write concern that this member cannot meet.",
    )
    .read(|r| r.service.metrics.write_concern_waits.unsatisfiable_defaults.get()),
    expected(
        "metrics.getLastError.default.wtimeouts",
        "Always zero: a sync of the log has no timeout.",
    )
    .zero(),
    counter(
        "metrics.operation.scanAndOrder",
        "mayflydb_operations_sorted_total",
        "Operations that sorted documents because no index gave their order.",
    )
    .read(|r| r.service.metrics.scan_and_order.get()),
    counter(
        "metrics.operation.writeConflicts",
        "mayflydb_write_conflicts_total",
        "Writes that conflicted with another write of the same document.",
    )
    .read(|r| r.service.store.write_conflicts.load(Ordering::Relaxed)),
    counter(
        "metrics.queryExecutor.scanned",
        "mayflydb_index_entries_examined_total",
        "Index entries that operations of clients read.",
    )
    .read(|r| r.service.metrics.query_executor.scanned.get()),
    counter(
        "metrics.queryExecutor.scannedObjects",
        "mayflydb_documents_examined_total",
        "Documents that operations of clients read.",
    )
    .read(|r| r.service.metrics.query_executor.scanned_objects.get()),
    counter(
        "metrics.queryExecutor.collectionScans.total",
        "mayflydb_collection_scans_total",
        "Operations that read a whole collection.",
    )
    .read(|r| r.service.metrics.query_executor.collection_scans.get()),
    counter(
        "metrics.queryExecutor.collectionScans.nonTailable",
        "mayflydb_collection_scans_not_tailable_total",
        "Operations that read a whole collection without a tailable cursor.",
    )
    .read(|r| r.service.metrics.query_executor.non_tailable_scans.get()),
    counter(
        "metrics.query.{operator}.spills",
        "mayflydb_spills_total",
        "How often operators of queries spilled to files, by operator.",
    )
    .each(|r, out| spills(r, out, |spilled| spilled.spills)),
    counter(
        "metrics.query.{operator}.spilledBytes",
        "mayflydb_spilled_bytes_total",
        "Bytes that operators of queries spilled to files, by operator.",
    )
    .bytes()
    .each(|r, out| spills(r, out, |spilled| spilled.bytes)),
    counter(
        "metrics.query.{operator}.spilledRecords",
        "mayflydb_spilled_records_total",
        "Entries that operators of queries spilled to files, by operator.",
    )
    .each(|r, out| spills(r, out, |spilled| spilled.records)),
    counter(
        "metrics.query.{operator}.spilledDataStorageSize",
        "mayflydb_spill_files_bytes_total",
        "Bytes of the spill files of operators of queries, by operator.",
    )
    .bytes()
    .each(|r, out| spills(r, out, |spilled| spilled.file_bytes)),
    expected("metrics.query.sort.spillToDisk", "Repeats metrics.query.sort.spills.")
        .read(|r| long(r.service.metrics.spills.of(Operator::Sort).spills)),
    counter(
        "metrics.query.sort.totalBytesSorted",
        "mayflydb_sorted_bytes_total",
        "Bytes of the documents that were sorted.",
    )
    .bytes()
    .read(|r| r.service.metrics.bytes_sorted.get()),
    counter(
        "metrics.query.sort.totalKeysSorted",
        "mayflydb_sorted_documents_total",
        "Documents that were sorted.",
    )
    .read(|r| r.service.metrics.keys_sorted.get()),
    counter(
        "metrics.ttl.deletedDocuments",
        "mayflydb_ttl_deleted_documents_total",
        "Documents that expired and were deleted.",
    )
    .read(|r| expiry(r, |stats| &stats.deleted_documents)),
    counter(
        "metrics.ttl.deletedKeys",
        "mayflydb_ttl_deleted_keys_total",
        "Index entries of documents that expired and were deleted.",
    )
    .read(|r| expiry(r, |stats| &stats.deleted_keys)),
    counter("metrics.ttl.passes", "mayflydb_ttl_passes_total", "Passes of the TTL monitor.")
        .read(|r| expiry(r, |stats| &stats.passes)),
    counter(
        "metrics.ttl.subPasses",
        "mayflydb_ttl_sub_passes_total",
        "Sub-passes of the TTL monitor.",
    )
    .read(|r| expiry(r, |stats| &stats.sub_passes)),
    counter(
        "metrics.ttl.examinedDocuments",
        "mayflydb_ttl_examined_documents_total",
        "Documents that the TTL monitor read.",
    )
    .read(|r| expiry(r, |stats| &stats.examined_documents)),
    counter(
        "metrics.ttl.examinedKeys",
        "mayflydb_ttl_examined_keys_total",
        "Index entries that the TTL monitor read.",
    )
    .read(|r| expiry(r, |stats| &stats.examined_keys)),
    counter(
        "metrics.ttl.durationMicros",
        "mayflydb_ttl_duration_seconds_total",
        "Time of the TTL monitor's passes.",
    )
    .micros()
    .read(|r| expiry(r, |stats| &stats.duration_micros)),
    counter(
        "metrics.ttl.invalidTTLIndexSkips",
        "mayflydb_ttl_invalid_index_skips_total",
        "TTL indexes that a pass skipped because their definition is not valid.",
    )
    .read(|r| expiry(r, |stats| &stats.invalid_ttl_index_skips)),
    counter(
        "metrics.traces.{outcome}",
        "mayflydb_traces_total",
        "Traced commands, by what became of their traces: sent; overflowed, because the exporter's \
         queue was full; refused, because the collector did not take them.",
    )
    .each(|r, out| {
        let traces = &r.service.traces;
        for (outcome, count) in [
            ("sent", &traces.sent),
            ("overflowed", &traces.overflowed),
            ("refused", &traces.refused),
        ] {
            out.add(&[outcome], long(count.load(Ordering::Relaxed)));
        }
    }),
];

fn commands(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&CommandCounts) -> i64) {
    for (at, name) in reading.commands.iter().enumerate() {
        let counts = reading.service.metrics.command(at);
        if counts.total.get() > 0 {
            out.add(&[name], of(counts));
        }
    }
}

fn spills(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&Spilled) -> u64) {
    for operator in Operator::ALL {
        out.add(&[operator.name()], long(of(&reading.service.metrics.spills.of(operator))));
    }
}

fn expiry(reading: &Reading<'_>, of: fn(&TtlStats) -> &AtomicI64) -> i64 {
    of(reading.service.store.ttl_stats()).load(Ordering::Relaxed)
}

//! Storage: the catalog, the disk, the operation log, and whether expiry is suspended.

use std::sync::atomic::Ordering;

use mayfly_kv::RoomStats;
use mayfly_storage::TtlStats;

use super::long;
use crate::observe::Representation;
use crate::observe::figure::{Figure, Points, Unit, counter, expected, gauge};
use crate::observe::reading::Reading;

pub(super) const ROWS: &[Figure] = &[
    counter(
        "batchedDeletes.batches",
        "mayflydb_ttl_batches_total",
        "Batches in which expired documents were deleted.",
    )
    .read(|r| expiry(r).batches.load(Ordering::Relaxed)),
    counter(
        "batchedDeletes.docs",
        "mayflydb_ttl_batch_documents_total",
        "Expired documents that were deleted in batches.",
    )
    .read(|r| expiry(r).batch_docs.load(Ordering::Relaxed)),
    counter(
        "batchedDeletes.stagedSizeBytes",
        "mayflydb_ttl_batch_bytes_total",
        "Bytes of the expired documents that were deleted in batches.",
    )
    .bytes()
    .read(|r| expiry(r).staged_size_bytes.load(Ordering::Relaxed)),
    counter(
        "batchedDeletes.timeInBatchMillis",
        "mayflydb_ttl_batch_duration_seconds_total",
        "Time that batches of expired documents took.",
    )
    .micros()
    .shown(Representation::Thousandth)
    .read(|r| expiry(r).time_in_batch_micros.load(Ordering::Relaxed)),
    expected(
        "batchedDeletes.refetchesDueToYield",
        "Always zero: a batch reads and deletes its documents in one unit.",
    )
    .zero(),
    gauge("catalogStats.collections", "mayflydb_collections", "User collections.")
        .int()
        .read(|r| r.catalog().collections),
    gauge("catalogStats.capped", "mayflydb_collections_capped", "Capped collections.")
        .int()
        .read(|r| r.catalog().capped),
    gauge(
        "catalogStats.clustered",
        "mayflydb_collections_clustered",
        "Collections with a clustered index.",
    )
    .int()
    .read(|r| r.catalog().clustered),
    gauge("catalogStats.timeseries", "mayflydb_collections_timeseries", "Time series.")
        .int()
        .read(|r| r.catalog().time_series),
    gauge("catalogStats.views", "mayflydb_views", "Views.").int().read(|r| r.catalog().views),
    gauge(
        "catalogStats.internalCollections",
        "mayflydb_collections_internal",
        "Collections of the server: those of admin, config and local, and system collections.",
    )
    .int()
    .read(|r| r.catalog().internal_collections),
    expected("catalogStats.internalViews", "Always zero: there are none.").int().zero(),
    gauge(
        "diskSpace.totalBytes",
        "mayflydb_disk_size_bytes",
        "Size of the file system of the data.",
    )
    .bytes()
    .each(|r, out| of_disk(r, out, |room| long(room.total_bytes))),
    gauge(
        "diskSpace.freeBytes",
        "mayflydb_disk_free_bytes",
        "Free space of the file system of the data, without the reserve.",
    )
    .bytes()
    .each(|r, out| of_disk(r, out, |room| long(room.free_bytes))),
    gauge(
        "diskSpace.reserveBytes",
        "mayflydb_disk_reserve_bytes",
        "Disk space that is reserved for deletions and for the next start.",
    )
    .bytes()
    .each(|r, out| of_disk(r, out, |room| long(room.reserve_bytes))),
    gauge(
        "diskSpace.nearlyFull",
        "mayflydb_disk_nearly_full",
        "1 while the disk is nearly full and only deletions are accepted.",
    )
    .unit(Unit::Flag)
    .shown(Representation::Bool)
    .each(|r, out| of_disk(r, out, |room| i64::from(room.nearly_full))),
    counter(
        "diskSpace.timesNearlyFull",
        "mayflydb_disk_nearly_full_total",
        "How often the disk became nearly full.",
    )
    .each(|r, out| of_disk(r, out, |room| long(room.times_nearly_full))),
    gauge("diskSpace.scratch.usedBytes", "mayflydb_scratch_bytes", "Temporary files of queries.")
        .bytes()
        .read(|r| long(r.service.ops.scratch().used())),
    gauge(
        "diskSpace.scratch.limitBytes",
        "mayflydb_scratch_limit_bytes",
        "Most that temporary files of all operations may take.",
    )
    .bytes()
    .read(|r| long(r.service.ops.scratch().limit_bytes())),
    gauge(
        "diskSpace.scratch.operationLimitBytes",
        "mayflydb_scratch_operation_limit_bytes",
        "Most that temporary files of one operation may take.",
    )
    .bytes()
    .read(|r| long(r.service.ops.scratch().operation_limit_bytes())),
    counter(
        "diskSpace.scratch.refused",
        "mayflydb_scratch_refused_total",
        "Temporary files that were refused.",
    )
    .read(|r| long(r.service.ops.scratch().refused())),
    counter(
        "diskSpace.oplogCuts",
        "mayflydb_oplog_cuts_total",
        "How often the operation log was cut as a whole because the disk was nearly full.",
    )
    .read(|r| long(r.service.store.oplog().cuts_for_room())),
    gauge(
        "oplogTruncation.oplogMinRetentionHours",
        "mayflydb_oplog_min_retention_seconds",
        "Minimum retention of operation log entries, whatever the size of the log.",
    )
    .unit(Unit::Millis)
    .shown(Representation::Hours)
    .read(|r| r.service.store.oplog().limits().retention_ms),
    counter(
        "oplogTruncation.truncateCount",
        "mayflydb_oplog_truncations_total",
        "How often old entries of the operation log were removed.",
    )
    .read(|r| long(r.service.store.oplog().truncations().0)),
    counter(
        "oplogTruncation.totalTimeTruncatingMicros",
        "mayflydb_oplog_truncation_seconds_total",
        "Time of the removals of old entries of the operation log.",
    )
    .micros()
    .read(|r| long(r.service.store.oplog().truncations().1)),
    gauge(
        "ttl.suspended",
        "mayflydb_ttl_suspended",
        "1 while expiry is suspended because the clock is not trusted.",
    )
    .unit(Unit::Flag)
    .shown(Representation::Bool)
    .read(|r| i64::from(r.service.store.expiry_suspension().is_some())),
    counter(
        "ttl.suspendedPasses",
        "mayflydb_ttl_suspended_passes_total",
        "Passes of the TTL monitor that deleted nothing because expiry was suspended.",
    )
    .read(|r| expiry(r).suspended_passes.load(Ordering::Relaxed)),
];

fn expiry<'r>(reading: &'r Reading<'_>) -> &'r TtlStats {
    reading.service.store.ttl_stats()
}

/// Adds a figure that engines without a disk do not have.
fn of_disk(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&RoomStats) -> i64) {
    if let Some(room) = &reading.engine().room {
        out.add(&[], of(room));
    }
}

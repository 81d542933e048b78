//! The process and its use of memory.

use mayfly_work::memory as held;

use super::{in_memory, long};
use crate::observe::Representation;
use crate::observe::figure::{Figure, counter, gauge};
use crate::process::usage;

pub(super) const ROWS: &[Figure] = &[
    counter(
        "extra_info.page_faults",
        "mayflydb_process_page_faults_total",
        "Page faults of the process that read from the disk.",
    )
    .read(|_| usage::page_faults()),
    gauge("mem.resident", "mayflydb_process_resident_memory_bytes", "Memory of the process.")
        .bytes()
        .shown(Representation::Mebibytes)
        .read(|r| long(r.memory().resident)),
    gauge("mem.virtual", "mayflydb_process_virtual_memory_bytes", "Address space of the process.")
        .bytes()
        .shown(Representation::Mebibytes)
        .read(|r| long(r.memory().mapped)),
    gauge(
        "mem.heap.limitBytes",
        "mayflydb_memory_limit_bytes",
        "Most memory that all operations together may hold.",
    )
    .bytes()
    .read(|_| in_memory(held::limit())),
    gauge(
        "mem.heap.heldBytes",
        "mayflydb_memory_held_bytes",
        "Memory that is allocated, without that of the storage engine.",
    )
    .bytes()
    .read(|_| in_memory(held::total())),
    gauge("mem.heap.cursorBytes", "mayflydb_memory_cursor_bytes", "Memory that idle cursors hold.")
        .bytes()
        .read(|r| in_memory(r.service.cursors.kept_bytes())),
    gauge(
        "mem.heap.requestBytes",
        "mayflydb_memory_request_bytes",
        "Memory of large requests that have not arrived completely.",
    )
    .bytes()
    .read(|r| in_memory(r.messages().0)),
    gauge(
        "mem.heap.replyBytes",
        "mayflydb_memory_reply_bytes",
        "Memory of large replies that clients have not received.",
    )
    .bytes()
    .read(|r| in_memory(r.messages().1)),
    counter(
        "mem.heap.refusedOperations",
        "mayflydb_memory_refused_operations_total",
        "Operations that failed because the process had reached its memory limit.",
    )
    .read(|_| long(held::refusals())),
    counter(
        "mem.heap.closedCursors",
        "mayflydb_memory_closed_cursors_total",
        "Idle cursors that were closed because memory was short.",
    )
    .read(|r| r.service.metrics.closed_for_memory.get()),
    counter(
        "mem.heap.closedConnections",
        "mayflydb_memory_closed_connections_total",
        "Connections that were closed because others waited for memory that their slow requests held.",
    )
    .read(|r| long(r.messages().2)),
];

//! Search indexes.

use super::long;
use crate::observe::figure::{Figure, counter, gauge};
use crate::observe::reading::Reading;
use crate::search::SearchIndexes;

fn counters<'r>(reading: &'r Reading<'_>) -> &'r SearchIndexes {
    &reading.service.search
}

pub(super) const ROWS: &[Figure] = &[
    gauge("search.indexes", "mayflydb_search_indexes", "Search indexes.")
        .read(|r| long(r.search().indexes)),
    gauge(
        "search.building",
        "mayflydb_search_indexes_building",
        "Search indexes whose newest definition is not ready.",
    )
    .read(|r| long(r.search().building)),
    gauge("search.documents", "mayflydb_search_documents", "Documents in search indexes.")
        .read(|r| long(r.search().documents)),
    gauge("search.fileBytes", "mayflydb_search_file_bytes", "Bytes of files of search indexes.")
        .bytes()
        .read(|r| long(r.search().file_bytes)),
    gauge(
        "search.memoryBytes",
        "mayflydb_search_memory_bytes",
        "Bytes of documents in search indexes that are only in memory.",
    )
    .bytes()
    .read(|r| long(r.search().memory_bytes)),
    counter("search.searches", "mayflydb_searches_total", "Searches that were started.")
        .read(|r| counters(r).searches.get()),
    counter(
        "search.late",
        "mayflydb_searches_late_total",
        "Searches that went on without the newest writes after searchWaitMillis.",
    )
    .read(|r| counters(r).late.get()),
    counter(
        "search.rebuilds",
        "mayflydb_search_rebuilds_total",
        "Times that a search index was built again because its files could not be used.",
    )
    .read(|r| counters(r).rebuilds.get()),
];

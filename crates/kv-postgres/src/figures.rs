//! The engine's statistics: the sizes of its tables, how many blocks PostgreSQL found in its cache,
//! and what takes over when a server or the database fails.
//!
//! One statement reads them. The write-ahead log, checkpoints and the memory of PostgreSQL belong
//! to all of its databases and are not part of the store.

use mayfly_kv::{EngineStats, Files, HitStats, Keyspace, KeyspaceStats, StandbyStats};

use crate::owner::{WAITING_LOCK, holders};

/// The statement that reads the figures of the store in a schema: the bytes of each keyspace, the
/// bytes of all tables, the numbers of blocks that were and were not in the cache, and the columns
/// of [`standbys`].
pub(crate) fn select(schema: &str) -> String {
    let bytes = |filter: String| {
        format!("coalesce(sum(pg_total_relation_size(s.relid)){filter}, 0)::bigint")
    };
    let of_keyspace =
        |keyspace: Keyspace| bytes(format!(" filter (where s.relname = '{}')", keyspace.name()));
    let blocks = |which: &str| {
        let kinds = ["heap", "idx", "toast", "tidx"];
        let sum = kinds.map(|kind| format!("coalesce({kind}_blks_{which}, 0)")).join(" + ");
        format!("coalesce(sum({sum}), 0)::bigint")
    };
    format!(
        "select {}, {}, {}, {}, {} from pg_statio_all_tables s where s.schemaname = '{schema}'",
        Keyspace::ALL.map(of_keyspace).join(", "),
        bytes(String::new()),
        blocks("hit"),
        blocks("read"),
        standbys(schema),
    )
}

/// Three columns: servers that wait for the store, standbys of the database, and 1 if commits wait
/// for one of those.
pub(crate) fn standbys(schema: &str) -> String {
    format!(
        "(select count(*) {}), (select count(*) from pg_stat_replication), \
         (current_setting('synchronous_standby_names') <> '')::int",
        holders(schema, WAITING_LOCK)
    )
}

/// The values of those columns.
pub(crate) fn standby_stats([servers, databases, synchronous]: [u64; 3]) -> StandbyStats {
    StandbyStats { servers, databases, are_synchronous: synchronous == 1 }
}

/// The figures in the row of the statement. Columns that are missing count as zero.
pub(crate) fn stats(row: &[Option<String>]) -> EngineStats {
    let mut numbers = row
        .iter()
        .map(|column| column.as_deref().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let keyspaces = Keyspace::ALL.map(|_| {
        let files = Files { count: 0, bytes: next() };
        KeyspaceStats { files, memtable_bytes: 0 }
    });
    EngineStats {
        disk_bytes: next(),
        keyspaces: (!row.is_empty()).then_some(keyspaces),
        blocks: (!row.is_empty()).then(|| HitStats { hits: next(), misses: next() }),
        standbys: (!row.is_empty()).then(|| standby_stats([next(), next(), next()])),
        ..EngineStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_is_read() {
        let row: Vec<_> = (1..=12).map(|number| Some(number.to_string())).collect();
        let stats = stats(&row);
        assert_eq!(stats.keyspaces.unwrap().map(|it| it.files.bytes), [1, 2, 3, 4, 5, 6]);
        assert_eq!((stats.disk_bytes, stats.blocks), (7, Some(HitStats { hits: 8, misses: 9 })));
        let standbys = StandbyStats { servers: 10, databases: 11, are_synchronous: false };
        assert_eq!(stats.standbys, Some(standbys));
        assert!(super::stats(&[]).keyspaces.is_none() && super::stats(&[]).standbys.is_none());
    }
}

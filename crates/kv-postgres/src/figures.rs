//! The engine's statistics: the sizes of its tables, and how many blocks PostgreSQL found in its
//! cache.
//!
//! One statement reads them. The write-ahead log, checkpoints and the memory of PostgreSQL belong
//! to all of its databases and are not part of the store.

use mayfly_kv::{EngineStats, Files, HitStats, Keyspace, KeyspaceStats};

/// The statement that reads the figures of the store in a schema: the bytes of each keyspace, the
/// bytes of all tables, and the numbers of blocks that were and were not in the cache.
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
        "select {}, {}, {}, {} from pg_statio_all_tables s where s.schemaname = '{schema}'",
        Keyspace::ALL.map(of_keyspace).join(", "),
        bytes(String::new()),
        blocks("hit"),
        blocks("read"),
    )
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
        ..EngineStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_is_read() {
        let row: Vec<_> = (1..=9).map(|number| Some(number.to_string())).collect();
        let stats = stats(&row);
        assert_eq!(stats.keyspaces.unwrap().map(|it| it.files.bytes), [1, 2, 3, 4, 5, 6]);
        assert_eq!((stats.disk_bytes, stats.blocks), (7, Some(HitStats { hits: 8, misses: 9 })));
        assert!(super::stats(&[]).keyspaces.is_none());
    }
}

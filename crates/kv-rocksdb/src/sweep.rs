//! Clearing a range that is no longer read.
//!
//! A short range is deleted key by key, which leaves ordinary tombstones that trigger compaction. A
//! long one is deleted in constant time: first one range tombstone over all of it, then the whole
//! files inside it are dropped. In this order a dropped file cannot uncover older versions of its
//! keys.

use mayfly_kv::{KeyRange, Keyspace, KvResult, ScanEnd, ScanLimit, Txn};
use rocksdb::WriteBatch;
use std::ops::ControlFlow;

use crate::engine::MANY_DELETES;
use crate::health::read_failed;
use crate::store::Store;

/// Up to this many keys are deleted one by one.
const SHORT_RANGE_KEYS: usize = 1_000;

/// Empties the range; `reader` reads the current state.
pub(crate) fn sweep(
    store: &Store,
    reader: &dyn Txn,
    keyspace: Keyspace,
    range: &KeyRange,
    max: usize,
) -> KvResult<()> {
    store.health.check()?;
    let family = store.family(keyspace);
    let mut batch = WriteBatch::default();
    // Only whether the oplog has any entry matters here: its entries may be large, so it is trimmed
    // by whole files. Reading a thousand of them through the cache would evict hundreds of
    // megabytes of it.
    let most = if keyspace == Keyspace::Oplog { 1 } else { SHORT_RANGE_KEYS };
    let limit = ScanLimit::rows(max.clamp(1, most));
    let end = reader.scan_retired(keyspace, range, limit, &mut |key, _| {
        batch.delete_cf(&family, key);
        ControlFlow::Continue(())
    })?;
    // Few entries of the oplog may be large, and so may few kept versions: both are trimmed by
    // whole files.
    let by_files = matches!(keyspace, Keyspace::Oplog | Keyspace::Versions);
    let short = end == ScanEnd::Exhausted && (batch.is_empty() || !by_files);
    if short {
        return if batch.is_empty() { Ok(()) } else { write(store, batch) };
    }

    let mut batch = WriteBatch::default();
    batch.delete_range_cf(&family, &range.start, &range.end);
    write(store, batch)?;
    // Scans backward from a neighbouring range would read the deleted entries of the memtable.
    store.count_deleted(keyspace, MANY_DELETES);
    let last = just_before(&range.end);
    if range.start < last {
        store
            .db
            .delete_file_in_range_cf(&family, &range.start, &last)
            .map_err(|error| read_failed(&error))?;
    }
    Ok(())
}

fn write(store: &Store, batch: WriteBatch) -> KvResult<()> {
    store
        .db
        .write_opt(batch, &store.write_options)
        .map_err(|error| store.health.write_failed(&error))?;
    store.wrote();
    Ok(())
}

/// A key below this one, with practically none in between. RocksDB drops files whose last key
/// equals the given end, but the end of our ranges is exclusive.
fn just_before(end: &[u8]) -> Vec<u8> {
    let mut before = end.to_vec();
    match before.pop() {
        None | Some(0) => {}
        Some(last) => {
            before.push(last - 1);
            before.extend_from_slice(&[0xFF; 32]);
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::just_before;

    #[test]
    fn the_key_before_is_smaller() {
        for end in [&b"a"[..], b"a\0", b"\x01", b"a\xFF", b"\0"] {
            assert!(just_before(end).as_slice() < end);
        }
    }
}

//! Clearing a range that nobody reads any more.
//!
//! A short range goes key by key, which leaves ordinary tombstones that compaction knows how to find. A long one goes
//! in constant time: first one range tombstone over all of it, then whole files inside it are dropped. In this order
//! a file that goes cannot uncover older versions of its keys.

use mayfly_kv::{Direction, KeyRange, Keyspace, KvResult, ScanEnd, ScanLimit, Txn};
use rocksdb::WriteBatch;
use std::ops::ControlFlow;

use crate::health::read_failed;
use crate::store::Store;

/// Up to this many keys are deleted one by one.
const SHORT_RANGE_KEYS: usize = 1_000;

/// Empties the range; `reader` sees the present state.
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
    // Few entries of the oplog may be much, so that it is trimmed by whole files: only whether there is any matters. A thousand
    // of them, read through the cache, would put out hundreds of megabytes of it.
    let most = if keyspace == Keyspace::Oplog { 1 } else { SHORT_RANGE_KEYS };
    let limit = ScanLimit::rows(max.clamp(1, most));
    let end = reader.scan(keyspace, range, Direction::Forward, limit, &mut |key, _| {
        batch.delete_cf(&family, key);
        ControlFlow::Continue(())
    })?;
    // Few entries of the oplog may be much, and few kept versions: both are trimmed by whole files.
    let by_files = matches!(keyspace, Keyspace::Oplog | Keyspace::Kept);
    let short = end == ScanEnd::Exhausted && (batch.is_empty() || !by_files);
    if short {
        return if batch.is_empty() { Ok(()) } else { write(store, batch) };
    }

    let mut batch = WriteBatch::default();
    batch.delete_range_cf(&family, &range.start, &range.end);
    write(store, batch)?;
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

/// A key below this one, and hardly anything between. RocksDB drops files whose last key equals the given end, but
/// the end of our ranges does not belong to them.
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

//! Files of a backup that contain entries: runs of [`mayfly_storage::EntriesReader`], compressed.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Engine, HeldSnapshot};
use mayfly_repository::{AddedFile, Backup, FileEntry, FilePath, Transfer};
use mayfly_storage::{EntriesReader, EntriesWriter, MAX_RUN_BYTES};

/// The level of zstd.
const LEVEL: i32 = 3;

/// A run that was read.
struct PackedRun {
    path: FilePath,
    /// The bytes of its entries.
    bytes: u64,
    packed: Vec<u8>,
}

/// Reads runs and compresses them.
struct Packer {
    reader: EntriesReader,
    number: u64,
}

impl Packer {
    fn next(&mut self) -> Result<Option<PackedRun>> {
        let Some((keyspace, run)) = self.reader.next_run()? else { return Ok(None) };
        self.number += 1;
        let path = format!("{}-{:08}.run.zst", keyspace.name(), self.number).parse()?;
        let packed = zstd::bulk::compress(&run, LEVEL).map_err(|error| failed(&error))?;
        Ok(Some(PackedRun { path, bytes: run.len() as u64, packed }))
    }
}

/// Adds all entries of a snapshot to a backup. `total` is the expected number of their bytes.
/// Returns the number of bytes that were sent.
///
/// # Errors
/// Errors of the engine and of the repository.
pub(super) async fn add(
    snapshot: Arc<dyn HeldSnapshot>,
    backup: &mut Backup,
    total: u64,
    transfer: &Transfer,
) -> Result<u64> {
    let mut packer = Packer { reader: EntriesReader::new(snapshot), number: 0 };
    let (mut read, mut packed, mut sent) = (0u64, 0u64, 0);
    loop {
        // An engine across a network waits for its replies.
        let next = tokio::task::spawn_blocking(move || (packer.next(), packer)).await;
        let (run, rest) = next.map_err(|error| failed(&error))?;
        packer = rest;
        let Some(run) = run? else { return Ok(sent) };
        let size = run.packed.len() as u64;
        (read, packed) = (read + run.bytes, packed + size);
        // The rest is probably as compressible.
        let rest = total.saturating_sub(read) as f64 * packed as f64 / read as f64;
        transfer.set_total(packed + rest as u64);
        if backup.add_content(run.path, run.packed, transfer).await? == AddedFile::Sent {
            sent += size;
        }
    }
}

/// The run in a file of a backup.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(super) fn unpack(file: &FileEntry, content: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::decompress(content, MAX_RUN_BYTES).map_err(|error| {
        let text = format!("the file '{}' of the backup is damaged: {error}", file.path);
        Error::new(ErrorCode::DataCorruptionDetected, text)
    })
}

/// Copies all entries of a store into an engine that contains nothing, or an unfinished restore.
/// [`EntriesWriter::release`] is still to be called.
///
/// # Errors
/// Errors of both engines.
pub(super) fn copy(from: &dyn Engine, to: Arc<dyn Engine>, report: &dyn Fn(u64)) -> Result<u64> {
    let mut reader = EntriesReader::of_engine(from)?;
    let mut writer = EntriesWriter::begin(to)?;
    while let Some((_, run)) = reader.next_run()? {
        writer.write_run(&run)?;
        report(run.len() as u64);
    }
    writer.sync()
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("cannot read a run of entries: {error}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use mayfly_base::{ManualClock, Namespace};
    use mayfly_kv::MemoryEngine;
    use mayfly_kv_rocksdb::OlderFormat;
    use mayfly_storage::{CreateIndexesOptions, ReadView, Store};
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{DateTime, Document, doc};
    use mayfly_work::OpCtx;

    use super::*;
    use crate::offline;

    const NOW_MS: i64 = 1_800_000_000_000;

    fn open(engine: Arc<dyn Engine>) -> (Arc<Store>, Arc<OpCtx>) {
        let clock = Arc::new(ManualClock::at_ms(NOW_MS));
        (offline::open_store(engine, clock.clone()).unwrap(), OpCtx::detached(clock))
    }

    fn rocksdb(folder: &Path) -> Arc<dyn Engine> {
        offline::open_engine(folder, OlderFormat::Refuse).unwrap()
    }

    /// Documents with an index, of which a third has expired.
    fn fill(store: &Store, op: &OpCtx) {
        let (view, ns) = (ReadView::now(), Namespace::parse("shop.carts").unwrap());
        let index = doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 };
        let index = DocBuf::from_bson(&index);
        let options = CreateIndexesOptions::default();
        store.create_indexes((op, &view), &ns, &[index.as_doc()], options).unwrap();
        let (collection, _) = store.get_or_create(&view, &ns).unwrap();
        let cart = |n: i64| -> Document {
            let at = DateTime::from_millis(NOW_MS + if n % 3 == 0 { -1000 } else { 3_600_000 });
            doc! { "_id": n, "at": at, "text": format!("cart {n} ").repeat(20) }
        };
        for first in (0..9000).step_by(1000) {
            let carts: Vec<DocBuf> =
                (first..first + 1000).map(|n| DocBuf::from_bson(&cart(n))).collect();
            let insert = |unit: &mut mayfly_storage::WriteUnit<'_>| {
                carts.iter().try_for_each(|cart| unit.insert(cart.as_doc()))
            };
            store.write(op, &view, &collection, insert).unwrap();
        }
        store.ensure_identity().unwrap();
        store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    }

    /// Everything that an engine has.
    fn runs(engine: &dyn Engine) -> Vec<Vec<u8>> {
        let mut reader = EntriesReader::of_engine(engine).unwrap();
        std::iter::from_fn(|| reader.next_run().unwrap()).map(|(_, run)| run).collect()
    }

    #[test]
    fn entries_go_from_rocksdb_to_memory_and_back() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (store, op) = open(rocksdb(folders[0].path()));
        fill(&store, &op);
        let found = store.check(&op, &mut |_| ()).unwrap();
        assert!(found.documents == 6000 && found.faults.is_empty(), "{found:?}");
        store.close().unwrap();
        let first = rocksdb(folders[0].path());
        let all = runs(&*first);
        let memory: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let entries = copy(&*first, memory.clone(), &|_| ()).unwrap();
        EntriesWriter::release(&*memory).unwrap();
        assert!(runs(&*memory) == all && entries > 18_000);
        let second = rocksdb(folders[1].path());
        assert_eq!(copy(&*memory, second.clone(), &|_| ()).unwrap(), entries);
        EntriesWriter::release(&*second).unwrap();
        assert!(runs(&*second) == all);
        second.close().unwrap();
        drop(second);
        let (store, op) = open(rocksdb(folders[1].path()));
        let again = store.check(&op, &mut |_| ()).unwrap();
        assert!(again.faults.is_empty(), "{again:?}");
        assert_eq!((again.documents, again.log_entries), (found.documents, found.log_entries));
        store.close().unwrap();
    }
}

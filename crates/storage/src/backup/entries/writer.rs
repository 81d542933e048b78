//! Writing runs of entries into an empty engine.
//!
//! | step | an interruption after it leaves |
//! |---|---|
//! | 1. the catalog gets a mark | an engine that no store opens, and that another restore clears |
//! | 2. all that an unfinished restore has left is removed | the same |
//! | 3. the entries are written and synced | the same |
//! | 4. the mark is removed | a store |

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, RETIRED, ScanLimit, SweepEnd, Txn, TxnOptions,
    is_retired,
};

use super::{Entries, all_keys, damaged, open_run};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// Bytes that are written in one transaction, where an engine has no bulk loading.
const TXN_BYTES: usize = 4 << 20;
/// Entries that are written in one transaction.
const TXN_ENTRIES: usize = 10_000;
/// Transactions that are written at a time across a network.
const WRITERS: usize = 4;
/// Entries that are removed at a time.
const SWEEP_KEYS: usize = 10_000;

/// Writes the runs of a backup into an engine.
pub struct EntriesWriter {
    engine: Arc<dyn Engine>,
    entries: u64,
}

impl EntriesWriter {
    /// Begins to write into an engine that contains nothing, or an unfinished restore, which is
    /// removed.
    ///
    /// # Errors
    /// 20 IllegalOperation for an engine that contains a store; errors of the engine.
    pub fn begin(engine: Arc<dyn Engine>) -> Result<EntriesWriter> {
        EntriesWriter::check(&*engine)?;
        EntriesWriter::replace(engine)
    }

    /// Begins to write into an engine in place of all that it contains.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn replace(engine: Arc<dyn Engine>) -> Result<EntriesWriter> {
        EntriesWriter::replace_marked(engine, &[])
    }

    /// As [`EntriesWriter::replace`], with this value of the mark.
    pub(in crate::backup) fn replace_marked(
        engine: Arc<dyn Engine>,
        value: &[u8],
    ) -> Result<EntriesWriter> {
        let mark = catalog_key::UNFINISHED;
        in_txn(&*engine, |txn| txn.put(Keyspace::Catalog, mark, value, Guard::Checked))?;
        engine.sync().map_err(from_kv)?;
        let before_mark = KeyRange { end: mark.to_vec(), ..all_keys() };
        for keyspace in Keyspace::ALL {
            match keyspace {
                Keyspace::Catalog => {
                    sweep(&*engine, keyspace, &before_mark)?;
                    sweep(&*engine, keyspace, &all_keys().after(mark, Direction::Forward))?;
                }
                _ => sweep(&*engine, keyspace, &all_keys())?,
            }
        }
        engine.sync().map_err(from_kv)?;
        Ok(EntriesWriter { engine, entries: 0 })
    }

    /// Checks that [`EntriesWriter::begin`] is possible.
    ///
    /// # Errors
    /// As there.
    pub fn check(engine: &dyn Engine) -> Result<()> {
        match is_unfinished_restore(engine)? || is_empty(engine)? {
            true => Ok(()),
            false => {
                let text = "it is not empty: it contains a store";
                Err(Error::new(ErrorCode::IllegalOperation, text))
            }
        }
    }

    /// Writes a run.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for bytes that are no run; errors of the engine, also for an
    /// entry that is larger than it takes.
    pub fn write_run(&mut self, run: &[u8]) -> Result<()> {
        let (keyspace, entries) = open_run(run)?;
        let mut count = 0;
        // The catalog has the mark of the restore.
        let ingest = match keyspace {
            Keyspace::Catalog => None,
            _ => self.engine.begin_ingest(keyspace).map_err(from_kv)?,
        };
        if let Some(mut ingest) = ingest {
            for entry in entries {
                let (key, value) = entry?;
                ingest.add(key, value).map_err(from_kv)?;
                count += 1;
            }
            ingest.finish().map_err(from_kv)?;
        } else {
            count = write_batches(&*self.engine, keyspace, entries)?;
        }
        self.entries += count;
        Ok(())
    }

    /// Makes the entries durable, but not yet a store. Returns their number.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected if there were none; errors of the engine.
    pub fn sync(&self) -> Result<u64> {
        if self.entries == 0 {
            return Err(damaged());
        }
        self.engine.sync().map_err(from_kv)?;
        Ok(self.entries)
    }

    /// Makes the entries durable, and a store of them. Returns their number.
    ///
    /// # Errors
    /// As [`EntriesWriter::sync`].
    pub fn finish(self) -> Result<u64> {
        let entries = self.sync()?;
        EntriesWriter::release(&*self.engine)?;
        Ok(entries)
    }

    /// Makes a store of entries that were written and [synced](EntriesWriter::sync), if that has
    /// not been done.
    ///
    /// # Errors
    /// 20 IllegalOperation for an engine that contains nothing; errors of the engine.
    pub fn release(engine: &dyn Engine) -> Result<()> {
        if is_empty(engine)? {
            return Err(Error::new(ErrorCode::IllegalOperation, "it is empty"));
        }
        in_txn(engine, |txn| {
            txn.delete(Keyspace::Catalog, catalog_key::UNFINISHED, Guard::Checked)
        })?;
        engine.sync().map_err(from_kv)
    }
}

/// Writes entries in transactions; returns their number. Across a network several transactions are
/// written at a time. After an error some of the entries may have been written.
///
/// # Errors
/// 301 DataCorruptionDetected for bytes that are no entries; errors of the engine.
pub(in crate::backup) fn write_batches(
    engine: &dyn Engine,
    keyspace: Keyspace,
    entries: Entries<'_>,
) -> Result<u64> {
    let mut batches: Vec<Vec<(&[u8], &[u8])>> = Vec::new();
    let (mut bytes, mut count) = (TXN_BYTES, 0);
    for entry in entries {
        let (key, value) = entry?;
        if bytes >= TXN_BYTES || batches.last().is_none_or(|batch| batch.len() >= TXN_ENTRIES) {
            batches.push(Vec::new());
            bytes = 0;
        }
        if let Some(batch) = batches.last_mut() {
            batch.push((key, value));
        }
        bytes += key.len() + value.len();
        count += 1;
    }
    let writers = if engine.caps().is_remote { WRITERS.min(batches.len()) } else { 1 };
    let next = AtomicUsize::new(0);
    let write = || {
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            write_batch(engine, keyspace, batch)?;
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let others: Vec<_> = (1..writers).map(|_| threads.spawn(write)).collect();
        let mut result = write();
        for other in others {
            let panicked = |_| Err(Error::internal("a thread that writes entries has panicked"));
            result = result.and(other.join().unwrap_or_else(panicked));
        }
        result
    })?;
    Ok(count)
}

/// Writes entries, and then retires those that are retired: an engine retires only what is stored.
fn write_batch(engine: &dyn Engine, keyspace: Keyspace, batch: &[(&[u8], &[u8])]) -> Result<()> {
    let mut retired: Vec<&[u8]> = Vec::new();
    in_txn(engine, |txn| {
        for (key, value) in batch {
            if !is_retired(keyspace, value) {
                txn.put(keyspace, key, value, Guard::Derived)?;
                continue;
            }
            let mut live = value.to_vec();
            live.iter_mut().take(1).for_each(|first| *first &= !RETIRED);
            txn.put(keyspace, key, &live, Guard::Derived)?;
            retired.push(key);
        }
        Ok(())
    })?;
    if retired.is_empty() {
        return Ok(());
    }
    in_txn(engine, |txn| {
        retired.iter().try_for_each(|key| txn.retire(keyspace, key, Guard::Derived))
    })
}

/// Refuses an engine into which a restore or a copy is not complete, and a store that was moved.
///
/// # Errors
/// 94 NotYetInitialized; errors of the engine.
pub(crate) fn refuse_unfinished(engine: &dyn Engine) -> Result<()> {
    let refused = |text: &str| Err(Error::new(ErrorCode::NotYetInitialized, text));
    let (mut is_copy, unfinished) = (false, catalog_key::UNFINISHED);
    let mut has = |key: &[u8]| {
        let see = &mut |value: &[u8]| is_copy = !value.is_empty();
        engine.get_once(Keyspace::Catalog, key, see).map_err(from_kv)
    };
    if has(unfinished)? {
        return match is_copy {
            true => refused("a copy into it ('mayflydb copy') is not complete"),
            false => refused("a restore into it is not complete"),
        };
    }
    match has(catalog_key::MOVED)? {
        true => refused("the store was moved to another place by 'mayflydb copy'"),
        false => Ok(()),
    }
}

pub(in crate::backup) fn sweep(
    engine: &dyn Engine,
    keyspace: Keyspace,
    range: &KeyRange,
) -> Result<()> {
    while engine.sweep_range(keyspace, range, SWEEP_KEYS).map_err(from_kv)? == SweepEnd::More {}
    Ok(())
}

/// Whether a restore is not complete: the mark of a copy has a value.
fn is_unfinished_restore(engine: &dyn Engine) -> Result<bool> {
    let mut is_restore = false;
    let see = &mut |value: &[u8]| is_restore = value.is_empty();
    engine.get_once(Keyspace::Catalog, catalog_key::UNFINISHED, see).map_err(from_kv)?;
    Ok(is_restore)
}

pub(in crate::backup) fn is_empty(engine: &dyn Engine) -> Result<bool> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
    for keyspace in Keyspace::ALL {
        let mut is_empty = true;
        let see = &mut |_: &[u8], _: &[u8]| {
            is_empty = false;
            ControlFlow::Break(())
        };
        txn.scan_retired(keyspace, &all_keys(), ScanLimit::page(1), see).map_err(from_kv)?;
        if !is_empty {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(in crate::backup) fn in_txn(
    engine: &dyn Engine,
    write: impl FnOnce(&mut dyn Txn) -> mayfly_kv::KvResult<()>,
) -> Result<()> {
    let mut txn = engine.begin(TxnOptions::default()).map_err(from_kv)?;
    write(&mut *txn).and_then(|()| txn.commit()).map_err(from_kv)
}

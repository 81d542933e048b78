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

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, RETIRED, ScanLimit, SweepEnd, Txn, TxnOptions,
    is_retired,
};

use super::{all_keys, damaged, open_run};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// Bytes that are written in one transaction, where an engine has no bulk loading.
const TXN_BYTES: usize = 4 << 20;
/// Entries that are written in one transaction.
const TXN_ENTRIES: usize = 10_000;
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
        let mark = catalog_key::UNFINISHED;
        in_txn(&*engine, |txn| txn.put(Keyspace::Catalog, mark, &[], Guard::Checked))?;
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
        match is_unfinished(engine)? || is_empty(engine)? {
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
        if let Some(mut ingest) = self.engine.begin_ingest(keyspace).map_err(from_kv)? {
            for entry in entries {
                let (key, value) = entry?;
                ingest.add(key, value).map_err(from_kv)?;
                count += 1;
            }
            ingest.finish().map_err(from_kv)?;
        } else {
            let mut batch: Vec<(&[u8], &[u8])> = Vec::new();
            let mut bytes = 0;
            for entry in entries {
                let (key, value) = entry?;
                batch.push((key, value));
                bytes += key.len() + value.len();
                count += 1;
                if bytes >= TXN_BYTES || batch.len() >= TXN_ENTRIES {
                    self.write_batch(keyspace, &batch)?;
                    batch.clear();
                    bytes = 0;
                }
            }
            self.write_batch(keyspace, &batch)?;
        }
        self.entries += count;
        Ok(())
    }

    /// Writes entries, and then retires those that are retired: an engine retires only what is
    /// stored.
    fn write_batch(&self, keyspace: Keyspace, batch: &[(&[u8], &[u8])]) -> Result<()> {
        let mut retired: Vec<&[u8]> = Vec::new();
        in_txn(&*self.engine, |txn| {
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
        in_txn(&*self.engine, |txn| {
            retired.iter().try_for_each(|key| txn.retire(keyspace, key, Guard::Derived))
        })
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

/// Refuses an engine into which a restore is not complete.
///
/// # Errors
/// 94 NotYetInitialized; errors of the engine.
pub(crate) fn refuse_unfinished(engine: &dyn Engine) -> Result<()> {
    match is_unfinished(engine)? {
        false => Ok(()),
        true => Err(Error::new(ErrorCode::NotYetInitialized, "a restore into it is not complete")),
    }
}

fn sweep(engine: &dyn Engine, keyspace: Keyspace, range: &KeyRange) -> Result<()> {
    while engine.sweep_range(keyspace, range, SWEEP_KEYS).map_err(from_kv)? == SweepEnd::More {}
    Ok(())
}

fn is_unfinished(engine: &dyn Engine) -> Result<bool> {
    engine.get_once(Keyspace::Catalog, catalog_key::UNFINISHED, &mut |_| ()).map_err(from_kv)
}

fn is_empty(engine: &dyn Engine) -> Result<bool> {
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

fn in_txn(
    engine: &dyn Engine,
    write: impl FnOnce(&mut dyn Txn) -> mayfly_kv::KvResult<()>,
) -> Result<()> {
    let mut txn = engine.begin(TxnOptions::default()).map_err(from_kv)?;
    write(&mut *txn).and_then(|()| txn.commit()).map_err(from_kv)
}

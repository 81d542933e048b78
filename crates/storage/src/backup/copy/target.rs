//! The target of a copy: writes the base, replays the log, and becomes a store of its own.
//!
//! | step | an interruption after it leaves |
//! |---|---|
//! | 1. the catalog gets the state of the copy | an engine that no server opens |
//! | 2. runs are written, and from time to time a position | the same; the copy goes on after it |
//! | 3. the phase becomes `log`, with the position of the replay | the same; the replay goes on |
//! | 4. entries of the log are applied, each with its position | the same |
//! | 5. the store becomes one of its own, the phase `complete` | the same; the replay can go on |
//! | 6. the state is removed | a store |

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, Engine, Guard, Ingest, KeyRange, Keyspace, ScanLimit, Txn, TxnOptions};

use super::state::{CopyPhase, CopyState, EntriesPosition};
use crate::backup::entries::{
    Entries, all_keys, append_entry, in_txn, is_empty, open_run, sweep, write_batches,
};
use crate::backup::{EntriesWriter, end_of_run};
use crate::index::FilterCompiler;
use crate::oplog::{LostTimes, OplogClock, StoreIdentity};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::ttl::suspension::load_mark;
use crate::{CatalogMarks, Replay, Store};

/// Rows of the source's catalog that are not copied.
const NOT_COPIED: [&[u8]; 4] =
    [catalog_key::UNFINISHED, catalog_key::REPLAYED, catalog_key::MOVED, catalog_key::COPYING];

/// Bytes of entries between two positions of the base. An interrupted copy writes so many again.
const BYTES_BETWEEN_POSITIONS: usize = if cfg!(test) { 3 << 20 } else { 64 << 20 };

/// The target of a copy.
pub struct CopyTarget {
    engine: Arc<dyn Engine>,
    state: CopyState,
    /// Entries that were written after the position.
    load: Option<Load>,
}

/// A bulk load of several runs.
struct Load {
    keyspace: Keyspace,
    ingest: Box<dyn Ingest>,
    last_key: Vec<u8>,
    bytes: usize,
}

/// The end of the source.
#[derive(Clone, Debug)]
pub struct CopyEnd {
    /// The last time of its log.
    pub time: u64,
    /// The present wall time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The suspension of expiry as the source's catalog has it.
    pub suspended: Option<Vec<u8>>,
}

impl CopyTarget {
    /// The state of an unfinished copy into this engine; `None` for an empty engine.
    ///
    /// # Errors
    /// 20 IllegalOperation for an engine that contains anything else; errors of the engine.
    pub fn find(engine: &dyn Engine) -> Result<Option<CopyState>> {
        let mut found = None;
        let see = &mut |value: &[u8]| found = Some(CopyState::from_row(value));
        engine.get_once(Keyspace::Catalog, catalog_key::UNFINISHED, see).map_err(from_kv)?;
        let refused = |text: &str| Err(Error::new(ErrorCode::IllegalOperation, text));
        match found {
            Some(Some(state)) => Ok(Some(state)),
            Some(None) => refused("a restore into it is not complete"),
            None if is_empty(engine)? => Ok(None),
            None => refused("it is not empty: it contains a store"),
        }
    }

    /// Removes all that the engine contains, and begins a copy into it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin(engine: Arc<dyn Engine>, state: CopyState) -> Result<CopyTarget> {
        EntriesWriter::replace_marked(engine.clone(), state.to_document().as_bytes())?;
        Ok(CopyTarget { engine, state, load: None })
    }

    /// Continues a copy. What the last run has written after its position is removed.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn resume(engine: Arc<dyn Engine>, state: CopyState) -> Result<CopyTarget> {
        let target = CopyTarget { engine, state, load: None };
        if target.state.phase == CopyPhase::Base {
            target.sweep_after_position()?;
        }
        Ok(target)
    }

    fn sweep_after_position(&self) -> Result<()> {
        let mut is_after = self.state.position.is_none();
        for keyspace in Keyspace::ALL {
            let range = match &self.state.position {
                Some(at) if at.keyspace == keyspace => {
                    is_after = true;
                    all_keys().after(&at.key, Direction::Forward)
                }
                _ if is_after => all_keys(),
                _ => continue,
            };
            let mark = catalog_key::UNFINISHED;
            if keyspace != Keyspace::Catalog {
                sweep(&*self.engine, keyspace, &range)?;
                continue;
            }
            if range.start.as_slice() <= mark {
                let before = KeyRange { start: range.start.clone(), end: mark.to_vec() };
                sweep(&*self.engine, keyspace, &before)?;
            }
            let after = all_keys().after(mark, Direction::Forward);
            let start = after.start.clone().max(range.start);
            sweep(&*self.engine, keyspace, &KeyRange { start, ..after })?;
        }
        Ok(())
    }

    /// How far the copy is.
    pub fn state(&self) -> &CopyState {
        &self.state
    }

    /// Writes a run of the base. The position after it is stored with that of a later run, at the
    /// latest by [`CopyTarget::end_base`]. Returns the number of entries.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for bytes that are no run; errors of the engine.
    pub fn write_run(&mut self, run: &[u8]) -> Result<u64> {
        let (keyspace, entries) = open_run(run)?;
        if self.load.as_ref().is_some_and(|load| load.keyspace != keyspace) {
            self.end_load()?;
        }
        if keyspace == Keyspace::Catalog {
            return self.write_catalog(entries);
        }
        if self.load.is_none() {
            let Some(ingest) = self.engine.begin_ingest(keyspace).map_err(from_kv)? else {
                let count = write_batches(&*self.engine, keyspace, entries)?;
                if let Some(position) = end_of_run(run)? {
                    self.store_position(position)?;
                }
                return Ok(count);
            };
            self.load = Some(Load { keyspace, ingest, last_key: Vec::new(), bytes: 0 });
        }
        let Some(load) = &mut self.load else { return Ok(0) };
        let (mut last, mut count) = (None, 0);
        for entry in entries {
            let (key, value) = entry?;
            load.ingest.add(key, value).map_err(from_kv)?;
            (last, count) = (Some(key), count + 1);
        }
        if let Some(last) = last {
            load.last_key.clear();
            load.last_key.extend_from_slice(last);
        }
        load.bytes += run.len();
        if load.bytes >= BYTES_BETWEEN_POSITIONS {
            self.end_load()?;
        }
        Ok(count)
    }

    /// The catalog has the state of the copy, so its rows cannot be bulk loaded.
    fn write_catalog(&mut self, entries: Entries<'_>) -> Result<u64> {
        let (mut kept, mut last) = (vec![Keyspace::Catalog as u8], None);
        for entry in entries {
            let (key, value) = entry?;
            last = Some(key);
            if !NOT_COPIED.contains(&key) {
                append_entry(&mut kept, key, value);
            }
        }
        let (keyspace, entries) = open_run(&kept)?;
        let count = write_batches(&*self.engine, keyspace, entries)?;
        if let Some(key) = last {
            self.store_position(EntriesPosition { keyspace, key: key.to_vec() })?;
        }
        Ok(count)
    }

    /// Makes the entries after the position durable, and stores the position after them.
    fn end_load(&mut self) -> Result<()> {
        let Some(load) = self.load.take() else { return Ok(()) };
        load.ingest.finish().map_err(from_kv)?;
        match load.last_key.is_empty() {
            true => Ok(()),
            false => {
                self.store_position(EntriesPosition { keyspace: load.keyspace, key: load.last_key })
            }
        }
    }

    fn store_position(&mut self, position: EntriesPosition) -> Result<()> {
        self.engine.sync().map_err(from_kv)?;
        self.state.position = Some(position);
        self.store_state(|_| Ok(()))
    }

    /// Notes that the base is complete: entries of the log follow.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn end_base(&mut self) -> Result<()> {
        self.end_load()?;
        (self.state.phase, self.state.position) = (CopyPhase::Log, None);
        let position = self.state.time.to_be_bytes();
        self.store_state(|txn| {
            txn.put(Keyspace::Catalog, catalog_key::REPLAYED, &position, Guard::Checked)
        })
    }

    fn store_state(
        &self,
        also: impl FnOnce(&mut dyn Txn) -> mayfly_kv::KvResult<()>,
    ) -> Result<()> {
        let row = self.state.to_document();
        in_txn(&*self.engine, |txn| {
            let key = catalog_key::UNFINISHED;
            txn.put(Keyspace::Catalog, key, row.as_bytes(), Guard::Checked)?;
            also(txn)
        })?;
        self.engine.sync().map_err(from_kv)
    }

    /// Opens the store for the entries of the log.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn replay(&self, filters: Arc<dyn FilterCompiler>) -> Result<Replay> {
        Replay::open_marked(self.engine.clone(), filters, CatalogMarks::Allow)
    }

    /// Writes records of retryable writes.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for another run; errors of the engine.
    pub fn write_sessions(&self, run: &[u8]) -> Result<u64> {
        match open_run(run)? {
            (Keyspace::Session, entries) => {
                write_batches(&*self.engine, Keyspace::Session, entries)
            }
            _ => Err(Error::new(ErrorCode::DataCorruptionDetected, "these are no sessions")),
        }
    }

    /// Gives the store its own identity and the next timeline, after all entries of the source were
    /// applied. The state of the copy stays.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn complete(&mut self, store: &Store, end: &CopyEnd) -> Result<()> {
        store.become_copied(self.state.store, end)?;
        self.state.phase = CopyPhase::Complete;
        self.store_state(|_| Ok(()))
    }

    /// Makes a store of the target, and closes it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn release(self, store: &Store) -> Result<()> {
        store.refuse_units();
        store.store_counts()?;
        in_txn(&*self.engine, |txn| {
            txn.delete(Keyspace::Catalog, catalog_key::REPLAYED, Guard::Checked)?;
            txn.delete(Keyspace::Catalog, catalog_key::UNFINISHED, Guard::Checked)
        })?;
        self.engine.sync().map_err(from_kv)?;
        store.close_gate();
        self.engine.close().map_err(from_kv)
    }
}

impl Store {
    /// Gives a store that was copied a new identity and a new timeline. Its log begins after the
    /// present second, and change streams cannot resume before that.
    fn become_copied(&self, source: [u8; 16], end: &CopyEnd) -> Result<()> {
        let known = self.oplog.clock.last().max(end.time);
        let before = OplogClock::second_after(end.now_ms).max(known.saturating_add(1));
        let old = StoreIdentity::load(&*self.engine)?;
        let old = old.unwrap_or(StoreIdentity { store: source, timeline: 1, lost: Vec::new() });
        let new = old.restored(LostTimes { after: 0, before });
        // The log lacks the entries that were replayed: indexes that follow it are built again.
        if let Some(cut) = self.oplog.whole_cut() {
            self.note_cut(cut, None)?;
        }
        self.oplog.clock.advance_to(before);
        self.change(|txn, oplog| {
            oplog.note("copied from another store");
            new.put(txn)?;
            txn.delete(Keyspace::Catalog, catalog_key::BACKUPS, Guard::Checked).map_err(from_kv)?;
            match &end.suspended {
                Some(row) => {
                    txn.put(Keyspace::Catalog, catalog_key::SUSPENDED, row, Guard::Checked)
                }
                None => txn.delete(Keyspace::Catalog, catalog_key::SUSPENDED, Guard::Checked),
            }
            .map_err(from_kv)
        })?;
        *self.suspension_recorded.lock() = load_mark(&*self.engine)?;
        self.engine.sync().map_err(from_kv)
    }
}

/// Notes in the catalog of a source without a server which copy reads its base. Returns whether the
/// note of this copy was there: then no server has opened the source since.
///
/// # Errors
/// Errors of the engine.
pub fn note_copying(engine: &dyn Engine, copy: [u8; 16]) -> Result<bool> {
    let (key, mut was_there) = (catalog_key::COPYING, false);
    let see = &mut |value: &[u8]| was_there = value == copy;
    engine.get_once(Keyspace::Catalog, key, see).map_err(from_kv)?;
    if !was_there {
        in_txn(engine, |txn| txn.put(Keyspace::Catalog, key, &copy, Guard::Checked))?;
        engine.sync().map_err(from_kv)?;
    }
    Ok(was_there)
}

/// The last time of a log, without opening its store; 0 for an empty log.
///
/// # Errors
/// Errors of the engine.
pub fn last_log_time(engine: &dyn Engine) -> Result<u64> {
    let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
    let mut last = 0;
    let see = &mut |key: &[u8], _: &[u8]| {
        last = key.try_into().map_or(0, u64::from_be_bytes);
        ControlFlow::Break(())
    };
    let (back, one) = (Direction::Backward, ScanLimit::page(1));
    txn.scan(Keyspace::Oplog, &all_keys(), back, one, see).map_err(from_kv)?;
    Ok(last)
}

/// The identity of the store in this engine, which gets one if it has none.
///
/// # Errors
/// 20 IllegalOperation for an engine without a store; errors of the engine.
pub fn identity_of(engine: &dyn Engine) -> Result<StoreIdentity> {
    if is_empty(engine)? {
        return Err(Error::new(ErrorCode::IllegalOperation, "it contains no store"));
    }
    if let Some(found) = StoreIdentity::load(engine)? {
        return Ok(found);
    }
    let new = StoreIdentity::new();
    let mut txn = engine.begin(TxnOptions::default()).map_err(from_kv)?;
    new.put(&mut *txn)?;
    txn.commit().map_err(from_kv)?;
    engine.sync().map_err(from_kv)?;
    Ok(new)
}

/// The id of the copy by which the store in this engine was moved.
///
/// # Errors
/// Errors of the engine.
pub fn moved_by(engine: &dyn Engine) -> Result<Option<[u8; 16]>> {
    let mut found = None;
    let see = &mut |value: &[u8]| found = value.try_into().ok();
    engine.get_once(Keyspace::Catalog, catalog_key::MOVED, see).map_err(from_kv)?;
    Ok(found)
}

/// Notes in a source without a server that it was moved.
///
/// # Errors
/// Errors of the engine.
pub fn note_moved(engine: &dyn Engine, copy: [u8; 16]) -> Result<()> {
    in_txn(engine, |txn| txn.put(Keyspace::Catalog, catalog_key::MOVED, &copy, Guard::Checked))?;
    engine.sync().map_err(from_kv)
}

//! A source that no server has open. Its base is read from the engine, so that the store stays as
//! it is; only the log needs the store.

use std::sync::Arc;

use anyhow::anyhow;
use mayfly_base::{Clock, ErrorCode, SystemClock};
use mayfly_kv::{Engine, HeldSnapshot};
use mayfly_storage::{
    CatalogMarks, CopyHold, CopyPoint, EntriesPosition, EntriesReader, SessionsPart, Store,
    approximate_entry_bytes, identity_of, last_log_time, moved_by, note_copying, note_moved,
    of_engine,
};

use super::TRIED;
use super::source::LogPart;
use crate::failure::{Failure, FailureKind};
use crate::offline;

/// Bytes of the log that are read at a time.
const LOG_BYTES: usize = 4 << 20;

/// A store in this process.
pub(super) struct LocalSource {
    engine: Arc<dyn Engine>,
    snapshot: Option<Arc<dyn HeldSnapshot>>,
    /// Opened when the log is read.
    store: Option<Arc<Store>>,
}

fn failed(error: &mayfly_base::Error) -> anyhow::Error {
    let (kind, advice) = match error.code() {
        ErrorCode::DataCorruptionDetected => {
            (FailureKind::Damage, "restore the source from a backup; 'mayflydb check' checks it")
        }
        ErrorCode::ChangeStreamHistoryLost => (
            FailureKind::General,
            "the log of the source no longer has the entries that the target needs: empty the \
             target, and copy again",
        ),
        _ => (FailureKind::Folder, "name the data folder or the database of a store with --from"),
    };
    offline::of_store(error).context(Failure::new(kind, TRIED, advice))
}

impl LocalSource {
    /// # Errors
    /// A [`Failure`] for an engine without a store.
    pub(super) fn open(engine: Arc<dyn Engine>) -> anyhow::Result<LocalSource> {
        if let Err(error) = identity_of(&*engine) {
            // The error counts more.
            let _ = engine.close();
            return Err(failed(&error));
        }
        Ok(LocalSource { engine, snapshot: None, store: None })
    }

    /// Whether the store was moved by this copy.
    pub(super) fn was_moved_by(&self, copy: [u8; 16]) -> anyhow::Result<bool> {
        let found = moved_by(&*self.engine).map_err(|error| failed(&error))?;
        Ok(found == Some(copy))
    }

    pub(super) fn begin(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyPoint> {
        let engine = &*self.engine;
        let point = || {
            Ok(CopyPoint {
                store: identity_of(engine)?.store,
                goes_on: note_copying(engine, copy)?,
                time: last_log_time(engine)?,
                bytes: approximate_entry_bytes(engine)?,
            })
        };
        let point = point().map_err(|error| failed(&error))?;
        let held = self.engine.hold_for_export();
        self.snapshot = Some(held.map_err(|error| failed(&of_engine(error)))?);
        Ok(point)
    }

    pub(super) fn entries(
        &mut self,
        after: Option<&EntriesPosition>,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(snapshot) = &self.snapshot else { return Ok(None) };
        let run = EntriesReader::after(snapshot.clone(), after).next_run();
        Ok(run.map_err(|error| failed(&error))?.map(|(_, run)| run))
    }

    pub(super) fn follow(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<[u8; 16]> {
        self.snapshot = None;
        let store = self.store()?;
        store.continue_copy(copy, after).map_err(|error| failed(&error))
    }

    /// The store, which is opened at the first call.
    pub(super) fn store(&mut self) -> anyhow::Result<Arc<Store>> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = offline::open_marked(self.engine.clone(), clock, CatalogMarks::Allow);
        let store = store.map_err(|error| failed(&error))?;
        self.store = Some(store.clone());
        Ok(store)
    }

    pub(super) fn log(&mut self, copy: [u8; 16], after: u64) -> anyhow::Result<LogPart> {
        let (store, mut entries) = (self.store()?, Vec::new());
        let reached = store.copy_log(copy, after, LOG_BYTES, &mut entries);
        let reached = reached.map_err(|error| failed(&error))?;
        Ok(LogPart { entries, reached, settled: store.oplog().settled() })
    }

    pub(super) fn sessions(
        &mut self,
        copy: [u8; 16],
        since_ms: i64,
        after: Option<&[u8]>,
    ) -> anyhow::Result<SessionsPart> {
        self.store()?.copy_sessions(copy, since_ms, after).map_err(|error| failed(&error))
    }

    /// Nothing writes into the source.
    pub(super) fn hold(&mut self, copy: [u8; 16]) -> anyhow::Result<CopyHold> {
        let store = self.store()?;
        let op = mayfly_work::OpCtx::detached(Arc::new(SystemClock::new()));
        let limit = mayfly_storage::COPY_LEASE;
        store.hold_for_copy(&op, copy, limit).map_err(|error| failed(&error))
    }

    pub(super) fn finish(&mut self, copy: [u8; 16]) -> anyhow::Result<()> {
        note_moved(&*self.engine, copy).map_err(|error| failed(&error))
    }

    pub(super) fn close(self) {
        drop(self.snapshot);
        // All that the copy needs is in the target; a start of a server recovers the rest.
        let closed = match self.store {
            Some(store) => store.close(),
            None => self.engine.close().map_err(of_engine),
        };
        if let Err(error) = closed {
            super::say(&format!("the source could not be closed cleanly: {}", error.message()));
        }
    }

    /// The failure when the source was moved by another copy.
    pub(super) fn refuse_moved(&self) -> anyhow::Result<()> {
        match moved_by(&*self.engine).map_err(|error| failed(&error))? {
            None => Ok(()),
            Some(_) => {
                let advice = "leave --switchOver out to make a copy of it";
                let failure = Failure::new(FailureKind::Folder, TRIED, advice);
                Err(anyhow!("the source was moved by another copy").context(failure))
            }
        }
    }
}

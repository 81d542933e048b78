//! Suspension of expiry for the rest of the server, and its record in the catalog.

use mayfly_base::Result;
use mayfly_kv::{Engine, Guard, Keyspace};
use mayfly_value::RawDoc;

use crate::Store;
use crate::oplog::OplogBatch;
use crate::policy::watch::{Mark, Suspension};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::shared::change_version;

/// Reads the mark of the last run; an unreadable one is ignored.
pub(crate) fn load_mark(engine: &dyn Engine) -> Result<Option<Mark>> {
    let mut mark = None;
    engine
        .get_once(Keyspace::Catalog, catalog_key::SUSPENDED, &mut |value| {
            mark = RawDoc::new(value).and_then(Mark::from_document);
        })
        .map_err(from_kv)?;
    Ok(mark)
}

impl Store {
    /// The present suspension of expiry, if there is one.
    pub fn expiry_suspension(&self) -> Option<Suspension> {
        self.watch.suspension()
    }

    /// Resumes expiry and accepts the clock as it is. Returns whether expiry was suspended.
    ///
    /// # Errors
    /// Errors of the engine; the next start may then suspend expiry again.
    pub fn resume_expiry(&self) -> Result<bool> {
        let suspended = self.watch.resume();
        if suspended {
            // The next start takes this entry's time as that of the last write.
            self.write_mark(None, |oplog| oplog.note("expiry goes on"))?;
        }
        Ok(suspended)
    }

    /// Writes into the catalog whether expiry is suspended, if that has changed.
    pub(crate) fn record_suspension(&self) -> Result<()> {
        let recorded = *self.suspension_recorded.lock();
        match (recorded, self.watch.mark()) {
            (None, None) => Ok(()),
            (Some(recorded), Some(mark)) if recorded.covers(mark) => Ok(()),
            (_, mark) => self.write_mark(mark, |_| {}),
        }
    }

    /// Writes the exact state of the suspension at a shutdown, for the next run.
    pub(crate) fn record_suspension_last(&self) -> Result<()> {
        match self.watch.mark() {
            None => self.record_suspension(),
            mark => self.write_mark(mark, |_| {}),
        }
    }

    fn write_mark(&self, mark: Option<Mark>, log: impl Fn(&mut OplogBatch)) -> Result<()> {
        let key = catalog_key::SUSPENDED;
        let mut recorded = self.suspension_recorded.lock();
        self.change(|txn, oplog| {
            log(oplog);
            change_version(txn).map_err(from_kv)?;
            match mark.map(Mark::to_document) {
                Some(mark) => txn.put(Keyspace::Catalog, key, mark.as_bytes(), Guard::Checked),
                None => txn.delete(Keyspace::Catalog, key, Guard::Checked),
            }
            .map_err(from_kv)
        })?;
        *recorded = mark;
        Ok(())
    }
}

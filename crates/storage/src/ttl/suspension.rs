//! Suspended expiry as the rest of the server sees it, and its record in the catalog.

use mayfly_base::Result;
use mayfly_kv::{Engine, Guard, Keyspace};
use mayfly_value::RawDoc;

use crate::Store;
use crate::oplog::OplogBatch;
use crate::policy::watch::{Mark, Suspension};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// What the last run left; a record that cannot be read is none.
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
    /// Why expiry is suspended, if it is.
    pub fn expiry_suspension(&self) -> Option<Suspension> {
        self.watch.suspension()
    }

    /// Expiry goes on: the clock is right as it is. Whether it was suspended.
    ///
    /// # Errors
    /// Those of the engine; then the next start may suspend it again.
    pub fn resume_expiry(&self) -> Result<bool> {
        let suspended = self.watch.resume();
        if suspended {
            // The entry's time is what the next start finds as that of the last write.
            self.write_mark(None, |oplog| oplog.note("expiry goes on"))?;
        }
        Ok(suspended)
    }

    /// Puts on record that expiry is suspended, or that it is not any more.
    pub(crate) fn record_suspension(&self) -> Result<()> {
        let recorded = *self.suspension_recorded.lock();
        match (recorded, self.watch.mark()) {
            (None, None) => Ok(()),
            (Some(recorded), Some(mark)) if recorded.covers(mark) => Ok(()),
            (_, mark) => self.write_mark(mark, |_| {}),
        }
    }

    /// The same as exactly as it can be said, for the next run.
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

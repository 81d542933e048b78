//! Builds log-fed indexes: checks and fills them, and publishes those that are built without
//! others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_work::OpCtx;

use super::{IfDropped, aborted, check_not_dropped};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Index};
use crate::index::IndexSpec;

/// Whether the writes to a collection are not all in the log.
pub(in crate::ddl) fn is_internal(ns: &Namespace) -> bool {
    matches!(ns.db(), "admin" | "config" | "local") || ns.collection().starts_with("system.")
}

impl Store {
    /// Checks that a log-fed index may be on this collection: the server's own writes are not
    /// always in the log.
    ///
    /// # Errors
    /// 67 CannotCreateIndex.
    pub(in crate::ddl) fn check_log_fed(&self, ns: &Namespace, spec: &IndexSpec) -> Result<()> {
        if !spec.is_log_fed() {
            return Ok(());
        }
        if is_internal(ns) {
            let text = format!("this type of index is not supported on {ns}");
            return Err(Error::new(ErrorCode::CannotCreateIndex, text));
        }
        // From now on the log's cuts and the follower search log-fed indexes.
        self.catalog.may_be_log_fed.store(true, Ordering::Release);
        Ok(())
    }

    /// Fills the indexes while the build should continue.
    pub(super) fn fill_while(
        &self,
        op: &OpCtx,
        collection: &Collection,
        indexes: &[Arc<Index>],
        if_dropped: IfDropped,
    ) -> Result<()> {
        for index in indexes {
            let may_continue = || {
                op.check()?;
                self.check_open()?;
                self.check_build(collection, indexes, if_dropped)?;
                Ok(!index.is_dropped())
            };
            let filled = self.fill_log_fed(op, collection, index, &may_continue);
            filled.map_err(|error| match error.code() {
                ErrorCode::ChangeStreamHistoryLost => {
                    aborted("the operation log was cut before the index had followed it")
                }
                _ => error,
            })?;
        }
        Ok(())
    }

    /// Publishes filled indexes that are built without others.
    pub(super) fn finish_log_fed(
        &self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        if_dropped: IfDropped,
        publish: impl FnOnce(&mut CollectionState) -> Result<()>,
    ) -> Result<()> {
        let _changing = self.catalog.lock()?;
        let mut state = collection.change_state()?;
        self.check_open()?;
        self.check_build(collection, indexes, if_dropped)?;
        publish(&mut state)
    }

    fn check_build(
        &self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        if_dropped: IfDropped,
    ) -> Result<()> {
        match if_dropped {
            IfDropped::Ends => check_not_dropped(collection, indexes),
            IfDropped::GoesOn => collection.check_alive(),
        }
    }
}

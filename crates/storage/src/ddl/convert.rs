//! Making capped collections of others: a copy in their order, and for a conversion the copy in the place of the original.
//!
//! The copy has the options of the original, so that validators, collations and images stay; its indexes go. Documents that a
//! validator would not let in now are copied all the same. What a policy hides is not copied: for clients it is gone. A conversion
//! fails while some of that has not been archived that a policy archives.

use crate::isolation::ReadView;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use mayfly_work::current::Current;
use mayfly_work::{OpCtx, current};

use super::replace::{check_no_build, temporary_name};
use crate::Store;
use crate::catalog::Collection;
use crate::catalog::OF_CONVERSION;
use crate::read::{Hidden, Scanned, whole_range};
use crate::record::Record;
use crate::record::new_uuid;

/// Documents, and about how many bytes, that are copied in one unit.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;
/// How often a conversion copies while others write, before it keeps them out.
const COPIES_BESIDE_WRITERS: usize = 2;

/// The options of a collection with those of a capped one.
///
/// # Errors
/// 72 InvalidOptions for collections that cannot be capped.
fn capped_like(source: &Collection, capped: RawDoc<'_>) -> Result<DocBuf> {
    let options = source.options();
    let own = options.as_doc();
    for (name, text) in [
        ("clusteredIndex", "A capped collection cannot be clustered"),
        ("timeseries", "A time-series collection cannot be capped"),
    ] {
        if own.get(name).is_some() {
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
    }
    let mut out = DocBuilder::new();
    out.append_all(capped);
    for element in own.iter().filter(|element| capped.get_element(element.name()).is_none()) {
        out.append_element(element);
    }
    Ok(out.finish())
}

impl Store {
    /// Copies a collection into a new one with its options and these.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists, 72 InvalidOptions for what cannot be capped, those of the engine.
    pub fn clone_collection(
        &self,
        op: &OpCtx,
        from: &Namespace,
        to: &Namespace,
        capped: RawDoc<'_>,
    ) -> Result<()> {
        let Some(source) = self.catalog.get(from) else {
            self.check_no_view(&ReadView::now(), from)?;
            let text =
                format!("cloneCollectionAsCapped failed - source collection {from} does not exist");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        let made = self.create_collection(&ReadView::now(), to, capped_like(&source, capped)?)?;
        let hidden = Hidden::of(&source, &self.watch, || self.moment());
        let copied = self.copy(op, &source, &hidden, &made).and_then(|_| source.check_alive());
        copied.inspect_err(|_| {
            // What was made for the copy goes with it, unless somebody else has dropped it; when that fails, the client sees
            // why the copy did. It goes also when the operation has to end.
            let _nobody = current::enter(Current::default());
            let _ = self.catalog.lock().and_then(|_changing| match made.is_dropped() {
                true => Ok(()),
                false => self.drop_locked(&made),
            });
        })
    }

    /// Puts a copy with its options and these in the place of a collection; indexes other than that on `_id` go. Who uses the
    /// collection waits only when writers were faster several times.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 72 InvalidOptions for what cannot be capped, 12587 while an index is being built, 117
    /// while hidden documents are not archived; those of the engine.
    pub fn convert_collection(&self, op: &OpCtx, ns: &Namespace, capped: RawDoc<'_>) -> Result<()> {
        // Options and indexes stay as they are while the copy is made.
        let _changing = self.lock_catalog_sparing(std::slice::from_ref(ns))?;
        let Some(source) = self.catalog.get(ns) else {
            self.check_no_view(&ReadView::now(), ns)?;
            let text = format!("source collection {ns} does not exist");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        check_no_build(&source, &source.indexes())?;
        let options = capped_like(&source, capped)?;
        for attempt in 0..=COPIES_BESIDE_WRITERS {
            let temporary = temporary_name(ns.db(), OF_CONVERSION, op.now_ms())?;
            let made =
                self.create_locked(&ReadView::now(), &temporary, options.clone(), new_uuid())?;
            let alone = attempt == COPIES_BESIDE_WRITERS;
            match self.try_convert(op, &source, &made, alone) {
                Ok(true) => return Ok(()),
                Ok(false) => self.drop_locked(&made)?,
                Err(error) => {
                    // The client sees why the copy failed, whether or not it can be taken away; also when the operation has to end.
                    let _nobody = current::enter(Current::default());
                    let _ = self.drop_locked(&made);
                    return Err(error);
                }
            }
        }
        Err(Error::internal("a copy that nobody else could change was out of date"))
    }

    /// Copies and replaces; false when somebody wrote meanwhile. `alone` keeps them out from the beginning.
    fn try_convert(
        &self,
        op: &OpCtx,
        source: &Collection,
        made: &Arc<Collection>,
        alone: bool,
    ) -> Result<bool> {
        let before = source.commits.load(Ordering::Acquire);
        // Asked before the state is locked: it is asked for the policies.
        let hidden = Hidden::of(source, &self.watch, || self.moment());
        let mut left_out = 0;
        if !alone {
            left_out = self.copy(op, source, &hidden, made)?;
        }
        let state = source.change_state()?;
        if alone {
            left_out = self.copy(op, source, &hidden, made)?;
        } else if source.commits.load(Ordering::Acquire) != before {
            return Ok(false);
        }
        if left_out > 0 && source.archives() {
            let text = format!("{left_out} documents are due and have not been archived yet");
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, text));
        }
        let made_state = made.change_state()?;
        self.give_name(made, &made_state, &source.namespace(), Some((source, &state)))?;
        Ok(true)
    }

    /// Copies what can be seen; gives the number of documents that cannot.
    fn copy(
        &self,
        op: &OpCtx,
        source: &Collection,
        hidden: &Hidden,
        made: &Collection,
    ) -> Result<u64> {
        let mut left_out = 0;
        let snapshot = self.latest()?;
        let mut range = whole_range();
        loop {
            op.check()?;
            let mut batch: Vec<DocBuf> = Vec::with_capacity(UNIT_DOCUMENTS);
            let limit = ScanLimit { rows: UNIT_DOCUMENTS, bytes: UNIT_BYTES };
            let direction = Direction::Forward;
            let see = &mut |_: &[u8], record: Record<'_>| {
                match hidden.hides(record)? {
                    true => left_out += 1,
                    false => batch.push(record.document.to_owned()),
                }
                Ok(ControlFlow::Continue(()))
            };
            let scanned = snapshot.scan_stored(source, &range, direction, limit, see)?;
            self.write(op, &ReadView::now(), made, |unit| {
                unit.bypass_validation();
                batch.iter().try_for_each(|document| unit.insert_checked(document.as_doc()))
            })?;
            match scanned {
                Scanned::Exhausted => return Ok(left_out),
                Scanned::Paused(last) => range = range.after(&last, direction),
            }
        }
    }
}

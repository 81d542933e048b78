//! Makes capped copies of collections. A conversion replaces the original by the copy.
//!
//! The copy has the options of the original, including validator, collation and images, but not its
//! indexes. Documents are copied without validation. Documents that a policy hides are not copied,
//! because clients do not see them. A conversion fails while some of them still have to be
//! archived.

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
use crate::read::{Hidden, ScanResult, whole_range};
use crate::record::Record;
use crate::record::new_uuid;

/// The most documents, and about the most bytes, that are copied in one unit.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;
/// How often a conversion copies with writers running, before it locks them out.
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
    /// Copies a collection into a new capped one with its options.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists, 72 InvalidOptions for a collection that cannot be
    /// capped, errors of the engine.
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
            // The incomplete copy is dropped, unless another command has dropped it; also when the
            // operation must end. The client gets the error of the copy.
            let _outside = current::enter(Current::default());
            let _ = self.catalog.lock().and_then(|_changing| match made.is_dropped() {
                true => Ok(()),
                false => self.drop_locked(&made),
            });
        })
    }

    /// Replaces a collection by a capped copy with its options; indexes other than the one on `_id`
    /// are dropped. Other operations on the collection wait only if writers were faster than
    /// several copies.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 72 InvalidOptions for a collection that cannot be capped, 12587 while
    /// an index is being built, 117 while hidden documents are not archived; errors of the engine.
    pub fn convert_collection(&self, op: &OpCtx, ns: &Namespace, capped: RawDoc<'_>) -> Result<()> {
        // The lock keeps options and indexes unchanged while the copy is made.
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
                    // The client gets the error of the copy, whether or not the copy can be
                    // dropped; it is dropped also when the operation must end.
                    let _outside = current::enter(Current::default());
                    let _ = self.drop_locked(&made);
                    return Err(error);
                }
            }
        }
        Err(Error::internal("a copy was out of date although writers were locked out"))
    }

    /// Copies and replaces; returns false when there were writes meanwhile. With `alone`, writers
    /// are locked out from the start.
    fn try_convert(
        &self,
        op: &OpCtx,
        source: &Collection,
        made: &Arc<Collection>,
        alone: bool,
    ) -> Result<bool> {
        let before = source.commits.load(Ordering::Acquire);
        // Reads the state for the policies, so it must come before the lock.
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
        self.inherit_search(source, made)?;
        self.give_name(made, &made_state, &source.namespace(), Some((source, &state)))?;
        Ok(true)
    }

    /// Copies the visible documents; returns the number of hidden ones.
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
            let limit = ScanLimit::rows(UNIT_DOCUMENTS).bytes(UNIT_BYTES);
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
                ScanResult::Exhausted => return Ok(left_out),
                ScanResult::Paused(last) => range = range.after(&last, direction),
            }
        }
    }
}

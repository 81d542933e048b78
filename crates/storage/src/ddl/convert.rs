//! Making capped collections of others: a copy in their order, and for a conversion the copy in the place of the original.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, OpCtx, Result};
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{command_ns, new_uuid, object_ids, put_collection, put_gone};
use crate::Store;
use crate::collection::{Collection, CollectionState};
use crate::read::{Scanned, whole_range};

/// Documents, and about how many bytes, that are copied in one unit.
const UNIT_DOCUMENTS: usize = 256;
const UNIT_BYTES: usize = 1 << 20;
/// How often a conversion copies while others write, before it keeps them out.
const COPIES_BESIDE_WRITERS: usize = 2;

impl Store {
    /// Copies a collection into a new one with these options.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists, those of the engine.
    pub fn clone_collection(
        &self,
        op: &OpCtx,
        from: &Namespace,
        to: &Namespace,
        options: DocBuf,
    ) -> Result<()> {
        let Some(source) = self.collection(from) else {
            self.check_no_view(from)?;
            let text =
                format!("cloneCollectionAsCapped failed - source collection {from} does not exist");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        let made = self.create_collection(to, options)?;
        self.copy(op, &source, &made).inspect_err(|_| {
            // What was made for the copy goes with it; when that fails, the client sees why the copy did.
            let _changing = self.catalog.changing.lock();
            let _ = self.drop_locked(&made);
        })
    }

    /// Puts a copy with these options in the place of a collection; indexes other than that on `_id` go. Who uses the
    /// collection waits only when writers were faster several times.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, those of the engine.
    pub fn convert_collection(&self, op: &OpCtx, ns: &Namespace, options: DocBuf) -> Result<()> {
        let _changing = self.catalog.changing.lock();
        let Some(source) = self.catalog.get(ns) else {
            self.check_no_view(ns)?;
            let text = format!("source collection {ns} does not exist");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        for attempt in 0..=COPIES_BESIDE_WRITERS {
            let number: u32 = rand::random();
            let temporary = Namespace::new(ns.db(), &format!("tmp{number}.convertToCapped"))?;
            let made = self.create_locked(&temporary, options.clone(), new_uuid())?;
            let alone = attempt == COPIES_BESIDE_WRITERS;
            let converted = self.try_convert(op, &source, &made, &temporary, alone);
            match converted {
                Ok(true) => return Ok(()),
                Ok(false) => self.drop_locked(&made)?,
                Err(error) => {
                    // The client sees why the copy failed, whether or not it can be taken away.
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
        temporary: &Namespace,
        alone: bool,
    ) -> Result<bool> {
        let before = source.commits.load(Ordering::Acquire);
        if !alone {
            self.copy(op, source, made)?;
        }
        let state = source.state.write();
        if alone {
            self.copy(op, source, made)?;
        } else if source.commits.load(Ordering::Acquire) != before {
            return Ok(false);
        }
        self.replace_by(source, &state, made, temporary).map(|()| true)
    }

    fn copy(&self, op: &OpCtx, source: &Collection, made: &Collection) -> Result<()> {
        let snapshot = self.snapshot()?;
        let mut range = whole_range();
        loop {
            op.check()?;
            let mut batch: Vec<DocBuf> = Vec::with_capacity(UNIT_DOCUMENTS);
            let limit = ScanLimit { rows: UNIT_DOCUMENTS, bytes: UNIT_BYTES };
            let direction = Direction::Forward;
            let scanned =
                snapshot.scan_records(source, &range, direction, limit, &mut |_, document| {
                    batch.push(document.to_owned());
                    Ok(ControlFlow::Continue(()))
                })?;
            self.write(op, made, |unit| {
                batch.iter().try_for_each(|document| unit.insert_checked(document.as_doc()))
            })?;
            match scanned {
                Scanned::Exhausted => return Ok(()),
                Scanned::Paused(last) => range = range.after(&last, direction),
            }
        }
    }

    /// Gives `made` the name of `source`, which goes.
    fn replace_by(
        &self,
        source: &Collection,
        state: &CollectionState,
        made: &Arc<Collection>,
        temporary: &Namespace,
    ) -> Result<()> {
        let ns = source.namespace();
        let made_state = made.state.write();
        let uuid = source.uuid();
        let mut command = DocBuilder::new();
        command.append("renameCollection", temporary.as_str()).append("to", ns.as_str());
        command.append("dropTarget", RawValue::Binary { subtype: 4, bytes: &uuid });
        let command = command.finish();
        self.change(|txn, oplog| {
            put_gone(txn, source, state)?;
            put_collection(txn, made.id(), &ns, &made.uuid(), &made_state)?;
            oplog.command(&command_ns(&ns), &made.uuid(), command.as_doc());
            Ok(())
        })?;
        made.set_namespace(ns.clone());
        source.mark_dropped(state);
        self.catalog.publish(|map| {
            map.remove(temporary);
            map.insert(ns.clone(), made.clone());
        });
        self.leave_to_sweeper(object_ids(source, state));
        Ok(())
    }
}

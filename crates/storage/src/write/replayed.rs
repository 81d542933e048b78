//! Changes of one document as an entry of a log describes them. Replays of a log and `applyOps`
//! use them.
//!
//! The change names the document by its `_id` and does not depend on its former content, so that a
//! log can be applied to data that already contains a part of it: an insert replaces a present
//! document, a delta sets values, and a delete of a missing document has no effect.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, equal_values};

use super::WriteUnit;
use crate::oplog::{UpdateStyle, apply_delta};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// A change of the document with a given `_id`.
#[derive(Clone, Copy, Debug)]
pub enum ReplayedChange<'a> {
    /// An insert.
    Put(RawDoc<'a>),
    /// An update by the delta of `{ $v: 2, diff }`.
    Delta(RawDoc<'a>),
    /// An update to this document, which may lack the `_id`.
    Replacement(RawDoc<'a>),
    /// A delete.
    Remove,
}

/// What an update does that leaves a document as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unchanged {
    /// Nothing.
    Skip,
    /// It writes the document, with a new time of the last change.
    Write,
}

impl ReplayedChange<'_> {
    /// The document after an update of `old`; `None` if it does not change.
    ///
    /// # Errors
    /// 9 FailedToParse for an invalid delta, 66 ImmutableField for a change of the `_id`.
    pub fn applied(&self, old: RawDoc<'_>) -> Result<Option<DocBuf>> {
        Ok(self.after(old)?.filter(|new| new.as_doc() != old))
    }

    /// The document after an update of `old`; `None` after a delete.
    fn after(&self, old: RawDoc<'_>) -> Result<Option<DocBuf>> {
        let new = match self {
            ReplayedChange::Delta(delta) => apply_delta(old, *delta)?,
            ReplayedChange::Put(new) | ReplayedChange::Replacement(new) => with_id_of(old, *new),
            ReplayedChange::Remove => return Ok(None),
        };
        check_same_id(old, new.as_doc())?;
        Ok(Some(new))
    }

    fn style(&self) -> UpdateStyle<'static> {
        match self {
            ReplayedChange::Delta(_) => UpdateStyle::Parts,
            ReplayedChange::Put(_) | ReplayedChange::Replacement(_) | ReplayedChange::Remove => {
                UpdateStyle::Replacement
            }
        }
    }
}

/// Checks that an update of a log leaves the `_id` as it is.
fn check_same_id(old: RawDoc<'_>, new: RawDoc<'_>) -> Result<()> {
    match (old.get("_id"), new.get("_id")) {
        (Some(old), Some(new)) if equal_values(old, new) => Ok(()),
        _ => {
            let text = "an op would change the immutable field '_id'";
            Err(Error::new(ErrorCode::ImmutableField, text))
        }
    }
}

/// The replacement, with the old document's `_id` if it has none.
fn with_id_of(old: RawDoc<'_>, new: RawDoc<'_>) -> DocBuf {
    if new.get_element("_id").is_some() {
        return new.to_owned();
    }
    let mut out = DocBuilder::new();
    if let Some(id) = old.get_element("_id") {
        out.append_element(id);
    }
    out.append_all(new);
    out.finish()
}

impl WriteUnit<'_> {
    /// Stores the position of a replay with this unit.
    pub(crate) fn note_replayed(&mut self, timestamp: u64) -> Result<()> {
        let (key, value) = (catalog_key::REPLAYED, timestamp.to_be_bytes());
        self.txn.put(Keyspace::Catalog, key, &value, Guard::Derived).map_err(from_kv)
    }

    /// Makes the change. In a time series it concerns the bucket with this `_id`, and a delta adds
    /// measurements. Returns false when the document of an update is missing.
    ///
    /// # Errors
    /// Errors of [`WriteUnit::insert`], [`WriteUnit::update`] and [`WriteUnit::replay_bucket`], and
    /// those of [`ReplayedChange::applied`].
    pub fn replay(&mut self, id: RawValue<'_>, change: &ReplayedChange<'_>) -> Result<bool> {
        if self.time_series().is_some() {
            match change {
                ReplayedChange::Put(bucket) | ReplayedChange::Replacement(bucket) => {
                    self.replay_bucket(*bucket)?;
                    return Ok(true);
                }
                ReplayedChange::Delta(delta) => {
                    self.replay_growth(id, *delta)?;
                    return Ok(true);
                }
                ReplayedChange::Remove => {}
            }
        }
        self.replay_document(id, change, Unchanged::Skip)
    }

    /// As [`WriteUnit::replay`], for a change from the log of this server and for data that is
    /// exactly as it was before the change. A bucket gets the bytes that it had.
    ///
    /// # Errors
    /// As [`WriteUnit::replay`].
    pub(crate) fn replay_own(
        &mut self,
        id: RawValue<'_>,
        change: &ReplayedChange<'_>,
    ) -> Result<bool> {
        match change {
            ReplayedChange::Put(bucket) | ReplayedChange::Replacement(bucket)
                if self.time_series().is_some() =>
            {
                self.replay_own_bucket(*bucket).map(|()| true)
            }
            _ => self.replay_document(id, change, Unchanged::Write),
        }
    }

    /// As [`WriteUnit::replay_own`], for a document that is known to be missing.
    pub(crate) fn replay_missing(
        &mut self,
        id: RawValue<'_>,
        change: &ReplayedChange<'_>,
    ) -> Result<bool> {
        match change {
            ReplayedChange::Put(new) if self.time_series().is_none() => {
                self.insert(*new).map(|()| true)
            }
            _ => self.replay_own(id, change),
        }
    }

    fn replay_document(
        &mut self,
        id: RawValue<'_>,
        change: &ReplayedChange<'_>,
        unchanged: Unchanged,
    ) -> Result<bool> {
        // An earlier operation of the unit may have inserted it.
        let old = match self.locate(self.collection.id_key(id))? {
            Some(key) => self.read(&key)?.map(|old| (key, old)),
            None => None,
        };
        match (change, old) {
            (ReplayedChange::Remove, Some((key, old))) => self.delete(&key, &old)?,
            (ReplayedChange::Remove, None) => {}
            (ReplayedChange::Put(new), None) => self.insert(*new)?,
            (ReplayedChange::Delta(_) | ReplayedChange::Replacement(_), None) => return Ok(false),
            (change, Some((key, old))) => {
                let new = change.after(old.as_doc())?;
                let skips =
                    |new: &DocBuf| unchanged == Unchanged::Skip && new.as_doc() == old.as_doc();
                if let Some(new) = new.filter(|new| !skips(new)) {
                    self.update(&key, &old, new.as_doc(), change.style())?;
                }
            }
        }
        Ok(true)
    }
}

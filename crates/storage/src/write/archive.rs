//! Archives: where expired documents are copied before they are deleted (`ttl.archive`, expiry
//! contract, section 9).
//!
//! * Another collection: the copy is in the transaction that deletes them, so that at any time
//!   exactly one of the two exists.
//! * Files: the [`ArchiveSink`] stores them durably before that transaction commits. After a crash
//!   or a conflict in between, a document is in the archive and still in the collection, and is
//!   archived again; none is lost.

use crate::isolation::ReadView;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use parking_lot::RwLockReadGuard;

use super::WriteUnit;
use crate::catalog::{Collection, CollectionState, Policy};
use crate::policy::{ArchiveFormat, ArchiveTarget, TtlOptions};
use crate::record::new_uuid;

/// Catalog changes lock collections one after the other, so a wait for a second lock is limited to
/// this.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Writes archive files; implemented above `storage`.
pub trait ArchiveSink: Send + Sync {
    /// Whether the configuration allows this path or URL.
    ///
    /// # Errors
    /// 72 InvalidOptions with the reason.
    fn check(&self, path: &str) -> Result<()>;

    /// Writes one file with these documents. They survive a crash of the machine when this returns.
    ///
    /// # Errors
    /// Any error; the documents are then not deleted.
    fn store(&self, place: &ArchivePlace<'_>, documents: &[RawDoc<'_>]) -> Result<()>;
}

/// The destination of a file, and what it contains.
#[derive(Clone, Copy)]
pub struct ArchivePlace<'a> {
    /// The path in the policy.
    pub path: &'a str,
    /// The format of the file.
    pub format: ArchiveFormat,
    /// The namespace of the documents.
    pub namespace: &'a str,
    /// The name of the policy.
    pub index: &'a str,
    /// Wall time, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A collection that a unit archives into.
pub(crate) struct OpenArchive<'s> {
    namespace: String,
    collection: &'s Arc<Collection>,
    state: RwLockReadGuard<'s, CollectionState>,
}

/// A collection that policies archive into. The error, if it cannot be opened, matters only to a
/// unit that archives into it.
pub(crate) type ArchiveCollection = (Namespace, Result<Arc<Collection>>);

/// Finds the collections that policies archive into, and creates missing ones; implemented above.
pub(crate) trait FindArchives: Send + Sync {
    /// The archives of a collection, and their archives in turn: a hidden document in an archive
    /// that conflicts with a copy is removed by the archive's own policy.
    fn archives_of(&self, view: &ReadView, collection: &Collection) -> Vec<ArchiveCollection>;
}

impl Collection {
    /// The collections that its policies archive into.
    pub(crate) fn archive_names(&self) -> Vec<Namespace> {
        if !self.archives() {
            return Vec::new();
        }
        archive_names(self.archiving().iter().map(|policy| &*policy.options))
    }
}

/// The collections that these policies archive into.
pub(crate) fn archive_names<'t>(policies: impl Iterator<Item = &'t TtlOptions>) -> Vec<Namespace> {
    let named = policies.filter_map(|ttl| match &ttl.archive {
        Some(ArchiveTarget::Collection(ns)) => Some(ns.clone()),
        Some(ArchiveTarget::Files { .. }) | None => None,
    });
    named.collect()
}

impl<'s> OpenArchive<'s> {
    /// Locks the archive's state shared, like that of the unit's own collection.
    ///
    /// # Errors
    /// 112 WriteConflict during a change of the archive, 72 when the collection cannot be one.
    fn open(archive: &'s Arc<Collection>) -> Result<OpenArchive<'s>> {
        let Some(state) = archive.state.try_read_for(LONGEST_WAIT) else {
            return Err(Error::new(ErrorCode::WriteConflict, "the archive is being changed"));
        };
        let namespace = archive.namespace().as_str().to_owned();
        if archive.is_dropped() {
            return Err(Error::new(ErrorCode::WriteConflict, "the archive was dropped"));
        }
        if state.capped.is_some() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("the capped collection {namespace} cannot be an archive"),
            ));
        }
        Ok(OpenArchive { namespace, collection: archive, state })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn collection(&self) -> &'s Arc<Collection> {
        self.collection
    }

    pub(crate) fn state(&self) -> &CollectionState {
        &self.state
    }
}

/// The archives of a unit.
pub(crate) struct OpenArchives<'s>(Vec<(&'s Namespace, Result<OpenArchive<'s>>)>);

impl<'s> OpenArchives<'s> {
    pub(crate) fn open(archives: &'s [ArchiveCollection]) -> OpenArchives<'s> {
        let opened = archives.iter().map(|(ns, archive)| match archive {
            Ok(archive) => (ns, OpenArchive::open(archive)),
            Err(error) => (ns, Err(error.clone())),
        });
        OpenArchives(opened.collect())
    }

    pub(crate) fn get(&'s self, ns: &Namespace) -> Result<&'s OpenArchive<'s>> {
        match self.0.iter().find(|(other, _)| *other == ns) {
            Some((_, Ok(open))) if open.namespace == ns.as_str() => Ok(open),
            Some((_, Err(error))) => Err(error.clone()),
            // The archive was renamed, or the policy is newer than the unit.
            _ => Err(Error::new(ErrorCode::WriteConflict, "the archive is being changed")),
        }
    }
}

/// The archives and the sink of a unit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Archives<'s> {
    pub open: Option<&'s OpenArchives<'s>>,
    pub sink: Option<&'s dyn ArchiveSink>,
}

impl WriteUnit<'_> {
    /// Copies documents into the policy's archive, if it has one. The unit holds the documents'
    /// locks.
    ///
    /// # Errors
    /// Errors of the archive; the documents must not be deleted then.
    pub(crate) fn archive(&mut self, policy: &Policy, documents: &[RawDoc<'_>]) -> Result<()> {
        match &policy.options.archive {
            None => Ok(()),
            Some(ArchiveTarget::Collection(ns)) => {
                let Some(archives) = self.archives.open else {
                    return Err(Error::internal("a unit without its archives"));
                };
                let open = archives.get(ns)?;
                // Ids are compared, because names can change. A copy in the same collection would
                // be the document itself.
                if open.collection.id() == self.collection.id() {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        format!("'ttl.archive.collection' must be another collection than {ns}"),
                    ));
                }
                documents.iter().try_for_each(|document| self.copy_into(open, *document))
            }
            Some(ArchiveTarget::Files { path, format }) => {
                let Some(sink) = self.archives.sink else {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        "the server's configuration has no archive any more",
                    ));
                };
                let place = ArchivePlace {
                    path,
                    format: *format,
                    namespace: self.namespace(),
                    index: policy.name(),
                    now_ms: self.now_ms(),
                };
                sink.store(&place, documents)
            }
        }
    }

    /// Copies a document into the archive. If another document has its `_id` there, the copy gets a
    /// new one that contains the old one.
    fn copy_into(&mut self, open: &OpenArchive<'_>, document: RawDoc<'_>) -> Result<()> {
        self.on_collection(open, |unit| {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            let there = match unit.locate(open.collection.id_key(id))? {
                Some(key) => unit.read_stored(&key)?,
                None => None,
            };
            match there {
                None => unit.insert_checked(document),
                // The document is already there, for example after a crash of a unit that archived
                // it.
                Some(there) if there.as_doc() == document => Ok(()),
                Some(_) => unit.insert(under_new_id(document, id).as_doc()),
            }
        })
    }
}

/// The document with `_id: { id: <its own>, archived: UUID }`.
fn under_new_id(document: RawDoc<'_>, id: RawValue<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.start_document("_id").append("id", id);
    out.append("archived", RawValue::Binary { subtype: 4, bytes: &new_uuid() }).end();
    for element in document {
        if element.name_bytes() != b"_id" {
            out.append_element(element);
        }
    }
    out.finish()
}

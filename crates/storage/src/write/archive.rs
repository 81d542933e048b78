//! Archives: where expired documents are put before they go (`ttl.archive`, expiry contract, section 9).
//!
//! * Into another collection: in the transaction that deletes them, so there is no moment with none or two of them.
//! * Into files: the [`ArchiveSink`] has them durably before that transaction commits. A crash, or a conflict, between both
//!   leaves a document in the archive that is still in the collection and comes once more; none is lost.

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

/// Catalog changes take collections one after the other: who waits for one with another in hand waits this long.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Where files go; implemented above.
pub trait ArchiveSink: Send + Sync {
    /// Whether the configuration allows this path or URL.
    ///
    /// # Errors
    /// 72 InvalidOptions that says why not.
    fn check(&self, path: &str) -> Result<()>;

    /// Writes one file with these documents. They survive a crash of the machine when this returns.
    ///
    /// # Errors
    /// Whatever went wrong; then nothing of them is deleted.
    fn store(&self, place: &ArchivePlace<'_>, documents: &[RawDoc<'_>]) -> Result<()>;
}

/// Which file.
#[derive(Clone, Copy)]
pub struct ArchivePlace<'a> {
    /// As the policy names it.
    pub path: &'a str,
    /// How it is written.
    pub format: ArchiveFormat,
    /// Whence the documents come.
    pub namespace: &'a str,
    /// The policy.
    pub index: &'a str,
    /// Wall time, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A collection that is an archive for the length of a unit.
pub(crate) struct OpenArchive<'s> {
    namespace: String,
    collection: &'s Arc<Collection>,
    state: RwLockReadGuard<'s, CollectionState>,
}

/// A collection that policies archive into, by its name; why there is none matters to those who need it only.
pub(crate) type ArchiveCollection = (Namespace, Result<Arc<Collection>>);

/// Finds the collections that policies archive into, and makes them where they are missing; implemented above.
pub(crate) trait FindArchives: Send + Sync {
    /// Those of a collection, and theirs: what is hidden in an archive and in the way of a document goes by the archive's own
    /// policy.
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
    /// Takes the archive's state shared, as a unit does with its own collection.
    ///
    /// # Errors
    /// 112 WriteConflict when somebody is changing the archive, 72 when it cannot be one.
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

/// Those that are archives for the length of a unit.
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
            // It was renamed, or the policy is newer than the unit.
            _ => Err(Error::new(ErrorCode::WriteConflict, "the archive is being changed")),
        }
    }
}

/// What a unit knows of archives.
#[derive(Clone, Copy, Default)]
pub(crate) struct Archives<'s> {
    pub open: Option<&'s OpenArchives<'s>>,
    pub sink: Option<&'s dyn ArchiveSink>,
}

impl WriteUnit<'_> {
    /// Puts documents where the policy archives them, if it does. They must be under the unit's lock.
    ///
    /// # Errors
    /// Those of the archive: then nothing may be deleted.
    pub(crate) fn archive(&mut self, policy: &Policy, documents: &[RawDoc<'_>]) -> Result<()> {
        match &policy.options.archive {
            None => Ok(()),
            Some(ArchiveTarget::Collection(ns)) => {
                let Some(archives) = self.archives.open else {
                    return Err(Error::internal("a unit without its archives"));
                };
                let open = archives.get(ns)?;
                // Names change hands, ids do not. A copy in the same collection would be the document itself.
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

    /// A copy in the archive. If another document has its `_id` there, it gets a new one that holds the old one.
    fn copy_into(&mut self, open: &OpenArchive<'_>, document: RawDoc<'_>) -> Result<()> {
        self.beside(open, |unit| {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            let there = match unit.locate(open.collection.id_key(id))? {
                Some(key) => unit.read_stored(&key)?,
                None => None,
            };
            match there {
                None => unit.insert_checked(document),
                // Archived before, by a unit that was run again by hand.
                Some(there) if there.as_doc() == document => Ok(()),
                Some(_) => unit.insert(under_new_id(document, id).as_doc()),
            }
        })
    }
}

/// The document under `_id: { id: <its own>, archived: UUID }`.
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

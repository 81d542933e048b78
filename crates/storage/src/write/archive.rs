//! Archives: where expired documents are copied before they are deleted (`ttl.archive`, expiry
//! contract, section 9).
//!
//! * Another collection: the copy is in the transaction that deletes them, so that at any time
//!   exactly one of the two exists.
//! * Files: the [`ArchiveSink`] stores them durably before that transaction commits. After a crash
//!   or a conflict in between, a document is in the archive and still in the collection, and is
//!   archived again; none is lost.

use crate::isolation::ReadView;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::WriteUnit;
use super::others::{OpenCollection, OtherCollection};
use crate::catalog::{Collection, Policy};
use crate::policy::{ArchiveFormat, ArchiveTarget, TtlOptions};
use crate::record::new_uuid;

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

/// Finds the collections that policies archive into, and creates missing ones; implemented above.
pub(crate) trait FindArchives: Send + Sync {
    /// The archives of a collection, and their archives in turn: a hidden document in an archive
    /// that conflicts with a copy is removed by the archive's own policy.
    fn archives_of(&self, view: &ReadView, collection: &Collection) -> Vec<OtherCollection>;
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
                let open = self.other(ns)?;
                open.check_uncapped("an archive")?;
                // Ids are compared, because names can change. A copy in the same collection would
                // be the document itself.
                if open.collection().id() == self.collection.id() {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        format!("'ttl.archive.collection' must be another collection than {ns}"),
                    ));
                }
                documents.iter().try_for_each(|document| self.copy_into(open, *document))
            }
            Some(ArchiveTarget::Files { path, format }) => {
                let Some(sink) = self.archive_sink else {
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
    fn copy_into(&mut self, open: &OpenCollection<'_>, document: RawDoc<'_>) -> Result<()> {
        self.on_collection(open, |unit| {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            let there = match unit.locate(open.collection().id_key(id))? {
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
    out.append("archived", RawValue::uuid(&new_uuid())).end();
    for element in document {
        if element.name_bytes() != b"_id" {
            out.append_element(element);
        }
    }
    out.finish()
}

//! Archives of expired documents: checks of their destination, and the collections that policies
//! archive into ([`crate::write::FindArchives`]).

use crate::isolation::ReadView;
use mayfly_base::{Error, ErrorCode, Result};

use crate::Store;
use crate::catalog::Collection;
use crate::policy::{ArchiveTarget, TtlOptions};
use crate::write::{FindArchives, OtherCollection};

impl Store {
    /// Checks the destination of a policy's archive.
    ///
    /// # Errors
    /// 72 when the policy's documents cannot be archived there.
    pub(crate) fn check_archive_place(&self, ttl: &TtlOptions) -> Result<()> {
        let Some(ArchiveTarget::Files { path, .. }) = &ttl.archive else {
            return Ok(());
        };
        match self.archive_sink() {
            Some(sink) => sink.check(path),
            None => Err(Error::new(
                ErrorCode::InvalidOptions,
                "'ttl.archive.path' needs an archive in the server's configuration",
            )),
        }
    }
}

impl FindArchives for Store {
    fn archives_of(&self, view: &ReadView, collection: &Collection) -> Vec<OtherCollection> {
        if !collection.archives() {
            return Vec::new();
        }
        let mut archives: Vec<OtherCollection> = Vec::new();
        let mut named = collection.archive_names();
        while let Some(ns) = named.pop() {
            if archives.iter().any(|(other, _)| *other == ns) {
                continue;
            }
            let archive = self.get_or_create(view, &ns).map(|(archive, _)| archive);
            if let Ok(archive) = &archive
                && archive.hides_expired()
            {
                named.extend(archive.archive_names());
            }
            archives.push((ns, archive));
        }
        archives
    }
}

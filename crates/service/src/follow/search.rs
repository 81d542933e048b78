//! Brings the files of search indexes forward: opens them, applies documents, commits and merges.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_search::{Control, SharedCheck};
use mayfly_storage::{Collection, FeedStep, SearchIndex, SearchVersion};
use mayfly_work::OpCtx;
use mayfly_work::current::{self, Current};

use super::builds::{self, Builds};
use super::of_index;
use crate::search::{Followed, OpenSearch};
use crate::server::Service;

impl Service {
    /// Brings the search indexes of a collection forward by one step. An index that fails does not
    /// keep the others from following; the first error is returned when all have had their turn.
    pub(super) fn feed_search(
        &self,
        op: &OpCtx,
        collection: &Collection,
        builds: &mut Builds,
    ) -> Result<FeedStep> {
        let (mut left, mut failure) = (FeedStep::Current, None);
        let indexes = collection.search_indexes();
        for index in indexes.iter() {
            for version in &index.versions {
                if version.is_dropped() || version.failure().is_some() {
                    continue;
                }
                let step = match version.is_ready() {
                    true => self.feed_version(op, collection, index, version),
                    false => {
                        let build = builds.operation(self, collection, index, version);
                        let _entered = current::enter(Current { op: Some(build.clone()) });
                        self.feed_version(&build, collection, index, version)
                    }
                };
                let step = match step {
                    Err(error) if error.code() == ErrorCode::ChangeStreamHistoryLost => {
                        self.fill_again(version).map(|()| FeedStep::More)
                    }
                    Err(_) if version.is_dropped() && !collection.is_dropped() => {
                        Ok(FeedStep::More)
                    }
                    Err(error) if !version.is_ready() && builds::is_killed(&error) => {
                        tracing::info!(namespace = %collection.namespace(), index = &*index.name, "the build of a search index was ended");
                        self.store.give_up_search(version, "its build was ended by killOp".into());
                        Ok(FeedStep::Current)
                    }
                    step => step,
                };
                match step {
                    Ok(step) => left = left.and(step),
                    Err(error) => _ = failure.get_or_insert(error),
                }
            }
        }
        builds.retain(&indexes);
        failure.map_or(Ok(left), Err)
    }

    fn feed_version(
        &self,
        op: &OpCtx,
        collection: &Collection,
        index: &SearchIndex,
        version: &Arc<SearchVersion>,
    ) -> Result<FeedStep> {
        // The files of a build that was killed need not be opened, which may fail.
        op.check_ended()?;
        let Some(open) = self.open_files(index, version)? else { return Ok(FeedStep::Current) };
        let now_micros = self.clock.monotonic_micros();
        let files = Followed { open: &open, now_micros };
        let step = self.store.feed_search(op, collection, version, &files)?;
        if step == FeedStep::Locked {
            return Ok(step);
        }
        match version.is_ready() {
            false => builds::show_progress(op, collection, &open),
            // While more documents follow, none of the segments would last.
            true if step == FeedStep::Current => open.index.prepare()?,
            true => {}
        }
        let is_new = version.is_filled() && !version.is_ready();
        let is_due = is_new || open.commit_due_in(now_micros) == Some(0);
        let is_committed = is_due && self.commit_files(collection, version, &open)?;
        if is_new && is_committed {
            self.store.note_search_ready(collection, version)?;
            open.index.expect_searches();
            tracing::info!(namespace = %collection.namespace(), index = &*index.name, "a search index is ready");
        }
        Ok(step)
    }

    /// The open files of a version. `None`: this program does not accept the definition, for
    /// example one of a later version, which the version of the index notes. Opening it again
    /// would fail in the same way. Errors of the file system are returned, and the step is
    /// repeated.
    fn open_files(
        &self,
        index: &SearchIndex,
        version: &Arc<SearchVersion>,
    ) -> Result<Option<Arc<OpenSearch>>> {
        if let Some(open) = version.files.get::<OpenSearch>() {
            return Ok(Some(open));
        }
        // Files of a build that has not ended contain a part of the documents.
        if !version.is_ready() && !self.store.is_secondary() {
            self.search.remove(version)?;
        }
        let open = match self.search.open(&index.kind, version) {
            Ok(open) => open,
            Err(error) if error.code() == ErrorCode::UnknownError => {
                let why = error.message().to_owned();
                tracing::error!(index = &*index.name, %why, "a search index cannot be used");
                self.store.give_up_search(version, why);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let open = match self.store.open_search(version, open.index.position()) {
            true => open,
            false => {
                self.search
                    .note_rebuild(version, "it is not complete, or has later changes than the log");
                drop(open);
                self.search.remove(version)?;
                self.search.open(&index.kind, version)?
            }
        };
        if version.is_ready() {
            open.index.expect_searches();
        }
        version.files.change(|_: Option<&OpenSearch>| Some(open));
        Ok(version.files.get::<OpenSearch>())
    }

    /// Empties the files of a version that needs a part of the log that was cut.
    fn fill_again(&self, version: &SearchVersion) -> Result<()> {
        self.search
            .note_rebuild(version, "the operation log was cut before the index had followed it");
        version.files.clear();
        self.search.remove(version)?;
        self.store.fill_search_again(version);
        Ok(())
    }

    /// Commits the files, so that a merge may be due. Returns whether they were committed: `fsync`
    /// keeps them as they are.
    fn commit_files(
        &self,
        collection: &Collection,
        version: &SearchVersion,
        open: &OpenSearch,
    ) -> Result<bool> {
        let Some(_writing) = self.store.fsync_lock.try_enter() else { return Ok(false) };
        let Some(position) = self.store.search_position(collection, version)? else {
            return Ok(false);
        };
        open.commit(position)?;
        self.store.note_search_committed(version, position);
        open.wants_merge.store(true, Ordering::Release);
        Ok(true)
    }

    /// Merges files of a collection's indexes that were committed, on a thread of its own.
    pub(super) fn begin_merges(self: &Arc<Service>, collection: &Collection) {
        for index in collection.search_indexes().iter() {
            for version in &index.versions {
                let Some(open) = version.files.get::<OpenSearch>() else { continue };
                if open.wants_merge.swap(false, Ordering::AcqRel)
                    && !open.merging.swap(true, Ordering::AcqRel)
                {
                    let (service, version) = (self.clone(), version.clone());
                    tokio::task::spawn_blocking(move || service.merge_files(&version, &open));
                }
            }
        }
    }

    /// Merges segments until no merge is due.
    fn merge_files(&self, version: &SearchVersion, open: &OpenSearch) {
        let control = Merging { service: self, version };
        while let Some(_writing) = self.store.fsync_lock.try_enter() {
            match open.index.merge(&control) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) if control.check().is_err() => break,
                Err(error) => {
                    let why = ClientData(of_index(error));
                    tracing::warn!(file = version.file, %why, "segments of a search index could not be merged; this is tried again after the next commit");
                    break;
                }
            }
        }
        open.merging.store(false, Ordering::Release);
    }
}

/// Ends a merge when the files are not needed, or must not change.
struct Merging<'m> {
    service: &'m Service,
    version: &'m SearchVersion,
}

impl Control for Merging<'_> {
    fn check(&self) -> Result<()> {
        let service = self.service;
        let ends = service.shutdown.has_begun() || service.store.fsync_lock.count() > 0;
        match ends || self.version.is_dropped() {
            true => Err(Error::new(ErrorCode::Interrupted, "the merge has ended")),
            false => Ok(()),
        }
    }

    /// A merge runs no query.
    fn shared_check(&self) -> SharedCheck {
        Arc::new(|| Ok(()))
    }

    fn is_hidden(&self, _: &[u8]) -> bool {
        false
    }
}

//! The open files of one version of a search index.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::SearchedView;
use mayfly_search::{Change, Definition, Index, IndexError};
use mayfly_storage::{FedDocument, FeedFiles, SearchVersion};
use mayfly_value::RawDoc;
use mayfly_work::memory;

use super::{SearchIndexes, index_kind};

/// The value of [`OpenSearch::uncommitted_since`] of files that lack nothing.
const NOTHING: i64 = i64::MAX;

/// How long changes are only in memory, in microseconds.
const COMMIT_AFTER_MICROS: i64 = 5_000_000;

/// Changes of fewer bytes are not committed early when the process is short of memory.
const LEAST_BYTES_OF_EARLY_COMMIT: u64 = 1 << 20;

/// Open files, attached to their [`SearchVersion`].
pub(crate) struct OpenSearch {
    pub(crate) index: Index,
    pub(crate) definition: Arc<Definition>,
    /// The view whose documents the index contains; `None` for those of the collection.
    view: Option<SearchedView>,
    /// When the oldest change that is only in memory was applied, on the monotonic clock.
    uncommitted_since: AtomicI64,
    /// Whether the part in memory has reached its limit, or the process is short of memory.
    is_full: AtomicBool,
    /// Whether segments were written since the last merge.
    pub(crate) wants_merge: AtomicBool,
    /// Whether a merge is under way.
    pub(crate) merging: AtomicBool,
}

impl SearchIndexes {
    /// The folder of a version's files; `None` if data is in memory only.
    fn folder_of(&self, version: &SearchVersion) -> Option<PathBuf> {
        self.folder.get().map(|folder| folder.join(version.file.to_string()))
    }

    /// Opens the files of a version, or creates them. Damaged files are emptied.
    ///
    /// # Errors
    /// Errors of the definition and of the file system.
    pub(crate) fn open(&self, kind: &str, version: &SearchVersion) -> Result<OpenSearch> {
        let definition = Definition::parse(version.definition.as_doc(), index_kind(kind)?)?;
        let definition = Arc::new(definition);
        let view = version.transformation.as_ref().map(|it| view_of(it.as_doc())).transpose()?;
        let index = match self.folder_of(version) {
            None => Index::in_memory(definition.clone()),
            Some(folder) => match Index::open(&folder, definition.clone()) {
                Err(IndexError::Rebuild(reason)) => {
                    self.note_rebuild(version, &reason);
                    self.remove(version)?;
                    Index::open(&folder, definition.clone()).map_err(of_index)?
                }
                opened => opened.map_err(of_index)?,
            },
        };
        Ok(OpenSearch {
            index,
            definition,
            view,
            uncommitted_since: AtomicI64::new(NOTHING),
            is_full: AtomicBool::new(false),
            wants_merge: AtomicBool::new(false),
            merging: AtomicBool::new(false),
        })
    }

    /// Notes that the files of a version cannot be used and are filled again.
    pub(crate) fn note_rebuild(&self, version: &SearchVersion, reason: &str) {
        self.rebuilds.add(1);
        let file = version.file;
        tracing::warn!(file, reason, "a search index is built again");
    }

    /// Removes the files of a version.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn remove(&self, version: &SearchVersion) -> Result<()> {
        match self.folder_of(version) {
            Some(folder) => remove_folder(&folder),
            None => Ok(()),
        }
    }

    /// Removes the folders of versions that the catalog does not have.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn remove_others(&self, present: &HashSet<u64>) -> Result<()> {
        let Some(folder) = self.folder.get() else { return Ok(()) };
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| of_file(&error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| of_file(&error))?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if number.is_some_and(|number| !present.contains(&number)) {
                remove_folder(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(of_file(&error)),
        _ => Ok(()),
    }
}

fn of_file(error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => ErrorCode::OutOfDiskSpace,
        _ => ErrorCode::InternalError,
    };
    Error::new(code, format!("the files of a search index: {error}"))
}

/// The error of a command for one of an index.
pub(crate) fn of_index(error: IndexError) -> Error {
    match error {
        IndexError::Ended(error) => error,
        IndexError::Io(error) => of_file(&error),
        rebuild @ IndexError::Rebuild(_) => Error::internal(rebuild.to_string()),
    }
}

impl OpenSearch {
    /// Whether a document is to be in the index.
    pub(crate) fn contains(&self, document: RawDoc<'_>) -> bool {
        match &self.view {
            None => self.index.contains(document),
            Some(view) => {
                let shown = view.indexed(document).ok().flatten();
                shown.is_some_and(|shown| self.index.contains(shown.as_doc()))
            }
        }
    }

    /// The time until the files are to be committed, in microseconds; `None` if they lack nothing.
    pub(crate) fn commit_due_in(&self, now_micros: i64) -> Option<i64> {
        let since = self.uncommitted_since.load(Ordering::Acquire);
        if since == NOTHING {
            return None;
        }
        let due = since.saturating_add(COMMIT_AFTER_MICROS).saturating_sub(now_micros);
        Some(if self.is_full.load(Ordering::Acquire) { 0 } else { due.max(0) })
    }

    /// Writes a commit at this position of the log.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn commit(&self, position: u64) -> Result<()> {
        self.index.commit(position).map_err(of_index)?;
        self.uncommitted_since.store(NOTHING, Ordering::Release);
        self.is_full.store(false, Ordering::Release);
        Ok(())
    }
}

/// The stages of a version's view.
///
/// # Errors
/// 8 for stages that this program does not accept.
fn view_of(transformation: RawDoc<'_>) -> Result<SearchedView> {
    let unusable = |error: Error| Error::new(ErrorCode::UnknownError, error.message());
    SearchedView::of_transformation(transformation).map_err(unusable)
}

fn change(fed: &FedDocument) -> Change<'_> {
    let record_key = &fed.id_key;
    match &fed.document {
        Some((version_ms, document)) => {
            Change::Put { record_key, version_ms: *version_ms, document: document.as_doc() }
        }
        None => Change::Delete { record_key },
    }
}

/// The files as the follower sees them.
pub(crate) struct Followed<'f> {
    pub(crate) open: &'f OpenSearch,
    pub(crate) now_micros: i64,
}

/// A document as a view shows it. One that the view does not show leaves the index.
fn shown_by(view: &SearchedView, fed: &FedDocument) -> Result<FedDocument> {
    let document = match &fed.document {
        Some((version_ms, document)) => {
            view.indexed(document.as_doc())?.map(|shown| (*version_ms, shown))
        }
        None => None,
    };
    Ok(FedDocument { id_key: fed.id_key.clone(), document })
}

impl FeedFiles for Followed<'_> {
    fn apply(&self, documents: &[FedDocument]) -> Result<()> {
        let shown;
        let documents = match &self.open.view {
            None => documents,
            Some(view) => {
                shown =
                    documents.iter().map(|fed| shown_by(view, fed)).collect::<Result<Vec<_>>>()?;
                &shown
            }
        };
        let changes: Vec<Change<'_>> = documents.iter().map(change).collect();
        self.open.uncommitted_since.fetch_min(self.now_micros, Ordering::AcqRel);
        let is_full = self.open.index.apply(&changes)
            || memory::is_short()
                && self.open.index.sizes().memory_bytes >= LEAST_BYTES_OF_EARLY_COMMIT;
        if is_full {
            self.open.is_full.store(true, Ordering::Release);
        }
        Ok(())
    }
}

//! Writing the entries of a backup into a new store in the folder.

use std::sync::Arc;

use mayfly_base::Clock;
use mayfly_repository::{Manifest, Repository};
use mayfly_storage::{EntriesWriter, MAX_RUN_BYTES};

use super::files::shown_transfer;
use super::{RestoreFlags, store};
use crate::backup::{entries, failed};

/// Writes all entries. What an earlier run has left of them is removed.
///
/// # Errors
/// A [`Failure`](crate::failure::Failure).
pub(super) async fn fetch(
    (repository, manifest): (&Repository, &Manifest),
    flags: &RestoreFlags,
    clock: &Arc<dyn Clock>,
    tried: &dyn Fn() -> String,
) -> anyhow::Result<()> {
    let of_store = |error: mayfly_base::Error| store::failed(&error, tried());
    let engine = store::open_engine(&flags.dbpath).map_err(of_store)?;
    let (transfer, bar) = shown_transfer(manifest, flags, clock);
    // The marker in the folder says that what it contains is from an earlier run.
    let mut writer = EntriesWriter::replace(engine.clone()).map_err(of_store)?;
    for file in &manifest.files {
        let content = repository.read_content(file, MAX_RUN_BYTES as u64, &transfer).await;
        let content = content.map_err(|error| failed::repository(tried(), error))?;
        let run = entries::unpack(file, &content).map_err(of_store)?;
        drop(content);
        let path = &file.path;
        let written = writer.write_run(&run);
        written.map_err(|error| of_store(error.in_context(format_args!("'{path}'"))))?;
    }
    writer.finish().map_err(of_store)?;
    bar.finish_and_clear();
    let closed = engine.close();
    closed.map_err(|error| of_store(mayfly_storage::of_engine(error)))
}

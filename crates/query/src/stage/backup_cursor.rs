//! `$backupCursor`: the files of a consistent copy of the store, for programs that copy them.
//!
//! ```text
//! { metadata: { backupId, dbpath, oplogStart: { ts, t }, oplogEnd: { ts, t }, checkpointTimestamp } }
//! { filename: "/data/_tmp/backup-../000012.sst", fileSize: NumberLong(..) }
//! ..
//! ```
//!
//! The stage of Percona Server names files of the data folder that stay as they are while the
//! cursor is open. Here they are in a folder of their own, `dbpath`, which is removed when the
//! cursor is closed: by `killCursors`, or when no `getMore` came for `cursorTimeoutMillis` (ten
//! minutes). The copy contains all commits up to `checkpointTimestamp`, and needs no extension.

use std::ops::ControlFlow;
use std::path::Path;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{BackupPoint, CheckpointFile, Direction, LogRange, StoreSession};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::PipelineContext;
use super::source::{About, RunningSource, Source};
use crate::language::metadata::Metadata;
use crate::stage::Host;

#[derive(Debug)]
struct BackupCursor;

/// The open copy, and the number of documents that were returned.
struct OpenCopy {
    point: BackupPoint,
    backup_id: [u8; 16],
    first_entry: u64,
    returned: usize,
}

/// Parses the stage, which has no options.
///
/// # Errors
/// 9 FailedToParse.
pub(crate) fn parse(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Source>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(Box::new(BackupCursor)),
        RawValue::Document(_) => {
            let text = "$backupCursor has no options: it lists the files of a full copy";
            Err(Error::new(ErrorCode::InvalidOptions, text))
        }
        other => {
            let kind = other.type_name();
            let text = format!(
                "$backupCursor parameters must be specified in an object, but found: {kind}"
            );
            Err(Error::failed_to_parse(text))
        }
    }
}

impl Source for BackupCursor {
    fn about(&self) -> About {
        About::Admin
    }

    fn start(&self, session: StoreSession<'_>, _: &dyn Host) -> Result<Box<dyn RunningSource>> {
        let point = session.store.backup_point_of_cursor(session.op)?;
        let mut first_entry = point.time;
        let all = LogRange { first: 0, last: point.time };
        session.store.oplog().read(all, Direction::Forward, &mut |entry| {
            first_entry = entry.timestamp();
            Ok(ControlFlow::Break(()))
        })?;
        let backup_id = mayfly_storage::new_uuid();
        Ok(Box::new(OpenCopy { point, backup_id, first_entry, returned: 0 }))
    }
}

impl OpenCopy {
    fn folder(&self) -> &Path {
        self.point.checkpoint().map_or(Path::new(""), |checkpoint| &checkpoint.folder)
    }

    fn files(&self) -> &[CheckpointFile] {
        self.point.checkpoint().map_or(&[], |checkpoint| &checkpoint.files)
    }

    fn metadata(&self) -> DocBuf {
        let time = |out: &mut DocBuilder, name: &str, time: u64| {
            out.start_document(name).append("ts", RawValue::Timestamp(time));
            out.append("t", 1i64).end();
        };
        let mut out = DocBuilder::new();
        out.start_document("metadata");
        out.append("backupId", RawValue::uuid(&self.backup_id));
        out.append("dbpath", &*self.folder().to_string_lossy());
        time(&mut out, "oplogStart", self.first_entry);
        time(&mut out, "oplogEnd", self.point.time);
        out.append("checkpointTimestamp", RawValue::Timestamp(self.point.time)).end();
        out.finish()
    }

    fn file(&self, name: &str) -> Result<DocBuf> {
        let path = self.folder().join(name);
        let size = std::fs::metadata(&path).map_err(|error| {
            let text = format!("cannot read {}: {error}", path.display());
            Error::new(ErrorCode::FileStreamFailed, text)
        })?;
        let mut out = DocBuilder::new();
        out.append("filename", &*path.to_string_lossy());
        out.append("fileSize", i64::try_from(size.len()).unwrap_or(i64::MAX));
        Ok(out.finish())
    }
}

impl RunningSource for OpenCopy {
    fn next(&mut self, _: StoreSession<'_>) -> Result<Option<(DocBuf, Metadata)>> {
        self.point.check()?;
        self.point.renew();
        let document = match self.returned.checked_sub(1) {
            None => self.metadata(),
            Some(at) => match self.files().get(at) {
                Some(file) => self.file(&file.name)?,
                None => return Ok(None),
            },
        };
        self.returned += 1;
        Ok(Some((document, Metadata::default())))
    }

    fn is_over(&self) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        self.returned > self.files().len()
    }
}

//! A partition of `$setWindowFields`: its documents, and the columns that the functions compute.
//!
//! A partition that fits memory stays there with its columns. Otherwise the documents are written
//! to a file, and each function reads them as a stream ([`WindowStream`]): only a running state, or
//! the documents of a window with the fields that the function reads, are in memory.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::window::{DocumentReader, StreamMemory, WindowFunction, WindowStream};
use mayfly_mql::Projection;
use mayfly_value::{DocBuf, ValueBuf};
use mayfly_work::current::spend;
use mayfly_work::spill::Operator;

use super::StageContext;
use super::unwind::replaced;
use crate::language::needed::keeping;
use crate::memory::{Share, Spool, SpoolWriter, no_disk_use};

/// Approximate memory of a document or a value beyond its bytes.
const ENTRY_BYTES: usize = 64;
/// Documents between two checks of the deadline.
const CHUNK_DOCUMENTS: usize = 256;

/// The fields of `output`.
pub(super) type Output = [(Vec<String>, WindowFunction)];

/// Columns in memory, one for each field of `output`.
type Columns = Vec<std::vec::IntoIter<Option<Arc<ValueBuf>>>>;

/// Work of reading a document, in units of [`spend`].
const READ_UNITS: usize = 4;

/// Memory of a value in a column.
fn value_bytes(value: Option<&ValueBuf>) -> usize {
    size_of::<Option<ValueBuf>>() + value.map_or(0, ValueBuf::heap_bytes)
}

/// A partition that is being collected.
pub(super) struct Collecting {
    documents: Vec<DocBuf>,
    count: usize,
    bytes: usize,
    share: Share,
    spool: Option<SpoolWriter>,
}

fn too_large(limit: usize) -> Error {
    let text = format!(
        "Exceeded memory limit in $setWindowFields: a window or the state of a function takes more than {limit} bytes"
    );
    Error::new(ErrorCode(5414201), text)
}

impl Collecting {
    pub(super) fn new(context: &StageContext<'_>) -> Collecting {
        let share = context.settings.budget.share(Operator::WindowFields);
        Collecting { documents: Vec::new(), count: 0, bytes: 0, share, spool: None }
    }

    /// Adds the next document.
    ///
    /// # Errors
    /// 292 if the documents exceed the memory and may not spill, errors of files.
    pub(super) fn push(&mut self, document: DocBuf) -> Result<()> {
        self.count += 1;
        if let Some(spool) = &mut self.spool {
            return spool.push(document.as_doc());
        }
        self.bytes += document.as_bytes().len() + ENTRY_BYTES;
        self.documents.push(document);
        // A single document fits, whatever its size.
        if self.share.is_over(self.bytes) && self.documents.len() > 1 {
            self.spill()?;
        }
        Ok(())
    }

    /// Moves the documents to a file.
    fn spill(&mut self) -> Result<()> {
        let Some(folder) = self.share.folder()? else {
            return Err(self.share.failure(|_| no_disk_use("$setWindowFields")));
        };
        let mut spool = SpoolWriter::new(folder)?;
        let documents = std::mem::take(&mut self.documents);
        documents.iter().try_for_each(|document| spool.push(document.as_doc()))?;
        self.share.set(0);
        self.spool = Some(spool);
        Ok(())
    }

    /// The columns of all functions; `None` if they exceed the memory and may spill.
    fn columns(&mut self, context: &StageContext<'_>, output: &Output) -> Result<Option<Columns>> {
        let (share, mut bytes, several) = (&mut self.share, self.bytes, self.count > 1);
        let mut columns = Vec::with_capacity(output.len());
        for (_, function) in output {
            let (mut column, mut full) =
                (Vec::<Option<Arc<ValueBuf>>>::with_capacity(self.count), false);
            let ran = function.run_each(&self.documents, &mut |value| {
                // Equal values of adjacent documents, as in a window over all of them, are stored
                // once.
                let value = match (value, column.last()) {
                    (Some(value), Some(Some(last))) if value == **last => Some(Arc::clone(last)),
                    (value, _) => {
                        bytes += value_bytes(value.as_ref());
                        value.map(Arc::new)
                    }
                };
                if share.is_over(bytes) && several {
                    full = true;
                    return Err(share.failure(|_| no_disk_use("$setWindowFields")));
                }
                column.push(value);
                if column.len().is_multiple_of(CHUNK_DOCUMENTS) {
                    context.session.op.check()?;
                }
                Ok(())
            });
            match ran {
                Err(_) if full && share.may_spill() => return Ok(None),
                ran => ran?,
            }
            columns.push(column.into_iter());
        }
        Ok(Some(columns))
    }

    /// Computes the columns, or starts streams over a file.
    ///
    /// # Errors
    /// Errors of the functions and of files; 292 if the partition exceeds the memory and may not
    /// spill.
    pub(super) fn finish(
        mut self,
        context: &StageContext<'_>,
        output: &Output,
    ) -> Result<Computed> {
        context.session.op.check()?;
        if self.spool.is_none() {
            if let Some(columns) = self.columns(context, output)? {
                let documents = self.documents.into_iter();
                let rows = Rows::InMemory { documents, columns, _share: self.share };
                return Ok(Computed { left: self.count, rows });
            }
            self.spill()?;
        }
        let Some(spool) = self.spool else {
            return Err(Error::internal("a partition is neither in memory nor in a file"));
        };
        let mut share = self.share;
        share.count(context.session.op, spool.spilled());
        let documents = spool.finish()?;
        let start = |(_, function): &(Vec<String>, WindowFunction)| {
            WindowStream::start(function, &mut || {
                Ok(Box::new(Projected::new(&documents, function)))
            })
        };
        let streams = output.iter().map(start).collect::<Result<_>>()?;
        let memory = StreamsMemory { share, held: vec![0; output.len()], at: 0 };
        Ok(Computed { left: self.count, rows: Rows::InFile { documents, streams, memory } })
    }
}

/// Reads documents of a partition with the fields that one function reads.
struct Projected {
    documents: Spool,
    fields: ReadFields,
}

enum ReadFields {
    All,
    None,
    Some(Projection),
}

impl Projected {
    fn new(documents: &Spool, function: &WindowFunction) -> Projected {
        let reads = function.dependencies();
        let fields = match keeping(&reads.paths) {
            _ if reads.whole_document => ReadFields::All,
            _ if reads.paths.is_empty() => ReadFields::None,
            Some(projection) => ReadFields::Some(projection),
            None => ReadFields::All,
        };
        Projected { documents: documents.reader(), fields }
    }
}

impl DocumentReader for Projected {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        spend(READ_UNITS)?;
        let Some(document) = self.documents.next()? else { return Ok(None) };
        match &self.fields {
            ReadFields::All => Ok(Some(document.to_owned())),
            ReadFields::None => Ok(Some(DocBuf::empty())),
            ReadFields::Some(projection) => projection.project(document).map(Some),
        }
    }
}

/// Memory of the streams of all functions.
struct StreamsMemory {
    share: Share,
    /// The memory of each stream.
    held: Vec<usize>,
    /// The index of the stream that is running.
    at: usize,
}

impl StreamMemory for StreamsMemory {
    fn holds(&mut self, bytes: usize) -> bool {
        self.held[self.at] = bytes;
        !self.share.is_over(self.held.iter().sum())
    }

    fn failure(&self) -> Error {
        self.share.failure(too_large)
    }
}

/// A partition with its columns.
pub(super) struct Computed {
    left: usize,
    rows: Rows,
}

enum Rows {
    /// The whole partition in memory.
    InMemory {
        /// Documents in their order.
        documents: std::vec::IntoIter<DocBuf>,
        /// One for each field of `output`.
        columns: Columns,
        /// Memory of the documents.
        _share: Share,
    },
    /// Documents from a file, each with the next result of every stream.
    InFile {
        /// Documents in their order.
        documents: Spool,
        /// One for each field of `output`.
        streams: Vec<WindowStream>,
        memory: StreamsMemory,
    },
}

impl Computed {
    /// Whether no result is left.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The next result.
    ///
    /// # Errors
    /// Errors of files.
    pub(super) fn pop(&mut self, output: &Output) -> Result<Option<DocBuf>> {
        self.left = self.left.saturating_sub(1);
        match &mut self.rows {
            Rows::InMemory { documents, columns, .. } => {
                let Some(mut document) = documents.next() else { return Ok(None) };
                for ((path, _), column) in output.iter().zip(columns) {
                    let value = column.next().flatten();
                    let value = value.as_deref().map(ValueBuf::as_raw);
                    document = replaced(document.as_doc(), path, value);
                }
                Ok(Some(document))
            }
            Rows::InFile { documents, streams, memory } => {
                let Some(document) = documents.next()? else { return Ok(None) };
                let mut document = document.to_owned();
                for (at, ((path, function), stream)) in output.iter().zip(streams).enumerate() {
                    memory.at = at;
                    let value = stream.next(function, memory)?;
                    let value = value.as_ref().map(ValueBuf::as_raw);
                    document = replaced(document.as_doc(), path, value);
                }
                Ok(Some(document))
            }
        }
    }
}

//! A partition of `$setWindowFields`: its documents, and the columns that the functions make of it.
//!
//! What fits memory stays there, its columns included. Otherwise the documents go into a file; each function in turn is given only the fields that it
//! reads, and its column goes into a file, too. So only those fields of one function have to fit memory.

use std::sync::Arc;

use mayfly_base::spill::Operator;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::window::WindowFunction;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

use super::StageContext;
use super::unwind::replaced;
use crate::language::needed::keeping;
use crate::memory::{Share, Spool, SpoolWriter, no_disk_use};

/// Memory of a document or a value beside its bytes, roughly.
const ENTRY_BYTES: usize = 64;
/// Documents between two looks at the deadline.
const CHUNK_DOCUMENTS: usize = 256;

/// The fields of `output`.
pub(super) type Output = [(Vec<String>, WindowFunction)];

/// In memory, one for each field of `output`.
type Columns = Vec<std::vec::IntoIter<Option<Arc<ValueBuf>>>>;

/// In a file, in place of a value that is the one before it.
const SAME: &str = "s";

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
        "Exceeded memory limit in $setWindowFields: what a function reads of one partition takes more than {limit} bytes"
    );
    Error::new(ErrorCode(5414201), text)
}

impl Collecting {
    pub(super) fn new(context: &StageContext<'_>) -> Collecting {
        let share = context.settings.budget.share(Operator::WindowFields);
        Collecting { documents: Vec::new(), count: 0, bytes: 0, share, spool: None }
    }

    /// Takes its next document.
    ///
    /// # Errors
    /// 292 for what does not fit memory and may not leave it, those of files.
    pub(super) fn push(&mut self, document: DocBuf) -> Result<()> {
        self.count += 1;
        if let Some(spool) = &mut self.spool {
            return spool.push(document.as_doc());
        }
        self.bytes += document.as_bytes().len() + ENTRY_BYTES;
        self.documents.push(document);
        // One document fits, however large it is.
        if self.share.is_over(self.bytes) && self.documents.len() > 1 {
            self.spill()?;
        }
        Ok(())
    }

    /// Puts the documents into a file.
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

    /// The columns of all functions; nothing when they do not fit memory and may leave it.
    fn columns(&mut self, context: &StageContext<'_>, output: &Output) -> Result<Option<Columns>> {
        let (share, mut bytes, several) = (&mut self.share, self.bytes, self.count > 1);
        let mut columns = Vec::with_capacity(output.len());
        for (_, function) in output {
            let (mut column, mut full) =
                (Vec::<Option<Arc<ValueBuf>>>::with_capacity(self.count), false);
            let ran = function.run_each(&self.documents, &mut |value| {
                // The same value for many documents (a window over all of them) is there once.
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
                    context.op.check()?;
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

    /// Runs the functions.
    ///
    /// # Errors
    /// Those of the functions; 5414201 when what one of them reads does not fit memory; those of files.
    pub(super) fn finish(
        mut self,
        context: &StageContext<'_>,
        output: &Output,
    ) -> Result<Computed> {
        context.op.check()?;
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
        share.count(context.op, spool.spilled());
        let mut documents = spool.finish()?;
        let mut columns = Vec::with_capacity(output.len());
        for (_, function) in output {
            columns.push(column(context, &mut documents, function, &mut share)?);
        }
        documents.rewind()?;
        Ok(Computed { left: self.count, rows: Rows::InFiles { documents, columns } })
    }
}

/// A column in a file, read from its beginning.
struct StoredColumn {
    cells: Spool,
    last: Option<ValueBuf>,
}

impl StoredColumn {
    /// The next value.
    fn next(&mut self) -> Result<Option<RawValue<'_>>> {
        let cell = self.cells.next()?.unwrap_or(RawDoc::EMPTY);
        match cell.get("v") {
            Some(value) => self.last = Some(value.to_owned()),
            None if cell.is_empty() => return Ok(None),
            None => {}
        }
        Ok(self.last.as_ref().map(ValueBuf::as_raw))
    }
}

/// The column of one function over the documents of a file.
fn column(
    context: &StageContext<'_>,
    documents: &mut Spool,
    function: &WindowFunction,
    share: &mut Share,
) -> Result<StoredColumn> {
    let reads = function.dependencies();
    let kept = if reads.whole_document { None } else { keeping(&reads.paths) };
    let empty = !reads.whole_document && reads.paths.is_empty();
    let (mut partition, mut bytes) = (Vec::new(), 0);
    documents.rewind()?;
    while let Some(document) = documents.next()? {
        let document = match &kept {
            Some(kept) => kept.project(document)?,
            None if empty => DocBuf::empty(),
            None => document.to_owned(),
        };
        bytes += document.as_bytes().len() + ENTRY_BYTES;
        if share.is_over(bytes) {
            return Err(share.failure(too_large));
        }
        partition.push(document);
        if partition.len().is_multiple_of(CHUNK_DOCUMENTS) {
            context.op.check()?;
        }
    }
    let Some(folder) = share.folder()? else { return Err(share.failure(too_large)) };
    let mut column = SpoolWriter::new(folder)?;
    let (mut count, mut last) = (0usize, None);
    function.run_each(&partition, &mut |value| {
        let mut cell = DocBuilder::new();
        match &value {
            Some(_) if value == last => {
                cell.append(SAME, true);
            }
            Some(given) => {
                cell.append("v", given);
                last = value;
            }
            None => {}
        }
        count += 1;
        if count.is_multiple_of(CHUNK_DOCUMENTS) {
            context.op.check()?;
        }
        column.push(cell.finish().as_doc())
    })?;
    share.count(context.op, column.spilled());
    share.set(0);
    Ok(StoredColumn { cells: column.finish()?, last: None })
}

/// A partition with its columns.
pub(super) struct Computed {
    left: usize,
    rows: Rows,
}

enum Rows {
    /// All of it.
    InMemory {
        /// In their order.
        documents: std::vec::IntoIter<DocBuf>,
        /// One for each field of `output`.
        columns: Columns,
        /// Of the documents.
        _share: Share,
    },
    /// One behind the other.
    InFiles {
        /// In their order.
        documents: Spool,
        /// One for each field of `output`.
        columns: Vec<StoredColumn>,
    },
}

impl Computed {
    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The next result.
    ///
    /// # Errors
    /// Those of files.
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
            Rows::InFiles { documents, columns } => {
                let Some(document) = documents.next()? else { return Ok(None) };
                let mut document = document.to_owned();
                for ((path, _), column) in output.iter().zip(columns) {
                    let value = column.next()?;
                    document = replaced(document.as_doc(), path, value);
                }
                Ok(Some(document))
            }
        }
    }
}

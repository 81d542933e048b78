//! `insert`.

use mayfly_value::arguments::{Argument, Form};
use std::cell::Cell;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_query::EncryptedWrites;
use mayfly_storage::{self as storage, WriteUnit, is_empty_timestamp};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, new_object_id};

use super::write::{
    DocumentRules, WriteOptions, WriteResults, check_count, ends_command, on_collection,
};
use super::{encrypted, measurements};
use crate::context::retry::Attempt;
use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::arguments::INFORMATION;
use crate::request::row::{Audited, InTransaction, RowFlags, Writes};
use crate::request::{Needs, OpKind, Request};
use crate::rules::length::{UNIT_DOCUMENTS, Work};
use crate::rules::rights::demands;

/// The most documents of one write unit if they have encrypted values: a range has a document of
/// the state for each of its edges.
const UNIT_ENCRYPTED: usize = 16;
/// The approximate size limit of one write unit, in bytes.
const UNIT_BYTES: usize = 1 << 20;

pub(crate) const ROW: Command = Command::new("insert", "Inserts documents", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::insert))
    .audited(Audited::Documents)
    .flags(RowFlags::STABLE)
    .writes(Writes::Repeatable)
    .in_transaction(InTransaction::Statement)
    .kind(OpKind::Insert);
const ARGUMENTS: &[Argument] = &[
    Argument::array("documents").required(),
    Argument::bool("ordered"),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::new("stmtId", Form::Int32),
    Argument::array("stmtIds"),
    INFORMATION,
    COLLECTION_UUID,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    measurements::check_changeable(ctx, &ns)?;
    let options = WriteOptions::parse(&fields)?;
    let Some(documents) = request.documents("documents")? else {
        return Err(fields.missing("documents"));
    };
    check_count(documents.len())?;
    let encrypted = encrypted::writes(ctx, &ns, &fields)?;
    let length = Work::Inserts { documents: documents.len(), bytes: request.bytes() }.length();
    let into = (&ns, encrypted.as_deref());
    let results = length.run(|| insert_documents(ctx, into, documents, 0, options))?;
    ctx.count(OpKind::Insert, results.n as u64);
    ctx.service.metrics.documents.inserted.add(results.n as u64);
    results.write(request, reply, None);
    ctx.append_retried(reply);
    Ok(())
}

/// Inserts documents in units, except those that an earlier attempt of the command inserted. Errors
/// of single documents are recorded in the results. The first document is the command's statement
/// with index `base`.
///
/// # Errors
/// Errors that end the whole command.
pub(super) fn insert_documents<'d>(
    ctx: &CommandContext<'_>,
    (ns, encrypted): (&Namespace, Option<&EncryptedWrites>),
    documents: impl ExactSizeIterator<Item = RawDoc<'d>>,
    base: usize,
    options: WriteOptions,
) -> Result<WriteResults> {
    let mut results = WriteResults::default();
    let series = measurements::series_named(ctx, ns).map(|(_, series)| series);
    let unit_documents = match series {
        Some(_) => measurements::UNIT_MEASUREMENTS,
        None if encrypted.is_some() => UNIT_ENCRYPTED,
        None => UNIT_DOCUMENTS,
    };
    let mut chunk = Chunk {
        base,
        first: 0,
        documents: Vec::with_capacity(documents.len().min(UNIT_DOCUMENTS)),
        bytes: 0,
        rules: options.rules,
        encrypted,
        target: match series {
            Some(_) => Target::Measurements,
            None if measurements::buckets_named(ctx, ns).is_some() => Target::Buckets,
            None => Target::Documents,
        },
    };
    let mut stopped = false;
    let total = documents.len();
    for (index, document) in documents.enumerate() {
        let attempt = ctx.attempt(base + index)?;
        let prepared = match &series {
            Some(series) => measurements::prepare(ctx, document, series, options.rules),
            None => prepare(ctx, document, options.rules),
        };
        match (attempt, prepared) {
            (Attempt::Again(_), _) => {
                stopped = chunk.flush(ctx, ns, options, index + 1, &mut results)?;
                results.n += i64::from(!stopped);
            }
            (Attempt::First(_), Ok(document)) => {
                // With a large document, the unit's log entry could exceed the size of a document.
                if chunk.bytes + document.doc().as_bytes().len() > UNIT_BYTES {
                    stopped = chunk.flush(ctx, ns, options, index, &mut results)?;
                }
                if !stopped {
                    chunk.add(document);
                }
            }
            (Attempt::First(_), Err(error)) => {
                stopped = chunk.flush(ctx, ns, options, index + 1, &mut results)?
                    || results.fail(ctx, index, error, options);
            }
        }
        let full = chunk.documents.len() >= unit_documents || chunk.bytes >= UNIT_BYTES;
        if !stopped && (full || index + 1 == total) {
            stopped = chunk.flush(ctx, ns, options, index + 1, &mut results)?;
        }
        if stopped {
            break;
        }
    }
    Ok(results)
}

/// A document in its stored form, borrowed if nothing changes.
pub(super) enum Prepared<'a> {
    As(RawDoc<'a>),
    Changed(DocBuf),
}

impl Prepared<'_> {
    pub(super) fn doc(&self) -> RawDoc<'_> {
        match self {
            Prepared::As(document) => *document,
            Prepared::Changed(document) => document.as_doc(),
        }
    }
}

/// The error for a document of this size.
pub(super) fn too_large(size: usize) -> Error {
    Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "object to insert too large. size in bytes: {size}, max size: {}",
            limits::MAX_USER_DOCUMENT_BYTES
        ),
    )
}

/// Moves `_id` to the front, generates it if it is missing, and fills empty timestamps.
fn prepare<'d>(
    ctx: &CommandContext<'_>,
    document: RawDoc<'d>,
    rules: DocumentRules,
) -> Result<Prepared<'d>> {
    let size = document.as_bytes().len();
    if size > limits::MAX_USER_DOCUMENT_BYTES {
        return Err(too_large(size));
    }
    let (mut first_id, mut has_empty_timestamp) = (None, false);
    for (at, field) in document.iter().enumerate() {
        if field.name_bytes() == b"_id" {
            if first_id.replace(at).is_some() {
                return Err(Error::bad_value("can't have multiple _id fields in one document"));
            }
        } else {
            has_empty_timestamp |= is_empty_timestamp(field);
        }
    }
    if has_empty_timestamp
        && !rules.keep_empty_timestamps
        && let Some(filled) = ctx.service.store.fill_empty_timestamps(document)
    {
        return Ok(Prepared::Changed(match first_id {
            Some(0) => filled,
            _ => id_first(filled.as_doc(), ctx.op.now_ms()),
        }));
    }
    Ok(match first_id {
        Some(0) => Prepared::As(document),
        _ => Prepared::Changed(id_first(document, ctx.op.now_ms())),
    })
}

/// The document with `_id` as its first field.
fn id_first(document: RawDoc<'_>, now_ms: i64) -> DocBuf {
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(document.as_bytes().len() + 24));
    match document.get_element("_id") {
        Some(id) => {
            out.append_element(id);
            for element in document.iter().filter(|element| element.name_bytes() != b"_id") {
                out.append_element(element);
            }
        }
        None => {
            out.append("_id", RawValue::ObjectId(new_object_id(now_ms))).append_all(document);
        }
    }
    out.finish()
}

/// The kind of documents that are inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Documents,
    Measurements,
    Buckets,
}

/// The documents of one write unit.
struct Chunk<'a> {
    /// The index of the command's first document among its statements.
    base: usize,
    /// The index of the first document of the unit.
    first: usize,
    documents: Vec<Prepared<'a>>,
    bytes: usize,
    target: Target,
    rules: DocumentRules,
    /// What the documents need for their encrypted values.
    encrypted: Option<&'a EncryptedWrites>,
}

impl<'a> Chunk<'a> {
    fn add(&mut self, document: Prepared<'a>) {
        self.bytes += document.doc().as_bytes().len();
        self.documents.push(document);
    }

    /// Inserts the collected documents and continues at index `next`; returns whether the command
    /// ends.
    fn flush(
        &mut self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        options: WriteOptions,
        next: usize,
        results: &mut WriteResults,
    ) -> Result<bool> {
        let mut stopped = false;
        if !self.documents.is_empty() {
            let documents = &self.documents;
            let reached = Cell::new(0);
            let first = self.base + self.first;
            let together = self.insert_all(ctx, ns, first, documents, &reached);
            match together {
                Ok(()) => results.n += documents.len() as i64,
                Err(error) if ends_command(ctx, &error) => return Err(error),
                // Nothing is retried: the unit reports how many documents it inserted.
                Err(error) if ctx.store.in_transaction() => {
                    let at = reached.get().min(documents.len() - 1);
                    results.n += at as i64;
                    stopped = results.fail(ctx, self.first + at, error, options);
                }
                Err(error) if documents.len() == 1 => {
                    stopped = results.fail(ctx, self.first, error, options);
                }
                // The disk is full; the documents would not succeed one by one either.
                Err(error) if error.code() == ErrorCode::OutOfDiskSpace => {
                    for at in 0..documents.len() {
                        stopped =
                            stopped || results.fail(ctx, self.first + at, error.clone(), options);
                    }
                }
                // One of the documents failed.
                Err(_) => {
                    stopped = self.in_groups(ctx, ns, options, results, reached.get())?;
                }
            }
        }
        self.documents.clear();
        self.bytes = 0;
        self.first = next;
        Ok(stopped)
    }

    /// Inserts the documents in groups, after a unit of all of them failed: a document that fails
    /// must be alone, and the others should be as many as possible. `size` is the size of the first
    /// group. A group that succeeds doubles it; one that fails is tried again up to the document
    /// that failed.
    fn in_groups(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        options: WriteOptions,
        results: &mut WriteResults,
        mut size: usize,
    ) -> Result<bool> {
        let mut at = 0;
        while at < self.documents.len() {
            let rest = &self.documents[at..];
            let group = &rest[..size.clamp(1, rest.len())];
            let reached = Cell::new(0);
            match self.insert_all(ctx, ns, self.base + self.first + at, group, &reached) {
                Ok(()) => {
                    results.n += group.len() as i64;
                    at += group.len();
                    size = 2 * group.len();
                }
                Err(error) if ends_command(ctx, &error) => return Err(error),
                Err(error) if group.len() == 1 => {
                    if results.fail(ctx, self.first + at, error, options) {
                        return Ok(true);
                    }
                    at += 1;
                }
                Err(_) if reached.get() < group.len() => size = reached.get(),
                // The commit failed.
                Err(_) => size = group.len() / 2,
            }
        }
        Ok(false)
    }

    fn insert_all(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        first: usize,
        documents: &[Prepared<'_>],
        reached: &Cell<usize>,
    ) -> Result<()> {
        if self.target != Target::Measurements {
            return self.insert_documents(ctx, ns, first, documents, reached);
        }
        ctx.op.check()?;
        measurements::insert_all(ctx, ns, documents, |unit| match &ctx.retry {
            Some(retry) => retry.record_inserts(unit, first, documents.len()),
            None => Ok(()),
        })?;
        match &ctx.retry {
            Some(retry) => retry.note_inserts(first, documents.len()),
            None => Ok(()),
        }
    }

    /// Inserts documents in one unit; `first` is the index of the first statement. After an error,
    /// `reached` is the index of the document that failed; the number of documents if the unit
    /// failed after all of them.
    fn insert_documents(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        first: usize,
        documents: &[Prepared<'_>],
        reached: &Cell<usize>,
    ) -> Result<()> {
        ctx.op.check()?;
        let bytes = documents.iter().map(|document| document.doc().as_bytes().len()).sum();
        let write = |unit: &mut WriteUnit<'_>| {
            unit.reserve(documents.len(), bytes);
            if self.rules.bypass_validation {
                unit.bypass_validation();
            }
            unit.expect_inserts(documents.iter().map(Prepared::doc))?;
            for (at, document) in documents.iter().enumerate() {
                reached.set(at);
                match self.encrypted {
                    Some(encrypted) => encrypted.insert(unit, document.doc())?,
                    None => unit.insert_checked(document.doc())?,
                }
            }
            reached.set(documents.len());
            match &ctx.retry {
                Some(retry) => retry.record_inserts(unit, first, documents.len()),
                None => Ok(()),
            }
        };
        let others = self.encrypted.map_or(&[][..], EncryptedWrites::others);
        match self.target {
            Target::Buckets => measurements::restore_all(ctx, ns, write)?,
            _ => on_collection(ctx, ns, |collection| {
                let options = storage::WriteOptions::new(ctx.op, ctx.store.view, collection);
                ctx.service.store.write_with(options.with_others(others), write)
            })?,
        }
        match &ctx.retry {
            Some(retry) => retry.note_inserts(first, documents.len()),
            None => Ok(()),
        }
    }
}

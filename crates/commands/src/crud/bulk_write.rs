//! `bulkWrite`: inserts, updates and deletes over several collections in one command.
//!
//! The operations run in order; their results are the documents of a cursor. Adjacent operations on
//! one collection share write units, as those of `insert`, `update` and `delete` do.

mod operation;
mod results;

use std::sync::Arc;

use crate::request::arguments::{CURSOR, INFORMATION};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_query::{Cursor, CursorSource, EncryptedWrites, ModifyOutcome};
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuilder, RawDoc};

use super::encrypted;
use super::insert::insert_documents;
use super::measurements::{check_changeable, series_named};
use super::read::{FirstBatch, first_batch};
use super::together::{Proceed, run_all};
use super::write::{WriteOptions, check_count};
use crate::context::{Command, CommandContext};
use crate::request::row::{
    Audited, Encrypted, Expected, Hides, InTransaction, Names, RowFlags, Writes,
};
use crate::request::{Fields, Needs, OpKind, Request};
use crate::rules::rights::demands;
use operation::{Action, Change, Operation};
use results::{ListedResults, OperationKind, Outcome, Results};

pub(crate) const ROW: Command = Command::new("bulkWrite", "Writes to several collections", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::bulk_write))
    .audited(Audited::Documents)
    .since("8.0")
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::STABLE))
    .writes(Writes::Repeatable)
    .in_transaction(InTransaction::Statement)
    .names(Names::List)
    .hides(Hides::Users)
    .expected(Expected::Long)
    .encrypted(Encrypted::Statements { list: "ops", filter: "filter", in_namespaces: true });

const ARGUMENTS: &[Argument] = &[
    Argument::array("ops").required().parts(operation::UPDATE),
    Argument::array("nsInfo").required().parts(NAMESPACE),
    Argument::bool("ordered"),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::document("let"),
    Argument::bool("errorsOnly"),
    Argument::fields("cursor", CURSOR),
    Argument::new("stmtId", Form::Int32),
    Argument::array("stmtIds"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let options = WriteOptions::parse(&fields)?;
    let variables = fields.document("let")?;
    let listed = match fields.bool("errorsOnly")? {
        Some(true) => ListedResults::Errors,
        _ => ListedResults::All,
    };
    let batch = FirstBatch { size: batch_size(&fields)?, ..FirstBatch::default() };
    let Some(ops) = request.documents("ops")? else { return Err(fields.missing("ops")) };
    let Some(infos) = request.documents("nsInfo")? else { return Err(fields.missing("nsInfo")) };
    check_count(ops.len())?;
    let named = |info| {
        let ns = namespace(ctx, info)?;
        // With `rawData` the name of a time series stands for its buckets.
        let raw = request.generic.raw_data && series_named(ctx, &ns).is_some();
        Ok(raw.then(|| TimeSeries::buckets_of(&ns)).flatten().unwrap_or(ns))
    };
    let namespaces = infos.clone().map(named).collect::<Result<Vec<_>>>()?;
    // An invalid operation fails the whole command before anything is written.
    let parse = |op| Operation::parse(op, namespaces.len(), variables, options.rules);
    let mut operations = ops.map(parse).collect::<Result<Vec<_>>>()?;
    let encrypted = encrypted_writes(ctx, infos, &namespaces, &mut operations)?;
    ctx.check_repeatable(operations.iter().any(Operation::is_multi).then_some("multi=true"))?;
    let mut results = Results::new(listed);
    let into = (&namespaces[..], encrypted.as_deref());
    execute(ctx, into, operations, options, &mut results)?;
    let shown = Namespace::new("admin", "$cmd.bulkWrite")?;
    let (items, counts) = results.into_parts();
    ctx.count_modified(&counts.changes());
    first_batch(ctx, Cursor::new(shown, CursorSource::Ready(items)), batch, reply)?;
    counts.write(reply);
    ctx.append_retried(reply);
    Ok(())
}

fn batch_size(fields: &Fields<'_>) -> Result<Option<i64>> {
    let Some(cursor) = fields.document("cursor")? else { return Ok(Some(i64::MAX)) };
    let size = Fields::new(cursor, "bulkWrite.cursor").long("batchSize")?;
    Ok(Some(size.unwrap_or(i64::MAX)))
}

/// The fields of an element of `nsInfo`.
const NAMESPACE: &[Argument] = &[
    Argument::string("ns").required(),
    Argument::uuid("collectionUUID"),
    INFORMATION,
    Argument::bool("isTimeseriesNamespace"),
];

fn namespace(ctx: &CommandContext<'_>, info: RawDoc<'_>) -> Result<Namespace> {
    let fields = Fields::read(info, "bulkWrite.nsInfo", NAMESPACE)?;
    let full = fields.string("ns")?.unwrap_or_default();
    let ns = Namespace::parse(full).map_err(|_| {
        let text = format!("Invalid namespace specified for bulkWrite: '{full}'");
        Error::new(ErrorCode::InvalidNamespace, text)
    })?;
    if let Some(uuid) = fields.uuid("collectionUUID") {
        ctx.service.store.check_uuid(&ns, uuid)?;
    }
    Ok(ns)
}

/// What the operations need for encrypted values. They are inserts, or a single operation, on one
/// collection.
///
/// # Errors
/// 2 BadValue for several collections, 72 InvalidOptions for several operations; errors of
/// [`encrypted::writes`] and of an update with encrypted values.
fn encrypted_writes<'d>(
    ctx: &CommandContext<'_>,
    mut infos: impl Iterator<Item = RawDoc<'d>>,
    namespaces: &[Namespace],
    operations: &mut [Operation<'_>],
) -> Result<Option<Arc<EncryptedWrites>>> {
    let is_given = |info: &RawDoc<'_>| info.get(INFORMATION.name).is_some();
    let Some(info) = infos.find(is_given) else { return Ok(None) };
    let [ns] = namespaces else {
        let text = "BulkWrite with Queryable Encryption supports only a single namespace.";
        return Err(Error::bad_value(text));
    };
    let encrypted =
        encrypted::writes(ctx, ns, &Fields::read(info, "bulkWrite.nsInfo", NAMESPACE)?)?;
    let count = operations.len();
    for operation in operations {
        let Action::Change(change) = &mut operation.action else { continue };
        if count != 1 {
            let kind = change.kind();
            let text = format!(
                "BulkWrite {kind} with Queryable Encryption supports only a single operation."
            );
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
        if let Change::Update(statement) = change {
            statement.check_encrypted()?;
            statement.encrypted.clone_from(&encrypted);
        }
    }
    Ok(encrypted)
}

/// Runs the operations until the end, or the first error of an ordered command.
fn execute(
    ctx: &CommandContext<'_>,
    (namespaces, encrypted): (&[Namespace], Option<&EncryptedWrites>),
    operations: Vec<Operation<'_>>,
    options: WriteOptions,
    results: &mut Results,
) -> Result<()> {
    let mut operations = operations.into_iter().enumerate().peekable();
    while let Some((index, Operation { namespace: at, action })) = operations.next() {
        let Some(ns) = namespaces.get(at) else { continue };
        let failed = match action {
            Action::Insert(document) => {
                let mut documents = vec![document];
                while let Some((_, next)) = operations.next_if(|(_, next)| next.inserts_into(at)) {
                    if let Action::Insert(document) = next.action {
                        documents.push(document);
                    }
                }
                insert(ctx, (ns, encrypted), index, &documents, options, results)?
            }
            Action::Change(change) => {
                let mut changes = vec![change];
                while let Some((_, next)) = operations.next_if(|(_, next)| next.changes_in(at)) {
                    if let Action::Change(change) = next.action {
                        changes.push(change);
                    }
                }
                change_all(ctx, ns, index, &changes, options, results)?
            }
        };
        if failed && (options.ordered || ctx.store.in_transaction()) {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs adjacent updates and deletes, the first of which has index `first`; returns whether one
/// failed.
fn change_all(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    first: usize,
    changes: &[Change<'_>],
    options: WriteOptions,
    results: &mut Results,
) -> Result<bool> {
    let mut has_failed = false;
    let mut note = |index: usize, outcome: Result<ModifyOutcome>| {
        let (kind, count, outcome) = match &changes[index - first] {
            Change::Update(_) => {
                (OperationKind::Update, OpKind::Update, outcome.map(Outcome::Updated))
            }
            Change::Delete(_) => {
                let deleted = outcome.map(|outcome| Outcome::Deleted(outcome.matched));
                (OperationKind::Delete, OpKind::Delete, deleted)
            }
        };
        ctx.count(count, 1);
        let failed = results.note(ctx, index, kind, outcome)?;
        has_failed |= failed;
        Ok(match failed && (options.ordered || ctx.store.in_transaction()) {
            true => Proceed::Stop,
            false => Proceed::Continue,
        })
    };
    match check_changeable(ctx, ns) {
        Ok(()) => {
            run_all(ctx, ns, first, changes, &mut note)?;
        }
        Err(error) => {
            for index in first..first + changes.len() {
                if note(index, Err(error.clone()))? == Proceed::Stop {
                    break;
                }
            }
        }
    }
    Ok(has_failed)
}

/// Runs adjacent inserts, the first of which has index `first`; returns whether one failed.
fn insert(
    ctx: &CommandContext<'_>,
    (ns, encrypted): (&Namespace, Option<&EncryptedWrites>),
    first: usize,
    documents: &[RawDoc<'_>],
    options: WriteOptions,
    results: &mut Results,
) -> Result<bool> {
    if let Err(error) = check_changeable(ctx, ns) {
        let refused =
            if options.ordered || ctx.store.in_transaction() { 1 } else { documents.len() };
        for index in first..first + refused {
            results.note(ctx, index, OperationKind::Insert, Err(error.clone()))?;
        }
        return Ok(true);
    }
    let inserted =
        insert_documents(ctx, (ns, encrypted), documents.iter().copied(), first, options)?;
    ctx.count(OpKind::Insert, u64::try_from(inserted.n).unwrap_or(0));
    let mut errors = inserted.into_errors().into_iter().peekable();
    let failed = errors.peek().is_some();
    for at in 0..documents.len() {
        match errors.next_if(|(index, _)| *index == at) {
            None => {
                results.note(ctx, first + at, OperationKind::Insert, Ok(Outcome::Inserted))?;
            }
            Some((_, error)) => {
                results.note(ctx, first + at, OperationKind::Insert, Err(error))?;
                if options.ordered || ctx.store.in_transaction() {
                    break;
                }
            }
        }
    }
    Ok(failed)
}

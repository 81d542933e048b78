//! Entries that are commands: definitions of collections and indexes in the form of the log. They
//! run as client commands after a conversion.

use mayfly_auth::{Action, Target};
use mayfly_base::{ClientData, Error, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::entry::Entry;
use crate::context::{CommandContext, Handler};
use crate::request::Demands;
use crate::request::row::{LogForm, Names, Replayed};
use crate::request::{Request, Row, RowFlags};

/// The prefix of bucket collections.
const BUCKETS: &str = "system.buckets.";

/// Runs the command of an entry.
///
/// # Errors
/// 2 BadValue for a command that no log contains; errors of the command.
pub(super) fn apply(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    entry: &Entry<'_>,
    levels: usize,
) -> Result<()> {
    let command = ctx.commands.find(name(entry)).map(|found| found.command);
    if command.is_some_and(|command| command.row.names == Names::Entries) {
        return super::apply(ctx, request, entry.object, levels, &mut DocBuilder::new());
    }
    let replayed = command.and_then(|command| Some((command, command.row.replayed?)));
    let Some((command, Replayed { form, acceptable })) = replayed else {
        return Err(Error::bad_value(format!("unknown command '{}' in an op", name(entry))));
    };
    let name = command.row.name;
    let Handler::Run(run) = command.handler else {
        return Err(Error::not_implemented(format_args!("the command '{name}' in an op")));
    };
    let body = as_command(form, entry.object);
    let mut inner = Request::inner(&command.row, database(&command.row, entry), body.as_doc());
    inner.generic.write_concern = request.generic.write_concern;
    inner.uuid = entry.uuid;
    match run(ctx, &inner, &mut DocBuilder::new()) {
        Err(error) if acceptable.contains(&error.code()) => {
            let error = ClientData(error);
            tracing::debug!(command = name, %error, "an op of a replayed log had no effect: its result already exists");
            Ok(())
        }
        other => other,
    }
}

/// Demands the rights for the command of an entry; all rights for an unknown command, and for
/// nested entries.
pub(super) fn demand(demands: &mut Demands<'_>, entry: &Entry<'_>) {
    let row = demands.row(name(entry)).and_then(|row| Some((row, row.replayed?.form)));
    let creates = row.is_some_and(|(row, _)| row.flags.contains(RowFlags::CREATES));
    match entry.uuid {
        None => {}
        Some(_) if creates => demands.need(Target::Cluster, Action::ForceUuid),
        // The UUID may select another collection than the name that rights apply to.
        Some(_) => demands.need(Target::Everything, Action::AnyAction),
    }
    let Some((row, form)) = row else {
        return demands.need(Target::Everything, Action::AnyAction);
    };
    let body = as_command(form, entry.object);
    demands.need_for(&Request::inner(row, database(row, entry), body.as_doc()));
}

fn name<'a>(entry: &Entry<'a>) -> &'a str {
    entry.object.iter().next().map_or("", |first| first.name())
}

/// The database in which the command runs.
fn database<'a>(row: &Row, entry: &'a Entry<'_>) -> &'a str {
    match row.flags.contains(RowFlags::ADMIN_ONLY) {
        true => "admin",
        false => entry.ns.db(),
    }
}

/// The command in the form of a client.
fn as_command(form: LogForm, object: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    match form {
        // A log has one entry per index, with the fields of the definition in the command itself.
        LogForm::OneIndex if object.get("indexes").is_none() => {
            let mut fields = object.iter();
            if let Some(first) = fields.next() {
                out.append_element(first);
            }
            out.start_array("indexes").push_document();
            for field in fields.filter(|field| field.name() != "ns") {
                out.append_element(field);
            }
            if object.get("collation").is_none() {
                // Entries are complete: the index does not have the collection's collation.
                out.start_document("collation").append("locale", "simple").end();
            }
            out.end().end();
            out.append("ignoreUnknownIndexOptions", true);
        }
        // In a log, a time series appears as the collection of its buckets.
        LogForm::Buckets if object.get("timeseries").is_some() => {
            let created = object.iter().next().map_or("", |first| first.name());
            for field in object {
                match (field.name(), field.value()) {
                    (field, RawValue::String(name)) if field == created => {
                        out.append(created, name.strip_prefix(BUCKETS).unwrap_or(name));
                    }
                    // Options of the reference for the buckets.
                    ("clusteredIndex" | "validator", _) => {}
                    _ => {
                        out.append_element(field);
                    }
                }
            }
        }
        // The dropped target is named by its UUID there.
        LogForm::DroppedByUuid => {
            for field in object {
                match (field.name(), field.value()) {
                    ("dropTarget", RawValue::Binary { .. }) => out.append("dropTarget", true),
                    _ => out.append_element(field),
                };
            }
        }
        // The definition of the dropped index is only for readers of the log.
        LogForm::WithDefinition => {
            for field in object.iter().filter(|field| field.name() != "spec") {
                out.append_element(field);
            }
        }
        LogForm::Command | LogForm::OneIndex | LogForm::Buckets => {
            out.append_all(object);
        }
    }
    out.finish()
}

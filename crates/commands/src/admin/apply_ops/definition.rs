//! Entries that are commands: definitions of collections and indexes, as the log has them. They run as the commands of
//! clients do, from which some of them differ in their form.

use mayfly_auth::{Action, Target};
use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::entry::Entry;
use crate::access::Demands;
use crate::registry::find;
use crate::{CommandContext, Generic, Handler, Request};

/// What the names of collections of buckets begin with.
const BUCKETS: &str = "system.buckets.";

/// Commands that logs have, and the errors after which a replay goes on: what they want is so already.
const COMMANDS: &[(&str, &[ErrorCode])] = &[
    ("collMod", &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound]),
    ("convertToCapped", &[ErrorCode::NamespaceNotFound]),
    ("create", &[ErrorCode::NamespaceExists]),
    ("createIndexes", &[ErrorCode::IndexAlreadyExists, ErrorCode::NamespaceNotFound]),
    ("deleteIndexes", &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound]),
    ("drop", &[ErrorCode::NamespaceNotFound]),
    ("dropDatabase", &[ErrorCode::NamespaceNotFound]),
    ("dropIndexes", &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound]),
    ("renameCollection", &[ErrorCode::NamespaceNotFound, ErrorCode::NamespaceExists]),
];

/// Runs the command of an entry.
///
/// # Errors
/// 2 BadValue for a command that no log has, those of the command.
pub(super) fn apply(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    entry: &Entry<'_>,
    levels: usize,
) -> Result<()> {
    if name(entry) == "applyOps" {
        return super::apply(ctx, request, entry.object, levels, &mut DocBuilder::new());
    }
    let generic = Generic { write_concern: request.generic.write_concern, ..Generic::default() };
    let Some(result) = with_command(entry, generic, |command, acceptable| {
        let Handler::Run(run) = command.row.handler else {
            let what = format_args!("the command '{}' in an op", command.name);
            return Err(Error::not_implemented(what));
        };
        ctx.collection_uuid = entry.uuid.filter(|_| command.name == "create");
        let result = run(ctx, command, &mut DocBuilder::new());
        ctx.collection_uuid = None;
        match result {
            Err(error) if acceptable.contains(&error.code()) => {
                let (command, error) = (command.name, ClientData(error));
                tracing::debug!(command, %error, "an op of a replayed log found its work done");
                Ok(())
            }
            other => other,
        }
    }) else {
        return Err(Error::bad_value(format!("unknown command '{}' in an op", name(entry))));
    };
    result
}

/// Demands what the command of an entry needs; everything for one that no log has, and for entries in an entry.
pub(super) fn demand(demands: &mut Demands<'_>, entry: &Entry<'_>) {
    match (entry.uuid, name(entry)) {
        (None, _) => {}
        (Some(_), "create") => demands.need(Target::Cluster, Action::ForceUuid),
        // It says more than the name that rights are on.
        (Some(_), _) => demands.need(Target::Everything, Action::AnyAction),
    }
    let run = with_command(entry, Generic::default(), |command, _| demands.need_for(command));
    if run.is_none() {
        demands.need(Target::Everything, Action::AnyAction);
    }
}

fn name<'a>(entry: &Entry<'a>) -> &'a str {
    entry.object.iter().next().map_or("", |first| first.name())
}

/// Does something with the command of an entry, and with the errors after which a replay goes on. Nothing for a command that no log has.
fn with_command<T>(
    entry: &Entry<'_>,
    generic: Generic<'_>,
    act: impl FnOnce(&Request<'_>, &[ErrorCode]) -> T,
) -> Option<T> {
    let (name, acceptable) = COMMANDS.iter().find(|(command, _)| *command == name(entry))?;
    let row = find(name)?.row;
    let db = match *name {
        "renameCollection" => "admin",
        _ => entry.ns.db(),
    };
    let body = as_command(name, entry.object);
    let body = body.as_doc();
    Some(act(&Request { row, name, db, body, generic, sequences: &[] }, acceptable))
}

/// The command as a client would send it.
fn as_command(name: &str, object: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    match name {
        // A log has one entry for each index, with the definition's fields in the command itself.
        "createIndexes" if object.get("indexes").is_none() => {
            let mut fields = object.iter();
            if let Some(first) = fields.next() {
                out.append_element(first);
            }
            out.start_array("indexes").push_document();
            for field in fields.filter(|field| field.name() != "ns") {
                out.append_element(field);
            }
            out.end().end();
            out.append("ignoreUnknownIndexOptions", true);
        }
        // A time series stands in a log as the collection of its buckets.
        "create" if object.get("timeseries").is_some() => {
            for field in object {
                match (field.name(), field.value()) {
                    ("create", RawValue::String(name)) => {
                        out.append("create", name.strip_prefix(BUCKETS).unwrap_or(name));
                    }
                    // The reference's own, for the buckets.
                    ("clusteredIndex" | "validator", _) => {}
                    _ => {
                        out.append_element(field);
                    }
                }
            }
        }
        // What was dropped is named by its UUID there.
        "renameCollection" => {
            for field in object {
                match (field.name(), field.value()) {
                    ("dropTarget", RawValue::Binary { .. }) => out.append("dropTarget", true),
                    _ => out.append_element(field),
                };
            }
        }
        // The definition that was dropped is said for those who follow the log.
        "dropIndexes" | "deleteIndexes" => {
            for field in object.iter().filter(|field| field.name() != "spec") {
                out.append_element(field);
            }
        }
        _ => {
            out.append_all(object);
        }
    }
    out.finish()
}

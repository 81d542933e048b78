//! `compactStructuredEncryptionData` and `cleanupStructuredEncryptionData`: upkeep of the state
//! collections of encrypted fields. The server writes nothing into these collections, so there is
//! nothing to compact while they are empty.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Writes};
use crate::request::{Needs, Request};

pub(super) const COMPACT: Command = Command::new(
    "compactStructuredEncryptionData",
    "Compacts the state of encrypted fields",
    compact,
)
.arguments(ARGUMENTS)
.needs(Needs::Collection(&[Action::CompactStructuredEncryptionData]))
.since("6.0")
.writes(Writes::Settings)
.expected(Expected::Long);
pub(super) const CLEANUP: Command = Command::new(
    "cleanupStructuredEncryptionData",
    "Cleans up the state of encrypted fields",
    cleanup,
)
.arguments(ARGUMENTS)
.needs(Needs::Collection(&[Action::CleanupStructuredEncryptionData]))
.since("7.1")
.writes(Writes::Settings)
.expected(Expected::Long);

const ARGUMENTS: &[Argument] = &[
    Argument::document("compactionTokens"),
    Argument::document("cleanupTokens"),
    Argument::document("encryptionInformation"),
    Argument::document("anchorPaddingTokens"),
];

fn compact(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    check_empty(ctx, request, "compactionTokens")?;
    reply.start_document("stats");
    append_counts(reply, "ecoc", &["read", "deleted"]);
    append_counts(reply, "esc", &["read", "inserted", "updated", "deleted"]);
    reply.end();
    Ok(())
}

fn cleanup(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    check_empty(ctx, request, "cleanupTokens")?;
    reply.start_document("stats");
    append_counts(reply, "esc", &["read", "inserted", "updated", "deleted"]);
    append_counts(reply, "ecoc", &["read", "deleted"]);
    reply.end();
    Ok(())
}

fn append_counts(reply: &mut DocBuilder, part: &str, names: &[&str]) {
    reply.start_document(part);
    for name in names {
        reply.append(name, 0i64);
    }
    reply.end();
}

/// Checks that the collection has encrypted fields, and that their state is empty.
///
/// # Errors
/// 26 NamespaceNotFound, 6346807 for a collection without encrypted fields, 238 for state that
/// another server has written.
fn check_empty(ctx: &CommandContext<'_>, request: &Request<'_>, tokens: &str) -> Result<()> {
    let fields = request.arguments()?;
    for argument in ARGUMENTS {
        fields.document(argument.name)?;
    }
    // Names that no collection can have are not found either.
    let ns = request.namespace();
    let collection = ns.ok().and_then(|ns| ctx.store.collection(&ns));
    let Some(collection) = collection else {
        let name = request.target().as_str().unwrap_or_default();
        let text = format!("Namespace {}.{name} does not exist", request.db);
        return Err(Error::new(ErrorCode::NamespaceNotFound, text));
    };
    let options = collection.options();
    let config = options.as_doc().get("encryptedFields").and_then(RawValue::as_document);
    let Some(config) = config else {
        let text = "Target namespace is not an encrypted collection";
        return Err(Error::new(ErrorCode(6346807), text));
    };
    if fields.get(tokens).is_none() {
        return Err(fields.missing(tokens));
    }
    for (part, suffix) in [("escCollection", "esc"), ("ecocCollection", "ecoc")] {
        let name = state_collection(config, part, collection.namespace().collection(), suffix);
        let state = ctx.store.collection(&Namespace::new(request.db, &name)?);
        let Some(state) = state else { continue };
        if ctx.service.store.count_documents(ctx.op, &state)? > 0 {
            return Err(Error::not_implemented(format_args!(
                "compacting the documents of '{name}'"
            )));
        }
    }
    Ok(())
}

/// The name of a state collection, from the definition or by default.
fn state_collection(config: RawDoc<'_>, part: &str, collection: &str, suffix: &str) -> String {
    match config.get(part).and_then(RawValue::as_str) {
        Some(name) => name.to_owned(),
        None => format!("enxcol_.{collection}.{suffix}"),
    }
}

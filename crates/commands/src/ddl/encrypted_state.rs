//! `compactStructuredEncryptionData` and `cleanupStructuredEncryptionData`: upkeep of the state
//! collections of encrypted fields. Clients send the tokens with which the server reads the queue.
//!
//! Tokens for padding anchors are accepted and not used: how many the reference inserts is not
//! documented, and no query depends on them.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_encryption::{EncryptedFields, check_tokens, parse_tokens};
use mayfly_query::{Upkeep, UpkeepFigures, UpkeepKind};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;
use mayfly_work::current;

use crate::context::{Command, CommandContext};
use crate::crud::encrypted;
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
    let figures = run(ctx, request, ("compactionTokens", UpkeepKind::Compaction))?;
    reply.start_document("stats");
    append_queue(&figures, reply);
    append_counts(&figures, reply);
    reply.end();
    Ok(())
}

fn cleanup(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let figures = run(ctx, request, ("cleanupTokens", UpkeepKind::Cleanup))?;
    reply.start_document("stats");
    append_counts(&figures, reply);
    append_queue(&figures, reply);
    reply.end();
    Ok(())
}

fn append_queue(figures: &UpkeepFigures, reply: &mut DocBuilder) {
    reply.start_document("ecoc").append("read", long(figures.queue_read));
    reply.append("deleted", long(figures.queue_deleted)).end();
}

fn append_counts(figures: &UpkeepFigures, reply: &mut DocBuilder) {
    reply.start_document("esc").append("read", long(figures.counts_read));
    reply.append("inserted", long(figures.counts_inserted));
    reply.append("updated", long(figures.counts_updated));
    reply.append("deleted", long(figures.counts_deleted)).end();
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Runs an upkeep. One runs at a time; another one waits for it.
///
/// # Errors
/// 26 NamespaceNotFound, 6346807 for a collection without encrypted fields, 6346806 if a field has
/// no token, 9 FailedToParse for malformed tokens; errors of [`Upkeep::run`].
fn run(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    (tokens, kind): (&str, UpkeepKind),
) -> Result<UpkeepFigures> {
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
    let config = encrypted::encrypted_fields(&collection).ok_or_else(encrypted::not_encrypted)?;
    let given = fields.document(tokens)?.ok_or_else(|| fields.missing(tokens))?;
    let parsed = parse_tokens(given)?;
    check_tokens(&EncryptedFields::parse(config.as_doc())?, &parsed)?;
    let tokens: Vec<_> = parsed.into_iter().map(|token| (token.field, token.ecoc)).collect();
    let _alone = current::acquire(|longest| ctx.service.encrypted_upkeep.try_lock_for(longest))?;
    let state = &encrypted::state_of(ctx, &collection)?;
    Upkeep { session: ctx.store, state, tokens: &tokens, kind }.run()
}

//! `saslStart`, `saslContinue`, `logout`, and the first step of a login in `hello`.
//!
//! 1. `saslStart`, or `speculativeAuthenticate` of the handshake, contains the client's first
//!    message. The answer has salt and nonce.
//! 2. `saslContinue` contains the client's proof. The answer has the server's proof.
//! 3. Clients that did not request `skipEmptyExchange` acknowledge with another `saslContinue`.
//!    Only then are they logged in. Its payload is not read: most drivers send nothing, Java 3.x
//!    and 4.0 repeat the server's signature.
//!
//! An unknown user, a wrong password, a mechanism that the user does not have, and an address that
//! is not admitted all give the same answer: 18 `Authentication failed.`, at the same step. The log
//! has the reason. A mechanism that this server does not support gives 334.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_auth::scram::{ClientFirst, Conversation};
use mayfly_auth::{Mechanism, UserName};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::OpenLogin;
use mayfly_service::access::{LoginOrigin, LoginStep};
use mayfly_service::metrics::LoginCounts;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use super::certificate;
use crate::context::{Command, CommandContext};
use crate::request::row::{Hides, RowFlags};
use crate::request::{Fields, Needs, Request};

pub(super) const START: Command = Command::new("saslStart", "Begins a login", run_start)
    .arguments(START_ARGUMENTS)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT).union(RowFlags::STABLE))
    .hides(Hides::Secrets);
pub(super) const CONTINUE: Command =
    Command::new("saslContinue", "Continues a login", run_continue)
        .arguments(CONTINUE_ARGUMENTS)
        .needs(Needs::Nothing)
        .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT).union(RowFlags::STABLE))
        .hides(Hides::Secrets);
pub(super) const LOGOUT: Command = Command::new("logout", "Logs the user out", run_logout)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT));

/// The fields that are read; some drivers send others, too.
const START_ARGUMENTS: &[Argument] = &[
    Argument::string("mechanism").required(),
    Argument::any("payload").required(),
    Argument::document("options"),
];
const START_OPTIONS: &[Argument] = &[Argument::flag("skipEmptyExchange").since("4.4")];
const CONTINUE_ARGUMENTS: &[Argument] =
    &[Argument::any("payload").required(), Argument::whole("conversationId")];

/// A connection has one conversation at a time, so all have the same id.
const CONVERSATION_ID: i32 = 1;

/// The answer to the client, whatever the reason.
fn failed() -> Error {
    Error::new(ErrorCode::AuthenticationFailed, "Authentication failed.")
}

/// The user and the mechanism of a login.
pub(super) type Attempt<'a> = (&'a UserName, &'a str);

/// 18 AuthenticationFailed; the reason is logged.
pub(super) fn refuse(
    ctx: &CommandContext<'_>,
    attempt: Attempt<'_>,
    why: impl std::fmt::Display,
) -> Error {
    note(ctx, attempt, ErrorCode::AuthenticationFailed);
    log_refusal(ctx, attempt, why);
    failed()
}

/// 334 MechanismUnavailable: the server does not support the mechanism, which reveals nothing about
/// users.
pub(super) fn refuse_mechanism(ctx: &CommandContext<'_>, attempt: Attempt<'_>) -> Error {
    note(ctx, attempt, ErrorCode::MechanismUnavailable);
    log_refusal(ctx, attempt, "unknown mechanism");
    let (_, mechanism) = attempt;
    let text = format!("Received authentication for mechanism {mechanism} which is not enabled");
    Error::new(ErrorCode::MechanismUnavailable, text)
}

fn log_refusal(ctx: &CommandContext<'_>, attempt: Attempt<'_>, why: impl std::fmt::Display) {
    let (name, _) = attempt;
    let user = if name.user.is_empty() { String::new() } else { name.to_string() };
    tracing::info!(
        component = "ACCESS",
        ctx = &**ctx.connection.desc(),
        client = &*ctx.connection.client,
        user,
        why = %why,
        "Authentication failed"
    );
}

/// Delays the answer to a failed login when logins from the client's address fail often. A login in
/// a handshake is not counted, because the client tries again with a command.
pub(super) fn slow_down(ctx: &CommandContext<'_>, answer: Result<()>) -> Result<()> {
    if answer.as_ref().is_err_and(|error| error.code() == ErrorCode::AuthenticationFailed) {
        let (client, now) = (&ctx.connection.client, ctx.service.clock.monotonic_micros());
        ctx.effects.pause(ctx.service.access.attempts.failed(client, now));
    }
    answer
}

/// Records a login in the audit log.
fn note(ctx: &CommandContext<'_>, attempt: Attempt<'_>, code: ErrorCode) {
    if ctx.service.audit.is_on() {
        ctx.service.audit_login(ctx.connection, attempt, code);
    }
}

/// A message of the mechanism, and its encoding.
struct Payload {
    bytes: Vec<u8>,
    /// Whether it was a string in base64 and not binary data.
    is_text: bool,
}

impl Payload {
    fn parse(fields: &Fields<'_>) -> Result<Payload> {
        match fields.required("payload")? {
            RawValue::Binary { bytes, .. } => Ok(Payload { bytes: bytes.to_vec(), is_text: false }),
            RawValue::String(text) => match STANDARD.decode(text) {
                Ok(bytes) => Ok(Payload { bytes, is_text: true }),
                Err(_) => Err(Error::failed_to_parse("the payload is not valid base64")),
            },
            other => Err(fields.wrong("payload", other, "binData")),
        }
    }

    fn answer(&self, done: bool, message: &[u8], reply: &mut DocBuilder) {
        reply.append("conversationId", CONVERSATION_ID).append("done", done);
        match self.is_text {
            true => reply.append("payload", STANDARD.encode(message).as_str()),
            false => reply.append("payload", RawValue::Binary { subtype: 0, bytes: message }),
        };
    }
}

fn run_start(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    slow_down(ctx, start(ctx, &fields, (request.db, LoginOrigin::Command), reply))
}

fn start(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    (db, origin): (&str, LoginOrigin),
    reply: &mut DocBuilder,
) -> Result<()> {
    abandon(ctx);
    let Some(RawValue::String(mechanism)) = fields.get("mechanism") else {
        return Err(fields.missing("mechanism"));
    };
    let payload = Payload::parse(fields)?;
    let skip_empty = match fields.document("options")? {
        Some(options) => {
            Fields::read_lenient(options, "options", START_OPTIONS)?.bool("skipEmptyExchange")?
        }
        None => None,
    };
    let no_user = UserName::new("", db);
    let Some(mechanism) = Mechanism::by_name(mechanism) else {
        return Err(refuse_mechanism(ctx, (&no_user, mechanism)));
    };
    count(ctx, mechanism.name(), origin).received.add(1);
    let first = ClientFirst::parse(mechanism, &payload.bytes)
        .map_err(|why| refuse(ctx, (&no_user, mechanism.name()), why))?;
    let name = UserName::new(first.user.as_str(), db);
    let access = &ctx.service.access;
    let user = access.find_user(&ctx.service.store, &name)?;
    let stored = user.as_ref().and_then(|user| user.credentials.get(mechanism));
    // The handshake lists the user's mechanisms, and the client must choose one of them. A command
    // fails at the proof instead, as with a wrong password.
    if user.is_some() && stored.is_none() && origin == LoginOrigin::Handshake {
        let attempt = (&name, mechanism.name());
        return Err(refuse(ctx, attempt, "the user does not have the mechanism"));
    }
    let (conversation, message) = Conversation::begin(
        &first,
        &name.id(),
        stored,
        &access.decoys,
        mechanism.default_iterations(),
        &rand::random(),
    );
    payload.answer(false, message.as_bytes(), reply);
    ctx.connection.access.begin_login(OpenLogin {
        name,
        mechanism: mechanism.name(),
        origin,
        step: LoginStep::Proof(Box::new(conversation)),
        skip_empty: skip_empty.unwrap_or(false),
    });
    Ok(())
}

fn run_continue(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    slow_down(ctx, continue_login(ctx, request, reply))
}

fn continue_login(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let protocol = |text: &str| Err(Error::new(ErrorCode::ProtocolError, text));
    // Every error ends the login.
    let Some(login) = ctx.connection.access.take_login() else {
        return protocol("No SASL session state found");
    };
    let fields = request.arguments()?;
    if fields.long("conversationId")? != Some(i64::from(CONVERSATION_ID)) {
        return protocol("sasl: Mismatched conversation id");
    }
    let payload = Payload::parse(&fields)?;
    let OpenLogin { name, mechanism, origin, step, skip_empty } = login;
    let attempt = (&name, mechanism);
    if name.db != request.db {
        return Err(refuse(ctx, attempt, "the database changed"));
    }
    match step {
        LoginStep::Proof(conversation) => {
            let proof =
                conversation.finish(&payload.bytes).map_err(|why| refuse(ctx, attempt, why))?;
            if skip_empty {
                log_in(ctx, attempt, origin)?;
            } else {
                let step = LoginStep::Agreement;
                let login = OpenLogin { name, mechanism, origin, step, skip_empty };
                ctx.connection.access.begin_login(login);
            }
            payload.answer(skip_empty, proof.as_bytes(), reply);
        }
        LoginStep::Agreement => {
            log_in(ctx, attempt, origin)?;
            payload.answer(true, &[], reply);
        }
    }
    Ok(())
}

/// Logs in a user that has proved its identity. The user is read again because it may have been
/// dropped meanwhile.
fn log_in(ctx: &CommandContext<'_>, attempt: Attempt<'_>, origin: LoginOrigin) -> Result<()> {
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let (name, _) = attempt;
    let Some(user) = access.find_user(store, name)? else {
        return Err(refuse(ctx, attempt, "the user was dropped"));
    };
    match access.log_in(store, ctx.connection, &user)? {
        true => {
            note_success(ctx, attempt, origin);
            Ok(())
        }
        false => Err(refuse(ctx, attempt, "authentication restrictions")),
    }
}

/// The counts of logins by a mechanism.
pub(super) fn count<'a>(
    ctx: &'a CommandContext<'_>,
    mechanism: &str,
    origin: LoginOrigin,
) -> &'a LoginCounts {
    match (ctx.service.metrics.logins(mechanism), origin) {
        (Some(logins), LoginOrigin::Command) => &logins.asked,
        (Some(logins), LoginOrigin::Handshake) => &logins.speculative,
        (None, _) => unreachable!("every mechanism has its counts"),
    }
}

/// Records a login in the log, the counters and the registry of connections.
pub(super) fn note_success(ctx: &CommandContext<'_>, attempt: Attempt<'_>, origin: LoginOrigin) {
    let (name, mechanism) = attempt;
    ctx.service.connections.logged_in(ctx.connection);
    count(ctx, mechanism, origin).successful.add(1);
    tracing::info!(
        component = "ACCESS",
        ctx = &**ctx.connection.desc(),
        client = &*ctx.connection.client,
        user = name.to_string(),
        "Authentication succeeded"
    );
    note(ctx, attempt, ErrorCode::OK);
}

/// Ends an unfinished login.
pub(super) fn abandon(ctx: &CommandContext<'_>) {
    if let Some(login) = ctx.connection.access.take_login() {
        note(ctx, (&login.name, login.mechanism), ErrorCode::AuthenticationAbandoned);
    }
}

fn run_logout(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    abandon(ctx);
    if ctx.service.audit.is_on() {
        let reason = format!("Explicit logout from {}", request.db);
        ctx.service.audit_logout(ctx.connection, &reason);
    }
    ctx.connection.access.set(None);
    ctx.service.connections.logged_out(ctx.connection);
    Ok(())
}

/// Appends the login fields of the handshake: the mechanisms of a user, and the answer to the first
/// message of a login. If that message fails, the handshake succeeds without an answer, and the
/// client begins again with a command.
///
/// # Errors
/// 2 BadValue for a user name without a database; errors of the engine.
pub(crate) fn append_handshake(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    match fields.doc().get("saslSupportedMechs") {
        None => {}
        Some(RawValue::String(name)) => append_mechanisms(ctx, name, reply)?,
        Some(RawValue::Document(_)) => {
            return Err(Error::bad_value("UserName must be a string of the form 'database.user'"));
        }
        Some(other) => return Err(fields.wrong("saslSupportedMechs", other, "[string, object]")),
    }
    let Some(RawValue::Document(first)) = fields.get("speculativeAuthenticate") else {
        return Ok(());
    };
    let Some(RawValue::String(db)) = first.get("db") else { return Ok(()) };
    let mut answer = DocBuilder::new();
    let fields = Fields::new(first, "speculativeAuthenticate");
    let begun = match (first.get("saslStart"), first.get("authenticate")) {
        (Some(_), _) => start(ctx, &fields, (db, LoginOrigin::Handshake), &mut answer),
        (None, Some(_)) => {
            certificate::log_in(ctx, &fields, (db, LoginOrigin::Handshake), &mut answer)
        }
        (None, None) => return Ok(()),
    };
    if begun.is_ok() {
        reply.append("speculativeAuthenticate", &answer.finish());
    }
    Ok(())
}

/// Lists all mechanisms for a user that does not exist. The reference lists none, which reveals
/// that the user does not exist.
fn append_mechanisms(ctx: &CommandContext<'_>, name: &str, reply: &mut DocBuilder) -> Result<()> {
    let Some((db, user)) = name.split_once('.') else {
        let text =
            format!("UserName must contain a '.' separated database.user pair, not '{name}'");
        return Err(Error::bad_value(text));
    };
    let user = ctx.service.access.find_user(&ctx.service.store, &UserName::new(user, db))?;
    reply.start_array("saslSupportedMechs");
    match user {
        Some(user) => user.credentials.mechanisms().for_each(|name| {
            reply.push(name);
        }),
        None => Mechanism::ALL.iter().for_each(|one| {
            reply.push(one.name());
        }),
    }
    reply.end();
    Ok(())
}

/// The details in the answer of `connectionStatus`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusDetail {
    /// User and roles.
    Roles,
    /// User, roles and privileges.
    Privileges,
}

/// Appends `authInfo` of `connectionStatus`.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn append_status(
    ctx: &CommandContext<'_>,
    detail: StatusDetail,
    reply: &mut DocBuilder,
) -> Result<()> {
    let user = ctx.service.access.user(&ctx.service.store, ctx.connection)?;
    reply.start_document("authInfo").start_array("authenticatedUsers");
    if let Some(user) = &user {
        reply.push_document();
        reply.append("user", user.name.user.as_str()).append("db", user.name.db.as_str()).end();
    }
    reply.end();
    let roles = user.as_ref().map(|user| user.roles.as_slice()).unwrap_or_default();
    mayfly_auth::RoleName::append_all(roles, "authenticatedUserRoles", reply);
    if detail == StatusDetail::Privileges {
        let listed = user.as_ref().map(|user| user.listed.as_slice()).unwrap_or_default();
        mayfly_auth::Role::append_privileges(listed, "authenticatedUserPrivileges", reply);
    }
    reply.end();
    Ok(())
}

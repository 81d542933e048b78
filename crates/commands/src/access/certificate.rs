//! Logins by a certificate (`MONGODB-X509`), and `rotateCertificates`.
//!
//! The connection uses a client certificate that an authority of the server has signed. Its subject
//! is a user of the database `$external`, or the certificate lists the user's roles itself. A login
//! is a single message, which the handshake may contain.

use mayfly_auth::{Action, Mechanism, UserName};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::access::LoginOrigin;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use super::authenticate::{abandon, count, note_success, refuse, refuse_mechanism, slow_down};
use super::users::EXTERNAL;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Hides, RowFlags};
use crate::request::{Fields, Needs, Request};

pub(super) const AUTHENTICATE: Command = Command::new(
    "authenticate",
    "Logs a user in with the certificate of its connection",
    run_authenticate,
)
.needs(Needs::Nothing)
.flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT).union(RowFlags::STABLE))
.hides(Hides::Secrets);
pub(super) const ROTATE: Command =
    Command::new("rotateCertificates", "Reads certificates and keys again", run_rotate)
        .arguments(&[Argument::string("message")])
        .needs(Needs::Cluster(&[Action::RotateCertificates]))
        .flags(RowFlags::ADMIN_ONLY)
        .expected(Expected::Long);

/// The mechanism's name.
const X509: &str = "MONGODB-X509";

fn run_authenticate(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = Fields::new(request.body, request.row.name);
    slow_down(ctx, log_in(ctx, &fields, (request.db, LoginOrigin::Command), reply))
}

/// Logs the certificate's user in.
///
/// # Errors
/// 17 ProtocolError for another database than `$external`, 334 MechanismUnavailable for an unknown
/// mechanism, otherwise 18 AuthenticationFailed.
pub(super) fn log_in(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    (db, origin): (&str, LoginOrigin),
    reply: &mut DocBuilder,
) -> Result<()> {
    abandon(ctx);
    let no_user = UserName::new("", db);
    match fields.get("mechanism") {
        Some(RawValue::String(X509)) => {}
        Some(RawValue::String(other)) if Mechanism::by_name(other).is_some() => {
            return Err(refuse(ctx, (&no_user, other), "the mechanism needs saslStart"));
        }
        Some(RawValue::String(other)) => return Err(refuse_mechanism(ctx, (&no_user, other))),
        _ => return Err(refuse(ctx, (&no_user, ""), "no mechanism")),
    }
    count(ctx, X509, origin).received.add(1);
    if db != EXTERNAL {
        let text = "X.509 authentication must always use the $external database.";
        return Err(Error::new(ErrorCode::ProtocolError, text));
    }
    let Some(certificate) = ctx.connection.access.certificate.get() else {
        let why = "the client presented no certificate that was verified";
        return Err(refuse(ctx, (&no_user, X509), why));
    };
    let name = UserName::new(certificate.subject.as_str(), EXTERNAL);
    let attempt = (&name, X509);
    match fields.get("user") {
        None | Some(RawValue::Null) => {}
        Some(RawValue::String(user)) if user == certificate.subject => {}
        Some(_) => return Err(refuse(ctx, attempt, "the certificate is another user's")),
    }
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let admitted = match &certificate.roles {
        Some(roles) => access.log_in_certified(store, ctx.connection, &name, roles.clone())?,
        None => match access.find_user(store, &name)?.filter(|user| user.credentials.external) {
            Some(user) => access.log_in(store, ctx.connection, &user)?,
            None => return Err(refuse(ctx, attempt, "there is no such user")),
        },
    };
    if !admitted {
        return Err(refuse(ctx, attempt, "authentication restrictions"));
    }
    note_success(ctx, attempt, origin);
    reply.append("dbname", EXTERNAL).append("user", certificate.subject.as_str());
    Ok(())
}

fn run_rotate(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let message = fields.string("message")?.unwrap_or_default();
    // Without TLS there is nothing to read.
    let Some(transport) = ctx.service.transport.get() else { return Ok(()) };
    transport.rotate()?;
    tracing::info!(component = "NETWORK", message, "certificates were read again");
    Ok(())
}

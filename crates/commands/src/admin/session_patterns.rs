//! `killAllSessionsByPattern`: ends the sessions that match one of several patterns, and their
//! operations. Manual: "killAllSessionsByPattern".
//!
//! A session must match all fields of a pattern. Roles are those that the session's user has now,
//! including inherited ones.

use mayfly_auth::{Action, RoleName};
use mayfly_base::Result;
use mayfly_service::{SessionId, SessionOwner};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::sessions::{kill, target_array};
use crate::context::{Command, CommandContext};
use crate::diagnostics::local_sessions::{ROLE, named_users, names};
use crate::request::generic::{OF_SESSION, session_id, session_owner};
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};
use mayfly_value::arguments::error::wrong_type;

pub(super) const ROW: Command =
    Command::new("killAllSessionsByPattern", "Ends the sessions that match a pattern", run)
        .needs(Needs::Cluster(&[Action::KillAnySession]))
        .since("3.6")
        .flags(RowFlags::LENIENT);

/// The name of a pattern in errors.
const PATTERN: &str = "KillAllSessionsByPattern";

/// The fields of a pattern.
const OF_PATTERN: &[Argument] = &[
    Argument::document("lsid"),
    Argument::any("uid"),
    Argument::array("users"),
    Argument::array("roles"),
];
/// A pattern of sessions.
#[derive(Default)]
struct Pattern {
    id: Option<[u8; 16]>,
    /// The owner must be in each of these lists.
    owners: Vec<Vec<SessionOwner>>,
}

impl Pattern {
    fn describes(&self, session: SessionId) -> bool {
        self.id.is_none_or(|id| id == session.id)
            && self.owners.iter().all(|owners| owners.contains(&session.owner))
    }
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let mut patterns = Vec::new();
    for element in target_array(request)? {
        match element.value() {
            RawValue::Document(pattern) => patterns.push(parse(ctx, pattern)?),
            RawValue::Null | RawValue::Undefined => {}
            other => {
                let path = format!("{0}.{0}.{1}", request.row.name, element.name());
                return Err(wrong_type(&path, other, "object"));
            }
        }
    }
    let described = |session: SessionId| {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.describes(session))
    };
    kill(ctx.service, ctx.op.id(), described);
    let sessions = &ctx.service.sessions;
    for (session, _) in sessions.list(ctx.service.clock.now_ms()) {
        if described(session) {
            sessions.end(session);
        }
    }
    Ok(())
}

fn parse(ctx: &CommandContext<'_>, pattern: RawDoc<'_>) -> Result<Pattern> {
    let fields = Fields::read(pattern, PATTERN, OF_PATTERN)?;
    let mut parsed = Pattern::default();
    if let Some(lsid) = fields.document("lsid")? {
        let lsid = Fields::read(lsid, "LogicalSessionId", OF_SESSION)?;
        parsed.id = Some(session_id(lsid.doc())?.id);
        parsed.owners.extend(session_owner(&lsid)?.map(|owner| vec![owner]));
    }
    parsed.owners.extend(session_owner(&fields)?.map(|owner| vec![owner]));
    if let Some(users) = fields.array("users")?.filter(|users| !users.is_empty()) {
        parsed.owners.push(named_users(users, "KillAllSessionsByPattern.users")?);
    }
    if let Some(roles) = fields.array("roles")?.filter(|roles| !roles.is_empty()) {
        parsed.owners.push(users_with(ctx, roles)?);
    }
    Ok(parsed)
}

/// The users that have one of these roles.
fn users_with(ctx: &CommandContext<'_>, roles: RawDoc<'_>) -> Result<Vec<SessionOwner>> {
    let one = |value: RawValue<'_>| {
        let (role, db) = names(value, ROLE, "KillAllSessionsByPattern.roles")?;
        Ok(RoleName::new(role, db))
    };
    let given = roles.iter().map(|element| element.value());
    let given = given.filter(|role| !matches!(role, RawValue::Null | RawValue::Undefined));
    let requested = given.map(one).collect::<Result<Vec<RoleName>>>()?;
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let known = access.roles(store)?;
    let mut owners = Vec::new();
    access.each_user(store, None, &mut |user| {
        if known.resolve(&user.roles).roles.iter().any(|role| requested.contains(role)) {
            owners.push(SessionOwner::named(&user.name.to_string()));
        }
    })?;
    Ok(owners)
}

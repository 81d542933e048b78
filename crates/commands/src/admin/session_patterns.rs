//! `killAllSessionsByPattern`: ends the sessions that one of several patterns describes, and what runs in them.
//! Manual: "killAllSessionsByPattern".
//!
//! There are no users: every session belongs to nobody, and a pattern that names users or roles describes none.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::SessionId;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::sessions::kill;
use crate::diagnostics::local_sessions::NOBODY;
use crate::fields::wrong_type;
use crate::generic::session_id;
use crate::{CommandContext, Fields, Needs, Request, Row};

pub(super) const ROW: Row =
    Row::new("killAllSessionsByPattern", "Ends the sessions that patterns describe", run)
        .needs(Needs::Cluster(&[Action::KillAnySession]))
        .since("3.6");

/// How errors call a pattern.
const PATTERN: &str = "KillAllSessionsByPattern";

/// Which sessions a pattern describes.
enum Pattern {
    All,
    One(SessionId),
    None,
}

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    let path = format!("{0}.{0}", request.row.name);
    let RawValue::Array(given) = request.target() else {
        return Err(wrong_type(&path, request.target(), "array"));
    };
    let mut patterns = Vec::new();
    for element in given {
        let RawValue::Document(pattern) = element.value() else {
            let path = format!("{path}.{}", element.name());
            return Err(wrong_type(&path, element.value(), "object"));
        };
        patterns.push(parse(pattern)?);
    }
    let described = |session: SessionId| {
        patterns.is_empty()
            || patterns.iter().any(|pattern| match pattern {
                Pattern::All => true,
                Pattern::One(one) => *one == session,
                Pattern::None => false,
            })
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

fn parse(pattern: RawDoc<'_>) -> Result<Pattern> {
    let fields = Fields::strict(pattern, PATTERN, &["lsid", "uid", "users", "roles"])?;
    let lsid = fields.document("lsid")?;
    let mut belongs_to_nobody = true;
    let mut session = None;
    if let Some(lsid) = lsid {
        let lsid =
            Fields::strict(lsid, "LogicalSessionId", &["id", "uid", "txnNumber", "txnUUID"])?;
        session = Some(session_id(lsid.doc())?);
        belongs_to_nobody &= owner(&lsid)?;
    }
    belongs_to_nobody &= owner(&fields)?;
    for (list, member) in [("users", "user"), ("roles", "role")] {
        let Some(names) = fields.array(list)? else { continue };
        for element in names {
            let RawValue::Document(name) = element.value() else {
                let path = format!("{PATTERN}.{list}.{}", element.name());
                return Err(wrong_type(&path, element.value(), "object"));
            };
            let name = Fields::strict(name, format!("{PATTERN}.{list}"), &[member, "db"])?;
            for part in [member, "db"] {
                name.string(part)?.ok_or_else(|| name.missing(part))?;
            }
        }
        belongs_to_nobody &= names.is_empty();
    }
    Ok(match session {
        _ if !belongs_to_nobody => Pattern::None,
        Some(session) => Pattern::One(session),
        None => Pattern::All,
    })
}

/// Whether the `uid` allows for sessions of nobody.
fn owner(fields: &Fields<'_>) -> Result<bool> {
    match fields.get("uid") {
        None => Ok(true),
        Some(RawValue::Binary { bytes, .. }) if bytes.len() == NOBODY.len() => Ok(bytes == NOBODY),
        Some(RawValue::Binary { bytes, .. }) => Err(Error::new(
            ErrorCode::UnsupportedFormat,
            format!("a uid is a digest of {} bytes, not of {}", NOBODY.len(), bytes.len()),
        )),
        Some(other) => Err(fields.wrong("uid", other, "binData")),
    }
}

//! The documents of `$listLocalSessions` and `$listSessions`: the sessions of this server. No other
//! server has any, so both return the same.

use mayfly_auth::UserName;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::SessionOwner;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;
use crate::request::Fields;
use mayfly_value::arguments::error::wrong_type;

/// The options of both stages.
const OPTIONS: &[Argument] = &[
    Argument::bool("allUsers").null_is_value(),
    Argument::array("users"),
    Argument::any("$_internalPredicate"),
];
/// The name of a user.
const USER: &[Argument] = &[Argument::string("user").required(), Argument::string("db").required()];
/// The name of a role.
pub(crate) const ROLE: &[Argument] =
    &[Argument::string("role").required(), Argument::string("db").required()];

/// The sessions that the options select; by default those of the client's user.
///
/// # Errors
/// 14, 40415; 12 UnsupportedFormat for all users and some at once.
pub(crate) fn local_sessions(
    ctx: &CommandContext<'_>,
    stage: &'static str,
    options: RawDoc<'_>,
) -> Result<Vec<DocBuf>> {
    let fields = Fields::read(options, stage, OPTIONS)?;
    let all = fields.bool("allUsers")?.unwrap_or(false);
    let is_named = |users: &RawDoc<'_>| users.iter().any(|user| user.value() != RawValue::Null);
    let users = fields.array("users")?.filter(is_named);
    if all && users.is_some() {
        let text = format!(
            "{stage} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"
        );
        return Err(Error::new(ErrorCode::UnsupportedFormat, text));
    }
    let owners = match users {
        Some(users) => named_users(users, &format!("{stage}.users"))?,
        None => vec![SessionOwner::of(&ctx.authority)],
    };
    let mut sessions = ctx.service.sessions.list(ctx.service.clock.now_ms());
    sessions.retain(|(session, _)| all || owners.contains(&session.owner));
    sessions.sort_unstable();
    let documents = sessions.into_iter().map(|(session, last_use_ms)| {
        let mut doc = DocBuilder::new();
        session.append_to(doc.start_document("_id"));
        doc.end();
        doc.append("lastUse", RawValue::Date(last_use_ms));
        doc.finish()
    });
    Ok(documents.collect())
}

/// The owners in an array of `{ user, db }`, in which null is skipped; `path` is its name in
/// errors.
///
/// # Errors
/// 14, 40414, 40415.
pub(crate) fn named_users(users: RawDoc<'_>, path: &str) -> Result<Vec<SessionOwner>> {
    let one = |value: RawValue<'_>| {
        let name = names(value, USER, path)?;
        Ok(SessionOwner::named(&UserName::new(name.0, name.1).to_string()))
    };
    let users = users.iter().map(|element| element.value());
    users.filter(|user| !matches!(user, RawValue::Null)).map(one).collect()
}

/// The two strings of `{ user, db }` or `{ role, db }`, as declared.
///
/// # Errors
/// 14, 40414, 40415.
pub(crate) fn names<'a>(
    value: RawValue<'a>,
    declared: &'static [Argument],
    path: &'a str,
) -> Result<(&'a str, &'a str)> {
    let RawValue::Document(name) = value else { return Err(wrong_type(path, value, "object")) };
    let fields = Fields::read(name, path, declared)?;
    let part = |part: &Argument| fields.string(part.name).map(Option::unwrap_or_default);
    Ok((part(&declared[0])?, part(&declared[1])?))
}

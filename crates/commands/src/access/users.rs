//! `createUser`, `updateUser`, `dropUser`, `dropAllUsersFromDatabase` and `invalidateUserCache`.

use mayfly_auth::scram::Credential;
use mayfly_auth::{Action, Credentials, Mechanism, RoleName, Target, User};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue, bson};
use zeroize::Zeroizing;

use super::arguments::{custom_data, own_user, restrictions, roles};
use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, Expected, Hides, Names, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};

pub(super) const CREATE: Command = Command::new("createUser", "Creates a user", run_create)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .audited(Audited::User)
    .flags(RowFlags::FIRST_USER)
    .writes(Writes::Documents)
    .names(Names::Word)
    .hides(Hides::Secrets)
    .expected(Expected::Long);
pub(super) const UPDATE: Command =
    Command::new("updateUser", "Changes a user's password, roles or data", run_update)
        .arguments(ARGUMENTS)
        .needs(Needs::InHandler)
        .audited(Audited::UserChange)
        .writes(Writes::Documents)
        .names(Names::Word)
        .hides(Hides::Secrets)
        .expected(Expected::Long);
pub(super) const DROP: Command = Command::new("dropUser", "Drops a user", run_drop)
    .needs(Needs::InHandler)
    .audited(Audited::User)
    .writes(Writes::Documents)
    .names(Names::Word);
pub(super) const DROP_ALL: Command =
    Command::new("dropAllUsersFromDatabase", "Drops all users of a database", run_drop_all)
        .needs(Needs::InHandler)
        .audited(Audited::Database)
        .writes(Writes::Documents)
        .names(Names::Word)
        .expected(Expected::Long);
pub(super) const FORGET: Command =
    Command::new("invalidateUserCache", "Clears the cache of users and roles", run_forget)
        .needs(Needs::InHandler)
        .names(Names::Word);

/// The database of users that are authenticated externally.
pub(super) const EXTERNAL: &str = "$external";

const ARGUMENTS: &[Argument] = &[
    Argument::string("pwd"),
    Argument::document("customData"),
    Argument::array("roles"),
    Argument::flag("digestPassword"),
    Argument::string("passwordDigestor"),
    Argument::array("authenticationRestrictions").since("3.6"),
    Argument::array("mechanisms").since("4.0"),
];

/// A new password and its form.
struct NewPassword {
    text: Zeroizing<String>,
    /// Whether `text` is already the MD5 digest.
    is_digested: bool,
}

impl NewPassword {
    fn parse(fields: &Fields<'_>) -> Result<Option<NewPassword>> {
        let by_client = match fields.get("passwordDigestor") {
            None | Some(RawValue::String("server")) => false,
            Some(RawValue::String("client")) => true,
            Some(_) => {
                let text = "passwordDigestor must be either \"server\" or \"client\"";
                return Err(Error::bad_value(text));
            }
        };
        let digests = fields.bool("digestPassword")?;
        let text = match fields.get("pwd") {
            None => return Ok(None),
            Some(RawValue::String("")) => {
                return Err(Error::new(ErrorCode(50687), "Password cannot be empty"));
            }
            Some(RawValue::String(text)) => Zeroizing::new(text.to_owned()),
            Some(other) => return Err(fields.wrong("pwd", other, "string")),
        };
        Ok(Some(NewPassword { text, is_digested: by_client || digests == Some(false) }))
    }

    fn credentials(&self, user: &str, mechanisms: &[Mechanism]) -> Result<Credentials> {
        let mut credentials = Credentials::default();
        for mechanism in mechanisms {
            let random: [u8; 28] = rand::random();
            let salt = &random[..mechanism.salt_bytes()];
            let iterations = mechanism.default_iterations();
            let credential = match (self.is_digested, mechanism) {
                (true, Mechanism::ScramSha256) => {
                    let text = "Use of SCRAM-SHA-256 requires undigested passwords";
                    return Err(Error::bad_value(text));
                }
                (true, Mechanism::ScramSha1) => {
                    Credential::derive_prepared(*mechanism, &self.text, salt, iterations)
                }
                (false, _) => Credential::derive(*mechanism, user, &self.text, salt, iterations)?,
            };
            credentials.set(*mechanism, credential);
        }
        Ok(credentials)
    }
}

/// `mechanisms`, if given.
fn mechanisms(fields: &Fields<'_>) -> Result<Option<Vec<Mechanism>>> {
    let Some(array) = fields.array("mechanisms")? else { return Ok(None) };
    let mut mechanisms = Vec::new();
    for element in array {
        let name = match element.value() {
            RawValue::String(name) => name,
            RawValue::Null | RawValue::Undefined => continue,
            other => {
                return Err(fields.wrong(
                    &format!("mechanisms.{}", element.name()),
                    other,
                    "string",
                ));
            }
        };
        match Mechanism::by_name(name) {
            Some(mechanism) if !mechanisms.contains(&mechanism) => mechanisms.push(mechanism),
            Some(_) => {}
            None => return Err(Error::bad_value(format!("Unknown auth mechanism '{name}'"))),
        }
    }
    match mechanisms.is_empty() {
        true => Err(Error::bad_value("mechanisms field must not be empty")),
        false => Ok(Some(mechanisms)),
    }
}

fn run_create(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name = own_user(request)?;
    fields.required("roles")?;
    let roles = roles(request, &fields, "roles")?.unwrap_or_default();
    let restrictions = restrictions(&fields)?;
    ctx.permit(request, Target::Database(request.db), Action::CreateUser)?;
    ctx.permit_roles(request, &roles, Action::GrantRole)?;
    if restrictions.is_some() {
        let restrict = Action::SetAuthenticationRestriction;
        ctx.permit(request, Target::Database(request.db), restrict)?;
    }
    if name.user.is_empty() {
        return Err(Error::bad_value("User document needs 'user' field to be non-empty"));
    }
    if request.db == "local" {
        return Err(Error::bad_value("Cannot create users in the local database"));
    }
    let password = NewPassword::parse(&fields)?;
    let credentials = match (password, mechanisms(&fields)?) {
        (None, _) if request.db != EXTERNAL => {
            let text = "Must provide a 'pwd' field for all user documents, except those with '$external' as the \
                        user's source db";
            return Err(Error::bad_value(text));
        }
        (Some(_), _) if request.db == EXTERNAL => {
            let text = "Cannot set the password for users defined on the '$external' database";
            return Err(Error::bad_value(text));
        }
        (None, _) => Credentials::external(),
        (Some(password), chosen) => {
            password.credentials(&name.user, chosen.as_deref().unwrap_or(&Mechanism::ALL))?
        }
    };
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    if access.has_user(store, &name)? {
        return Err(Error::new(ErrorCode(51003), format!("User \"{name}\" already exists")));
    }
    require_roles(ctx, &roles)?;
    let user = User {
        name,
        id: Some(bson::Uuid::new().bytes()),
        credentials,
        roles,
        custom_data: custom_data(&fields)?,
        restrictions: restrictions.unwrap_or_default(),
    };
    access.put_user(store, ctx.op, &user)
}

fn run_update(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name = own_user(request)?;
    let password = NewPassword::parse(&fields)?;
    let (mechanisms, data) = (mechanisms(&fields)?, custom_data(&fields)?);
    let (roles, restrictions) = (roles(request, &fields, "roles")?, restrictions(&fields)?);
    let something = password.is_some() || data.is_some() || roles.is_some();
    if !something && mechanisms.is_none() && restrictions.is_none() {
        let text = "Must specify at least one field to update in updateUser";
        return Err(Error::bad_value(text));
    }
    let database = Target::Database(request.db);
    let own = ctx.is_user(&name);
    let may = |all: Action, of_own: Action| match own
        && ctx.authority.allows(Target::Database(request.db), of_own)
    {
        true => Ok(()),
        false => ctx.permit(request, database, all),
    };
    if password.is_some() || mechanisms.is_some() {
        may(Action::ChangePassword, Action::ChangeOwnPassword)?;
    }
    if data.is_some() {
        may(Action::ChangeCustomData, Action::ChangeOwnCustomData)?;
    }
    if let Some(roles) = &roles {
        ctx.permit(request, Target::AllNormal, Action::RevokeRole)?;
        ctx.permit_roles(request, roles, Action::GrantRole)?;
    }
    if restrictions.is_some() {
        ctx.permit(request, database, Action::SetAuthenticationRestriction)?;
    }
    if password.is_some() && request.db == EXTERNAL {
        let text = "Cannot set the password for users defined on the '$external' database";
        return Err(Error::bad_value(text));
    }
    let chosen = mechanisms.as_deref().unwrap_or(&Mechanism::ALL);
    let credentials =
        password.map(|password| password.credentials(&name.user, chosen)).transpose()?;
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    let Some(mut user) = access.find_user(store, &name)? else {
        return Err(not_found(name));
    };
    match (credentials, mechanisms) {
        (Some(credentials), _) => user.credentials = credentials,
        (None, Some(kept)) if kept.iter().any(|it| user.credentials.get(*it).is_none()) => {
            let text = "mechanisms field must be a subset of previously set mechanisms";
            return Err(Error::bad_value(text));
        }
        (None, Some(kept)) => user.credentials.keep_only(&kept),
        (None, None) => {}
    }
    if let Some(roles) = roles {
        require_roles(ctx, &roles)?;
        user.roles = roles;
    }
    user.custom_data = data.or(user.custom_data);
    user.restrictions = restrictions.unwrap_or(user.restrictions);
    access.put_user(store, ctx.op, &user)
}

fn run_drop(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let name = own_user(request)?;
    ctx.permit(request, Target::Database(request.db), Action::DropUser)?;
    let _changing = ctx.service.access.change()?;
    let found = ctx.service.access.remove_user(&ctx.service.store, ctx.op, &name)?;
    if !found {
        return Err(not_found(format_args!("'{name}'")));
    }
    Ok(())
}

fn run_drop_all(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    request.arguments()?;
    ctx.permit(request, Target::Database(request.db), Action::DropUser)?;
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    let mut dropped = 0;
    for name in access.user_names(store, Some(request.db))? {
        dropped += i32::from(access.remove_user(&ctx.service.store, ctx.op, &name)?);
    }
    reply.append("n", dropped);
    Ok(())
}

fn run_forget(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    ctx.permit(request, Target::Cluster, Action::InvalidateUserCache)?;
    ctx.service.access.forget();
    Ok(())
}

/// Checks that roles exist.
///
/// # Errors
/// 31 RoleNotFound; errors of the engine.
pub(super) fn require_roles(ctx: &CommandContext<'_>, roles: &[RoleName]) -> Result<()> {
    let known = ctx.service.access.roles(&ctx.service.store)?;
    roles.iter().try_for_each(|role| known.require(role))
}

/// 11 UserNotFound. The reference quotes the name when it drops a user, but not when it changes
/// one.
fn not_found(name: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::UserNotFound, format!("User {name} not found"))
}

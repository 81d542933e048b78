//! `grantRolesToUser` and `revokeRolesFromUser`.

use mayfly_auth::{Action, User};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use super::arguments::{own_user, some_roles};
use super::users::require_roles;
use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, Names, Writes};
use crate::request::{Needs, Request};

pub(super) const GRANT: Command =
    Command::new("grantRolesToUser", "Grants roles to a user", run_grant)
        .arguments(&[Argument::array("roles").required()])
        .needs(Needs::InHandler)
        .audited(Audited::User)
        .writes(Writes::Documents)
        .names(Names::Word);
pub(super) const REVOKE: Command =
    Command::new("revokeRolesFromUser", "Revokes roles from a user", run_revoke)
        .arguments(&[Argument::array("roles").required()])
        .needs(Needs::InHandler)
        .audited(Audited::User)
        .writes(Writes::Documents)
        .names(Names::Word);

fn run_grant(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let roles = some_roles(request, &request.arguments()?)?;
    ctx.permit_roles(request, &roles, Action::GrantRole)?;
    change(ctx, request, |user| {
        require_roles(ctx, &roles)?;
        for role in &roles {
            if !user.roles.contains(role) {
                user.roles.push(role.clone());
            }
        }
        Ok(())
    })
}

fn run_revoke(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let roles = some_roles(request, &request.arguments()?)?;
    ctx.permit_roles(request, &roles, Action::RevokeRole)?;
    change(ctx, request, |user| {
        require_roles(ctx, &roles)?;
        user.roles.retain(|role| !roles.contains(role));
        Ok(())
    })
}

/// Changes the user that the command names.
fn change(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    change: impl FnOnce(&mut User) -> Result<()>,
) -> Result<()> {
    let name = own_user(request)?;
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    let Some(mut user) = access.find_user(store, &name)? else {
        let text = format!("Could not find user \"{}\" for db \"{}\"", name.user, name.db);
        return Err(Error::new(ErrorCode::UserNotFound, text));
    };
    change(&mut user)?;
    access.put_user(store, ctx.op, &user)
}

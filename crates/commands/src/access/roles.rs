//! Commands that define roles: `createRole`, `updateRole`, `dropRole`, `dropAllRolesFromDatabase`,
//! and the four commands that grant privileges and roles to a role or revoke them.
//!
//! A dropped role is revoked from all users and roles, so that a later role of the same name gives
//! them nothing.

use mayfly_auth::{Action, ActionSet, Privilege, Role, RoleName, Roles, Target, built_in};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use super::arguments::{own_role, restrictions, roles, some_roles};
use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, Expected, Names, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};

pub(super) const CREATE: Command = Command::new("createRole", "Creates a role", run_create)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .audited(Audited::Role)
    .flags(RowFlags::FIRST_USER)
    .writes(Writes::Documents)
    .names(Names::Word);
pub(super) const UPDATE: Command = Command::new("updateRole", "Changes a role", run_update)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .audited(Audited::Role)
    .writes(Writes::Documents)
    .names(Names::Word);
pub(super) const DROP: Command = Command::new("dropRole", "Drops a role", run_drop)
    .needs(Needs::InHandler)
    .audited(Audited::Role)
    .writes(Writes::Documents)
    .names(Names::Word);
pub(super) const DROP_ALL: Command =
    Command::new("dropAllRolesFromDatabase", "Drops all roles of a database", run_drop_all)
        .needs(Needs::InHandler)
        .audited(Audited::Database)
        .writes(Writes::Documents)
        .names(Names::Word)
        .expected(Expected::Long);
pub(super) const GRANT_PRIVILEGES: Command =
    Command::new("grantPrivilegesToRole", "Grants privileges to a role", run_grant_privileges)
        .arguments(&[Argument::array("privileges").required()])
        .needs(Needs::InHandler)
        .audited(Audited::Role)
        .writes(Writes::Documents)
        .names(Names::Word);
pub(super) const REVOKE_PRIVILEGES: Command = Command::new(
    "revokePrivilegesFromRole",
    "Revokes privileges from a role",
    run_revoke_privileges,
)
.arguments(&[Argument::array("privileges").required()])
.needs(Needs::InHandler)
.audited(Audited::Role)
.writes(Writes::Documents)
.names(Names::Word);
pub(super) const GRANT_ROLES: Command =
    Command::new("grantRolesToRole", "Grants roles to a role", run_grant_roles)
        .arguments(&[Argument::array("roles").required()])
        .needs(Needs::InHandler)
        .audited(Audited::Role)
        .writes(Writes::Documents)
        .names(Names::Word);
pub(super) const REVOKE_ROLES: Command =
    Command::new("revokeRolesFromRole", "Revokes roles from a role", run_revoke_roles)
        .arguments(&[Argument::array("roles").required()])
        .needs(Needs::InHandler)
        .audited(Audited::Role)
        .writes(Writes::Documents)
        .names(Names::Word);

const ARGUMENTS: &[Argument] = &[
    Argument::array("privileges"),
    Argument::array("roles"),
    Argument::array("authenticationRestrictions").since("3.6"),
];

/// `privileges`, merged by resource.
fn privileges(fields: &Fields<'_>) -> Result<Option<Vec<Privilege>>> {
    let Some(array) = fields.array("privileges")? else { return Ok(None) };
    Ok(Some(Privilege::merge(Privilege::parse_all(array)?)))
}

/// `privileges`, which must not be empty.
fn some_privileges(request: &Request<'_>) -> Result<Vec<Privilege>> {
    let fields = request.arguments()?;
    fields.required("privileges")?;
    match privileges(&fields)? {
        Some(privileges) if !privileges.is_empty() => Ok(privileges),
        _ => {
            let text =
                format!("{} command requires a non-empty \"privileges\" array", request.row.name);
            Err(Error::bad_value(text))
        }
    }
}

/// Checks that a role of the database may have these privileges, and that the client may grant or
/// revoke them.
fn check_privileges(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    privileges: &[Privilege],
    action: Action,
) -> Result<()> {
    for Privilege { resource, .. } in privileges {
        ctx.permit(request, Target::Database(resource.owner()), action)?;
    }
    if request.db != "admin" && privileges.iter().any(|one| one.resource.is_beyond(request.db)) {
        let text = format!(
            "Roles on the '{}' database cannot be granted privileges that target other databases or the cluster",
            request.db
        );
        return Err(Error::new(ErrorCode::InvalidRoleModification, text));
    }
    Ok(())
}

/// The role in the command's own value, if users can define or change it.
fn definable(request: &Request<'_>) -> Result<RoleName> {
    let name = own_role(request)?;
    if request.db == "local" {
        return Err(Error::bad_value("Cannot create roles in the local database"));
    }
    if built_in(&name).is_some() {
        return Err(Error::bad_value(format!("{name} is a built-in role and cannot be modified")));
    }
    Ok(name)
}

fn run_create(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name = own_role(request)?;
    fields.required("privileges")?;
    fields.required("roles")?;
    let privileges = privileges(&fields)?.unwrap_or_default();
    let roles = roles(request, &fields, "roles")?.unwrap_or_default();
    let restrictions = restrictions(&fields)?;
    ctx.permit(request, Target::Database(request.db), Action::CreateRole)?;
    ctx.permit_roles(request, &roles, Action::GrantRole)?;
    check_privileges(ctx, request, &privileges, Action::GrantRole)?;
    if restrictions.is_some() {
        let restrict = Action::SetAuthenticationRestriction;
        ctx.permit(request, Target::Database(request.db), restrict)?;
    }
    if name.role.is_empty() {
        return Err(Error::bad_value("Role name must be non-empty"));
    }
    if request.db == "local" {
        return Err(Error::bad_value("Cannot create roles in the local database"));
    }
    if built_in(&name).is_some() {
        let text = "Cannot create roles with the same name as a built-in role";
        return Err(Error::bad_value(text));
    }
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    let known = access.roles(store)?;
    if known.names().any(|taken| *taken == name) {
        return Err(Error::new(ErrorCode(51002), format!("Role \"{name}\" already exists")));
    }
    known.check_inheritance(&name, &roles)?;
    let restrictions = restrictions.unwrap_or_default();
    access.put_role(store, ctx.op, &Role { name, privileges, roles, restrictions })
}

fn run_update(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let (privileges, restrictions) = (privileges(&fields)?, restrictions(&fields)?);
    let roles = roles(request, &fields, "roles")?;
    if privileges.is_none() && roles.is_none() && restrictions.is_none() {
        let text = "updateRole command must specify at least one field to update";
        return Err(Error::bad_value(text));
    }
    ctx.permit(request, Target::AllNormal, Action::RevokeRole)?;
    ctx.permit_roles(request, roles.as_deref().unwrap_or_default(), Action::GrantRole)?;
    let new = privileges.as_deref().unwrap_or_default();
    check_privileges(ctx, request, new, Action::GrantRole)?;
    if restrictions.is_some() {
        let restrict = Action::SetAuthenticationRestriction;
        ctx.permit(request, Target::Database(request.db), restrict)?;
    }
    change(ctx, request, |role, known| {
        if let Some(roles) = roles {
            known.check_inheritance(&role.name, &roles)?;
            role.roles = roles;
        }
        if let Some(privileges) = privileges {
            role.privileges = privileges;
        }
        if let Some(restrictions) = restrictions {
            role.restrictions = restrictions;
        }
        Ok(())
    })
}

fn run_grant_privileges(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let new = some_privileges(request)?;
    check_privileges(ctx, request, &new, Action::GrantRole)?;
    change(ctx, request, |role, _| {
        role.privileges = Privilege::merge(role.privileges.drain(..).chain(new));
        Ok(())
    })
}

fn run_revoke_privileges(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let old = some_privileges(request)?;
    check_privileges(ctx, request, &old, Action::RevokeRole)?;
    change(ctx, request, |role, _| {
        for privilege in &mut role.privileges {
            let same = old.iter().filter(|one| one.resource == privilege.resource);
            let gone = same.fold(ActionSet::NONE, |all, one| all.and(one.actions));
            privilege.actions = privilege.actions.without(gone);
        }
        role.privileges.retain(|privilege| !privilege.actions.is_empty());
        Ok(())
    })
}

fn run_grant_roles(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let new = some_roles(request, &request.arguments()?)?;
    ctx.permit_roles(request, &new, Action::GrantRole)?;
    change(ctx, request, |role, known| {
        known.check_inheritance(&role.name, &new)?;
        for one in new {
            if !role.roles.contains(&one) {
                role.roles.push(one);
            }
        }
        Ok(())
    })
}

fn run_revoke_roles(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let old = some_roles(request, &request.arguments()?)?;
    ctx.permit_roles(request, &old, Action::RevokeRole)?;
    change(ctx, request, |role, known| {
        old.iter().try_for_each(|one| known.require(one))?;
        role.roles.retain(|one| !old.contains(one));
        Ok(())
    })
}

fn run_drop(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let name = definable(request)?;
    ctx.permit(request, Target::Database(request.db), Action::DropRole)?;
    let _changing = ctx.service.access.change()?;
    let removed = remove(ctx, std::slice::from_ref(&name))?;
    if removed == 0 {
        return Err(not_found(&name));
    }
    Ok(())
}

fn run_drop_all(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    request.arguments()?;
    ctx.permit(request, Target::Database(request.db), Action::DropRole)?;
    let _changing = ctx.service.access.change()?;
    let known = ctx.service.access.roles(&ctx.service.store)?;
    let names: Vec<_> = known.names().filter(|name| name.db == request.db).cloned().collect();
    reply.append("n", remove(ctx, &names)?);
    Ok(())
}

/// Revokes roles from all users and roles, then removes them; returns their number. After an error
/// the roles still exist, and some users may have lost them: the command can be retried.
fn remove(ctx: &CommandContext<'_>, gone: &[RoleName]) -> Result<i32> {
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let mut users = Vec::new();
    access.each_user(store, None, &mut |user| {
        if user.roles.iter().any(|role| gone.contains(role)) {
            users.push(user);
        }
    })?;
    for mut user in users {
        user.roles.retain(|role| !gone.contains(role));
        access.put_user(store, ctx.op, &user)?;
    }
    for heir in access.roles(store)?.all_defined() {
        if heir.roles.iter().any(|role| gone.contains(role)) && !gone.contains(&heir.name) {
            let mut heir = heir.clone();
            heir.roles.retain(|role| !gone.contains(role));
            access.put_role(store, ctx.op, &heir)?;
        }
    }
    let mut removed = 0;
    for name in gone {
        removed += i32::from(access.remove_role(store, ctx.op, name)?);
    }
    Ok(removed)
}

/// Changes the role that the command names.
fn change(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    change: impl FnOnce(&mut Role, &Roles) -> Result<()>,
) -> Result<()> {
    let name = definable(request)?;
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let _changing = access.change()?;
    let known = access.roles(store)?;
    let Some(mut role) = known.defined(&name).cloned() else { return Err(not_found(&name)) };
    change(&mut role, &known)?;
    access.put_role(store, ctx.op, &role)
}

/// 31 RoleNotFound.
fn not_found(name: &RoleName) -> Error {
    Error::new(ErrorCode::RoleNotFound, format!("Role '{name}' not found"))
}

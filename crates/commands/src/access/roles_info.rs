//! `rolesInfo`.

use mayfly_auth::{
    Action, BUILT_IN_ADMIN, BUILT_IN_ANYWHERE, Privilege, Restriction, Role, RoleName, Roles,
    built_in,
};
use mayfly_base::{Error, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::arguments::Selection;
use crate::context::{Command, CommandContext};
use crate::request::row::Names;
use crate::request::{Fields, Needs, Request};

pub(super) const ROW: Command = Command::new("rolesInfo", "Lists roles", run)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .names(Names::Word);

const ARGUMENTS: &[Argument] = &[
    Argument::any("showPrivileges"),
    Argument::flag("showBuiltinRoles"),
    Argument::flag("showAuthenticationRestrictions").since("3.6"),
];

/// The details of each role in the answer.
struct RoleDetails {
    privileges: bool,
    restrictions: bool,
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let selection = Selection::parse(request, "role")?;
    selection.permit(ctx, request, Action::ViewRole, |role, db| {
        ctx.has_role(&RoleName::new(role, db))
    })?;
    let as_fragment = as_fragment(&fields)?;
    let flag = |name: &str| Ok::<_, Error>(fields.bool(name)?.unwrap_or(false));
    let details = RoleDetails {
        privileges: !as_fragment && flag("showPrivileges")?,
        restrictions: flag("showAuthenticationRestrictions")?,
    };
    let built_in_too = flag("showBuiltinRoles")?;
    let roles = ctx.service.access.roles(&ctx.service.store)?;
    let names = match selection {
        Selection::Database | Selection::AllDatabases => {
            of_database(&roles, request.db, built_in_too)
        }
        Selection::Named(named) => {
            let names = named.into_iter().map(|(role, db)| RoleName::new(role, db));
            names.filter(|name| roles.exists(name)).collect()
        }
    };
    if as_fragment {
        let resolved = roles.resolve(&names);
        RoleName::append_all(&names, "roles", reply.start_document("userFragment"));
        RoleName::append_all(&resolved.roles, "inheritedRoles", reply);
        let privileges = Privilege::merge(resolved.privileges);
        Role::append_privileges(&privileges, "inheritedPrivileges", reply);
        reply.end();
        return Ok(());
    }
    reply.start_array("roles");
    for name in names {
        reply.push(&details.document(&name, &roles));
    }
    reply.end();
    Ok(())
}

/// Whether the answer shall be that of a user with all of these roles.
fn as_fragment(fields: &Fields<'_>) -> Result<bool> {
    match fields.get("showPrivileges") {
        Some(RawValue::String("asUserFragment")) => Ok(true),
        Some(RawValue::String(other)) => {
            let text = format!("'{other}' is not a value of 'showPrivileges'");
            Err(Error::failed_to_parse(text))
        }
        _ => Ok(false),
    }
}

/// The roles of a database, ascending by name.
fn of_database(roles: &Roles, db: &str, built_in_too: bool) -> Vec<RoleName> {
    let defined = roles.all_defined().map(|role| role.name.clone());
    let mut names: Vec<_> = defined.filter(|name| name.db == db).collect();
    if built_in_too {
        let admin = if db == "admin" { BUILT_IN_ADMIN } else { &[] };
        names.extend(admin.iter().chain(BUILT_IN_ANYWHERE).map(|role| RoleName::new(*role, db)));
    }
    names
}

impl RoleDetails {
    fn document(&self, name: &RoleName, roles: &Roles) -> DocBuf {
        let mut out = DocBuilder::new();
        let built_in = built_in(name);
        let defined = roles.defined(name).filter(|_| built_in.is_none());
        if defined.is_some() {
            out.append("_id", name.id().as_str());
        }
        out.append("role", name.role.as_str()).append("db", name.db.as_str());
        out.append("isBuiltin", built_in.is_some());
        let direct = defined.map(|role| role.roles.as_slice()).unwrap_or_default();
        RoleName::append_all(direct, "roles", &mut out);
        let inherited = roles.resolve(direct);
        RoleName::append_all(&inherited.roles, "inheritedRoles", &mut out);
        if self.privileges {
            let own = built_in.or_else(|| defined.map(|role| role.privileges.clone()));
            let own = Privilege::merge(own.unwrap_or_default());
            Role::append_privileges(&own, "privileges", &mut out);
            let all = Privilege::merge(own.into_iter().chain(inherited.privileges));
            Role::append_privileges(&all, "inheritedPrivileges", &mut out);
        }
        if self.restrictions {
            let own = defined.map(|role| role.restrictions.as_slice()).unwrap_or_default();
            Restriction::append_all(own, "authenticationRestrictions", &mut out);
            let inherited = inherited.restrictions.iter().map(Vec::as_slice);
            let all = std::iter::once(own).chain(inherited).filter(|list| !list.is_empty());
            Restriction::append_lists(all, "inheritedAuthenticationRestrictions", &mut out);
        }
        out.finish()
    }
}

//! `_mergeAuthzCollections`, the last step of a `mongorestore` of users and roles. The tool has
//! filled two temporary collections, whose documents the command merges into the users and roles.
//! With `drop` they replace all existing ones; otherwise existing ones are kept.

use mayfly_value::arguments::Argument;
use std::collections::HashSet;

use mayfly_auth::{Action, Role, RoleName, Target, User, UserName};
use mayfly_base::{Error, Namespace, Result};
use mayfly_service::access::each_document;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, Expected, RowFlags, Writes};
use crate::request::{Demands, Needs, Request};
use crate::rules::rights::is_set;

pub(super) const ROW: Command =
    Command::new("_mergeAuthzCollections", "Merges users and roles that a tool has restored", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(needs))
        .audited(Audited::Database)
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Documents)
        .expected(Expected::Long);

const USERS: &str = "tempUsersCollection";
const ROLES: &str = "tempRolesCollection";

/// The rights to create, change and (with `drop`) drop any user and role, and to read the temporary
/// collections.
fn needs(demands: &mut Demands<'_>, request: &Request<'_>) {
    let create = [Action::CreateUser, Action::CreateRole, Action::GrantRole, Action::RevokeRole];
    demands.need_all(Target::AllNormal, &create);
    if is_set(request.body, "drop") {
        demands.need_all(Target::AllNormal, &[Action::DropUser, Action::DropRole]);
    }
    for name in [USERS, ROLES] {
        match request.body.get(name).and_then(|value| value.as_str()) {
            Some("") | None => {}
            from => demands.need_on_full_name(from, &[Action::Find]),
        }
    }
}

const ARGUMENTS: &[Argument] = &[
    Argument::string(USERS),
    Argument::string(ROLES),
    Argument::string("db"),
    Argument::flag("drop"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let collection = |name: &str| match fields.string(name)? {
        Some("") | None => Ok(None),
        Some(from) => Namespace::parse(from).map(Some),
    };
    let (users, roles) = (collection(USERS)?, collection(ROLES)?);
    let db = fields.string("db")?.filter(|db| !db.is_empty());
    let drops = fields.bool("drop")?.unwrap_or(false);
    if users.is_none() && roles.is_none() {
        let text = format!("Must provide at least one of \"{USERS}\" and \"{ROLES}\"");
        return Err(Error::bad_value(text));
    }
    let _changing = ctx.service.access.change()?;
    if let Some(users) = users {
        merge_users(ctx, &users, db, drops)?;
    }
    if let Some(roles) = roles {
        merge_roles(ctx, &roles, db, drops)?;
    }
    Ok(())
}

/// Whether a user or role of database `of` is to be merged; `None` selects all databases.
fn is_selected(of: &str, selected: Option<&str>) -> bool {
    selected.is_none_or(|selected| selected == of)
}

fn merge_users(
    ctx: &CommandContext<'_>,
    from: &Namespace,
    db: Option<&str>,
    drops: bool,
) -> Result<()> {
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let mut merged: HashSet<UserName> = HashSet::new();
    each_document(store, from, &mut |document| {
        ctx.op.check()?;
        let user = User::parse(document)?;
        if is_selected(&user.name.db, db) {
            if drops || !access.has_user(store, &user.name)? {
                access.put_user(store, ctx.op, &user)?;
            }
            merged.insert(user.name);
        }
        Ok(())
    })?;
    if drops {
        for name in access.user_names(store, db)? {
            if !merged.contains(&name) {
                access.remove_user(store, ctx.op, &name)?;
            }
        }
    }
    Ok(())
}

fn merge_roles(
    ctx: &CommandContext<'_>,
    from: &Namespace,
    db: Option<&str>,
    drops: bool,
) -> Result<()> {
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let known = access.roles(store)?;
    let mut present: HashSet<RoleName> = known.names().cloned().collect();
    let mut merged: HashSet<RoleName> = HashSet::new();
    each_document(store, from, &mut |document| {
        ctx.op.check()?;
        let role = Role::parse(document)?;
        if is_selected(&role.name.db, db) {
            if drops || present.insert(role.name.clone()) {
                access.put_role(store, ctx.op, &role)?;
            }
            merged.insert(role.name);
        }
        Ok(())
    })?;
    if drops {
        for name in known.names() {
            if is_selected(&name.db, db) && !merged.contains(name) {
                access.remove_role(store, ctx.op, name)?;
            }
        }
    }
    Ok(())
}

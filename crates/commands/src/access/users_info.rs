//! `usersInfo`.

use mayfly_auth::{Action, Privilege, Restriction, Role, RoleName, Roles, User, UserName};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder};

use super::arguments::{Filter, Selection};
use crate::context::{Command, CommandContext};
use crate::request::row::Names;
use crate::request::{Fields, Needs, Request};

pub(super) const ROW: Command = Command::new("usersInfo", "Lists users", run)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .names(Names::Word);

const ARGUMENTS: &[Argument] = &[
    Argument::flag("showCredentials"),
    Argument::flag("showCustomData"),
    Argument::flag("showPrivileges"),
    Argument::flag("showAuthenticationRestrictions").since("3.6"),
    Argument::document("filter").since("4.0"),
];

/// The details of each user in the answer.
struct UserDetails {
    credentials: bool,
    custom_data: bool,
    privileges: bool,
    restrictions: bool,
    filter: Filter,
}

impl UserDetails {
    fn parse(fields: &Fields<'_>) -> Result<UserDetails> {
        let flag = |name: &str, default: bool| Ok(fields.bool(name)?.unwrap_or(default));
        Ok(UserDetails {
            credentials: flag("showCredentials", false)?,
            custom_data: flag("showCustomData", true)?,
            privileges: flag("showPrivileges", false)?,
            restrictions: flag("showAuthenticationRestrictions", false)?,
            filter: Filter::parse(fields)?,
        })
    }

    fn document(&self, user: &User, roles: &Roles) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", user.name.id().as_str());
        user.append_identity(&mut out);
        if self.credentials {
            user.append_credentials(&mut out);
        }
        out.start_array("mechanisms");
        user.credentials.mechanisms().for_each(|name| {
            out.push(name);
        });
        out.end();
        if let (true, Some(data)) = (self.custom_data, &user.custom_data) {
            out.append("customData", data);
        }
        RoleName::append_all(&user.roles, "roles", &mut out);
        if self.privileges || self.restrictions {
            let resolved = roles.resolve(&user.roles);
            RoleName::append_all(&resolved.roles, "inheritedRoles", &mut out);
            if self.privileges {
                let privileges = Privilege::merge(resolved.privileges);
                Role::append_privileges(&privileges, "inheritedPrivileges", &mut out);
            }
            let inherited = resolved.restrictions.iter().map(Vec::as_slice);
            Restriction::append_lists(inherited, "inheritedAuthenticationRestrictions", &mut out);
            Restriction::append_all(&user.restrictions, "authenticationRestrictions", &mut out);
        }
        out.finish()
    }
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let details = UserDetails::parse(&request.arguments()?)?;
    let selection = Selection::parse(request, "user")?;
    selection
        .permit(ctx, request, Action::ViewUser, |user, db| ctx.is_user(&UserName::new(user, db)))?;
    if (details.privileges || details.restrictions) && !matches!(selection, Selection::Named(_)) {
        let text = "Privilege or restriction details require exact-match usersInfo queries";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let (access, store) = (&ctx.service.access, &ctx.service.store);
    let roles = access.roles(store)?;
    let mut users = Vec::new();
    match selection {
        Selection::Database => {
            access.each_user(store, Some(request.db), &mut |user| users.push(user))?;
        }
        Selection::AllDatabases => access.each_user(store, None, &mut |user| users.push(user))?,
        Selection::Named(names) => {
            for (user, db) in names {
                users.extend(access.find_user(store, &UserName::new(user, db))?);
            }
        }
    }
    users.sort_by(|a, b| a.name.cmp(&b.name));
    reply.start_array("users");
    for user in users {
        ctx.op.check()?;
        let document = details.document(&user, &roles);
        if details.filter.admits(&document)? {
            reply.push(&document);
        }
    }
    reply.end();
    Ok(())
}

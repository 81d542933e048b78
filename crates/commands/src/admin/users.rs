//! `usersInfo` and `rolesInfo`. There are no users and no roles of users; the roles that every server has are listed by name.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::{CommandContext, Fields, Request, Row};

pub(super) const USERS: Row = Row::new("usersInfo", "Lists users", run_users);
pub(super) const ROLES: Row = Row::new("rolesInfo", "Lists roles", run_roles);

/// The roles of every database. Manual: "Built-In Roles".
const DATABASE_ROLES: &[&str] =
    &["dbAdmin", "dbOwner", "enableSharding", "read", "readWrite", "userAdmin"];

/// The roles that only `admin` has beside them.
const ADMIN_ROLES: &[&str] = &[
    "__queryableBackup",
    "__system",
    "backup",
    "clusterAdmin",
    "clusterManager",
    "clusterMonitor",
    "dbAdminAnyDatabase",
    "directShardOperations",
    "hostManager",
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "restore",
    "root",
    "userAdminAnyDatabase",
];

/// Which users or roles are asked for.
enum Wanted<'a> {
    /// Those of the command's database.
    OfDatabase,
    /// Those of all databases.
    Everywhere,
    /// These: name and database.
    Named(Vec<(&'a str, &'a str)>),
}

impl<'a> Wanted<'a> {
    /// Reads the command's value; `kind` is `user` or `role`.
    fn parse(request: &Request<'a>, kind: &str) -> Result<Wanted<'a>> {
        match request.target() {
            number if number.is_number() && crate::fields::whole_number(number) == Some(1) => {
                Ok(Wanted::OfDatabase)
            }
            RawValue::Document(all) if kind == "user" && all.get("forAllDBs").is_some() => {
                match all.get("forAllDBs") {
                    Some(RawValue::Bool(true)) if all.iter().count() == 1 => Ok(Wanted::Everywhere),
                    _ => Err(Error::bad_value("forAllDBs must be true and the only field")),
                }
            }
            RawValue::Array(several) => {
                let named = several.iter().map(|one| named(one.value(), request.db, kind));
                Ok(Wanted::Named(named.collect::<Result<_>>()?))
            }
            one => Ok(Wanted::Named(vec![named(one, request.db, kind)?])),
        }
    }
}

/// `"name"` or `{ user: "name", db: "database" }`.
fn named<'a>(value: RawValue<'a>, db: &'a str, kind: &str) -> Result<(&'a str, &'a str)> {
    let fault = |text: String| Err(Error::bad_value(text));
    let doc = match value {
        RawValue::String(name) => return Ok((name, db)),
        RawValue::Document(doc) => doc,
        _ => return fault("User and role names must be either strings or objects".to_owned()),
    };
    if let Some(other) = doc.iter().find(|field| ![kind, "db"].contains(&field.name())) {
        return fault(format!("the name of a {kind} has the unknown field '{}'", other.name()));
    }
    match (doc.get(kind), doc.get("db")) {
        (Some(RawValue::String(name)), Some(RawValue::String(db))) => Ok((name, db)),
        _ => fault(format!("the name of a {kind} needs the strings '{kind}' and 'db'")),
    }
}

fn run_users(
    _: &mut CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.fields(&[
        "showCredentials",
        "showCustomData",
        "showPrivileges",
        "showAuthenticationRestrictions",
        "filter",
    ])?;
    let wanted = Wanted::parse(request, "user")?;
    let mut details = false;
    for name in ["showPrivileges", "showAuthenticationRestrictions"] {
        details |= fields.bool(name)?.unwrap_or(false);
    }
    fields.bool("showCredentials")?;
    fields.bool("showCustomData")?;
    check_filter(&fields)?;
    if details && !matches!(wanted, Wanted::Named(_)) {
        let text = "Privilege or restriction details require exact-match usersInfo queries";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    reply.start_array("users").end();
    Ok(())
}

fn check_filter(fields: &Fields<'_>) -> Result<()> {
    if let Some(filter) = fields.document("filter")? {
        Matcher::parse(filter, &ParseContext::default())?;
    }
    Ok(())
}

fn run_roles(
    _: &mut CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.fields(&[
        "showPrivileges",
        "showBuiltinRoles",
        "showAuthenticationRestrictions",
        "filter",
    ])?;
    let wanted = Wanted::parse(request, "role")?;
    let privileges = match fields.get("showPrivileges") {
        Some(RawValue::String("asUserFragment")) => true,
        Some(RawValue::String(other)) => {
            let text = format!("'{other}' is not a value of 'showPrivileges'");
            return Err(Error::failed_to_parse(text));
        }
        _ => fields.bool("showPrivileges")?.unwrap_or(false),
    };
    let built_in = fields.bool("showBuiltinRoles")?.unwrap_or(false);
    fields.bool("showAuthenticationRestrictions")?;
    let filter = fields
        .document("filter")?
        .map(|filter| Matcher::parse(filter, &ParseContext::default()))
        .transpose()?;
    let roles: Vec<(&str, &str)> = match wanted {
        Wanted::OfDatabase if built_in => roles_of(request.db).map(|r| (r, request.db)).collect(),
        Wanted::OfDatabase | Wanted::Everywhere => Vec::new(),
        Wanted::Named(named) => {
            named.into_iter().filter(|(name, db)| roles_of(db).any(|role| role == *name)).collect()
        }
    };
    if privileges && !roles.is_empty() {
        return Err(Error::not_implemented("the privileges of built-in roles"));
    }
    reply.start_array("roles");
    for (role, db) in roles {
        let mut out = DocBuilder::new();
        out.append("role", role).append("db", db).append("isBuiltin", true);
        out.append("roles", RawValue::Array(RawDoc::EMPTY));
        out.append("inheritedRoles", RawValue::Array(RawDoc::EMPTY));
        let out = out.finish();
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(out.as_doc()))? {
            reply.push(&out);
        }
    }
    reply.end();
    Ok(())
}

fn roles_of(db: &str) -> impl Iterator<Item = &'static str> {
    let admin = if db == "admin" { ADMIN_ROLES } else { &[] };
    admin.iter().chain(DATABASE_ROLES).copied()
}

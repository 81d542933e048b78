//! Arguments of several commands: names, roles, restrictions, and selections of users or roles.

use mayfly_auth::{Action, Restriction, RoleName, Target, UserName};
use mayfly_base::{Error, Result};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::{DocBuf, RawValue};

use crate::context::CommandContext;
use crate::request::{Fields, Request};

/// The name in the command's own value. It may be empty; no user or role has that name.
///
/// # Errors
/// 40414 for null, 14 TypeMismatch.
pub(super) fn own_name<'a>(request: &Request<'a>) -> Result<&'a str> {
    match request.target() {
        RawValue::String(name) => Ok(name),
        other => {
            let fields = Fields::new(request.body, request.row.name);
            Err(fields.wrong_or_missing(request.row.name, other, "string"))
        }
    }
}

/// The user in the command's own value.
///
/// # Errors
/// The same as for [`own_name`].
pub(super) fn own_user(request: &Request<'_>) -> Result<UserName> {
    Ok(UserName::new(own_name(request)?, request.db))
}

/// The role in the command's own value.
///
/// # Errors
/// The same as for [`own_name`].
pub(super) fn own_role(request: &Request<'_>) -> Result<RoleName> {
    Ok(RoleName::new(own_name(request)?, request.db))
}

/// The roles of an array: names in the command's database, or `{ role, db }`. Duplicates are
/// dropped.
///
/// # Errors
/// 14 TypeMismatch, 2 BadValue.
pub(super) fn roles(
    request: &Request<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Result<Option<Vec<RoleName>>> {
    let Some(array) = fields.array(name)? else { return Ok(None) };
    let mut roles: Vec<RoleName> = Vec::new();
    for element in array {
        let role = match named(element.value(), request.db, "role")? {
            (role, db) if role.is_empty() || db.is_empty() => {
                return Err(Error::bad_value("Role names and their databases must not be empty"));
            }
            (role, db) => RoleName::new(role, db),
        };
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(Some(roles))
}

/// The roles of an array that must not be empty.
///
/// # Errors
/// Errors of [`roles`], 2 BadValue for an empty array.
pub(super) fn some_roles(request: &Request<'_>, fields: &Fields<'_>) -> Result<Vec<RoleName>> {
    fields.required("roles")?;
    match roles(request, fields, "roles")? {
        Some(roles) if !roles.is_empty() => Ok(roles),
        _ => {
            let name = request.row.name;
            Err(Error::bad_value(format!("{name} command requires a non-empty \"roles\" array")))
        }
    }
}

/// `authenticationRestrictions`.
///
/// # Errors
/// 14 TypeMismatch, 2 BadValue.
pub(super) fn restrictions(fields: &Fields<'_>) -> Result<Option<Vec<Restriction>>> {
    fields.array("authenticationRestrictions")?.map(Restriction::parse_all).transpose()
}

/// `customData`.
///
/// # Errors
/// 14 TypeMismatch.
pub(super) fn custom_data(fields: &Fields<'_>) -> Result<Option<DocBuf>> {
    Ok(fields.document("customData")?.map(|data| data.to_owned()))
}

/// The selection of users or roles.
pub(super) enum Selection<'a> {
    /// All of the command's database.
    Database,
    /// All of all databases.
    AllDatabases,
    /// By name and database.
    Named(Vec<(&'a str, &'a str)>),
}

impl<'a> Selection<'a> {
    /// Reads the command's value; `kind` is `user` or `role`.
    pub(super) fn parse(request: &Request<'a>, kind: &str) -> Result<Selection<'a>> {
        match request.target() {
            number
                if number.is_number()
                    && mayfly_value::arguments::convert::whole_number(number) == Some(1) =>
            {
                Ok(Selection::Database)
            }
            RawValue::Document(all) if kind == "user" && is_true(all.get("forAllDBs")) => {
                Ok(Selection::AllDatabases)
            }
            RawValue::Array(several) => {
                let named = several.iter().map(|one| named(one.value(), request.db, kind));
                Ok(Selection::Named(named.collect::<Result<_>>()?))
            }
            one => Ok(Selection::Named(vec![named(one, request.db, kind)?])),
        }
    }
}

impl Selection<'_> {
    /// Checks that the client may see them: itself or its own roles always, others with the action
    /// on their database.
    ///
    /// # Errors
    /// 13 Unauthorized.
    pub(super) fn permit(
        &self,
        ctx: &CommandContext<'_>,
        request: &Request<'_>,
        view: Action,
        is_own: impl Fn(&str, &str) -> bool,
    ) -> Result<()> {
        match self {
            Selection::Database => ctx.permit(request, Target::Database(request.db), view),
            Selection::AllDatabases => ctx.permit(request, Target::AllNormal, view),
            Selection::Named(names) => {
                names.iter().try_for_each(|(name, db)| match is_own(name, db) {
                    true => Ok(()),
                    false => ctx.permit(request, Target::Database(db), view),
                })
            }
        }
    }
}

/// The `filter` over the users or roles that were found.
pub(super) struct Filter(Option<Matcher>);

impl Filter {
    /// Reads `filter`.
    ///
    /// # Errors
    /// 14 TypeMismatch; errors of the filter.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Filter> {
        let parse = |filter| Matcher::parse(filter, &ParseContext::default());
        fields.document("filter")?.map(parse).transpose().map(Filter)
    }

    /// Whether the filter matches the reply's document of a user or role.
    pub(super) fn admits(&self, document: &DocBuf) -> Result<bool> {
        self.0.as_ref().map_or(Ok(true), |filter| filter.matches(document.as_doc()))
    }
}

/// Whether a flag of any type is set: all values are true except zero, false, null and undefined.
fn is_true(flag: Option<RawValue<'_>>) -> bool {
    match flag {
        None | Some(RawValue::Null | RawValue::Undefined) => false,
        Some(flag) => mayfly_value::arguments::convert::truth(flag).unwrap_or(true),
    }
}

/// Reads `"name"` or `{ user: "name", db: "database" }`.
fn named<'a>(value: RawValue<'a>, db: &'a str, kind: &str) -> Result<(&'a str, &'a str)> {
    let fault = |text: String| Err(Error::bad_value(text));
    let doc = match value {
        RawValue::String(name) => return Ok((name, db)),
        RawValue::Document(doc) => doc,
        _ => return fault("User and role names must be either strings or objects".to_owned()),
    };
    // As in the reference, the name of a role may have further fields.
    if kind == "user"
        && let Some(other) = doc.iter().find(|field| ![kind, "db"].contains(&field.name()))
    {
        return fault(format!("the name of a {kind} has the unknown field '{}'", other.name()));
    }
    match (doc.get(kind), doc.get("db")) {
        (Some(RawValue::String(name)), Some(RawValue::String(db))) => Ok((name, db)),
        _ => fault(format!("the name of a {kind} needs the strings '{kind}' and 'db'")),
    }
}

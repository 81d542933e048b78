//! Roles as documents of `admin.system.roles`.
//!
//! ```text
//! { _id: "db.role", role, db, privileges: [ { resource, actions } ], roles: [ { role, db } ],
//!   authenticationRestrictions? }
//! ```

use std::fmt;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::{Privilege, Restriction};

/// A role's name, unique across databases. Ordered by database first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleName {
    /// The database in which the role is defined.
    pub db: String,
    /// The name within the database.
    pub role: String,
}

impl RoleName {
    /// The name of a role in a database.
    pub fn new(role: impl Into<String>, db: impl Into<String>) -> RoleName {
        RoleName { role: role.into(), db: db.into() }
    }

    /// `_id` of the role's document: `db.role`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }

    /// The role in a document `{ role, db }` of two strings.
    fn parse_one(document: RawDoc<'_>) -> Option<RoleName> {
        match (document.get("role")?, document.get("db")?, document.iter().count()) {
            (RawValue::String(role), RawValue::String(db), 2) if !role.is_empty() => {
                Some(RoleName::new(role, db))
            }
            _ => None,
        }
    }

    /// Parses the array in documents of users and roles; `None` when an element is not `{ role, db
    /// }`.
    pub(crate) fn parse_stored(array: RawDoc<'_>) -> Option<Vec<RoleName>> {
        array.iter().map(|item| RoleName::parse_one(item.value().as_document()?)).collect()
    }

    /// Appends roles as an array with this name.
    pub fn append_all<'r>(
        roles: impl IntoIterator<Item = &'r RoleName>,
        name: &str,
        out: &mut DocBuilder,
    ) {
        out.start_array(name);
        for RoleName { role, db } in roles {
            out.push_document().append("role", role.as_str()).append("db", db.as_str()).end();
        }
        out.end();
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}

/// A user-defined role.
#[derive(Clone, Debug)]
pub struct Role {
    /// Name and database.
    pub name: RoleName,
    /// Its own privileges, without inherited ones.
    pub privileges: Vec<Privilege>,
    /// The roles that it inherits from.
    pub roles: Vec<RoleName>,
    /// The addresses from which users with the role may log in.
    pub restrictions: Vec<Restriction>,
}

impl Role {
    /// Parses a role's document.
    ///
    /// # Errors
    /// 12 UnsupportedFormat for a missing field or a wrong type: such a role grants nothing.
    pub fn parse(document: RawDoc<'_>) -> Result<Role> {
        let damaged = |field: &str| {
            let text = format!("a document of admin.system.roles has a bad '{field}'");
            Error::new(ErrorCode::UnsupportedFormat, text)
        };
        let text = |field: &str| match document.get(field) {
            Some(RawValue::String(text)) if !text.is_empty() => Ok(text),
            _ => Err(damaged(field)),
        };
        let name = RoleName::new(text("role")?, text("db")?);
        if text("_id")? != name.id() {
            return Err(damaged("_id"));
        }
        let array = |field: &str| match document.get(field) {
            Some(RawValue::Array(array)) => Ok(array),
            _ => Err(damaged(field)),
        };
        let privileges =
            Privilege::parse_all(array("privileges")?).map_err(|_| damaged("privileges"))?;
        let roles = RoleName::parse_stored(array("roles")?).ok_or_else(|| damaged("roles"))?;
        let restrictions = match document.get("authenticationRestrictions") {
            None => Vec::new(),
            Some(RawValue::Array(list)) => {
                Restriction::parse_all(list).map_err(|_| damaged("authenticationRestrictions"))?
            }
            Some(_) => return Err(damaged("authenticationRestrictions")),
        };
        Ok(Role { name, privileges, roles, restrictions })
    }

    /// The name in a document's `_id`, even if the rest of it is damaged.
    pub fn name_of(document: RawDoc<'_>) -> Option<RoleName> {
        let (db, role) = document.get("_id")?.as_str()?.split_once('.')?;
        Some(RoleName::new(role, db))
    }

    /// The role's document.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", self.name.id().as_str());
        out.append("role", self.name.role.as_str()).append("db", self.name.db.as_str());
        Role::append_privileges(&self.privileges, "privileges", &mut out);
        RoleName::append_all(&self.roles, "roles", &mut out);
        if !self.restrictions.is_empty() {
            Restriction::append_all(&self.restrictions, "authenticationRestrictions", &mut out);
        }
        out.finish()
    }

    /// Appends privileges as an array with this name.
    pub fn append_privileges<'p>(
        privileges: impl IntoIterator<Item = &'p Privilege>,
        name: &str,
        out: &mut DocBuilder,
    ) {
        out.start_array(name);
        for privilege in privileges {
            privilege.append_to(out.push_document());
            out.end();
        }
        out.end();
    }
}

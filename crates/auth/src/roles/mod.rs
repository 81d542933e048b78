//! Built-in and user-defined roles, and the privileges that a list of roles grants.

mod built_in;
mod role;

use std::collections::{BTreeMap, BTreeSet};

pub use built_in::{BUILT_IN_ADMIN, BUILT_IN_ANYWHERE, built_in};
pub use role::{Role, RoleName};

use mayfly_base::{Error, ErrorCode, Result};

use crate::{Privilege, Restriction};

/// All user-defined roles, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    defined: BTreeMap<RoleName, Role>,
    /// Roles whose documents cannot be read: they exist, and grant nothing.
    damaged: BTreeSet<RoleName>,
}

/// The effective roles, privileges and restrictions of a list of roles.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The roles of the list and all roles that they inherit from, each once, ascending by database
    /// and name. Roles that do not exist are omitted.
    pub roles: Vec<RoleName>,
    /// The privileges of all these roles.
    pub privileges: Vec<Privilege>,
    /// The restrictions of each role that has any; all of these lists must be met.
    pub restrictions: Vec<Vec<Restriction>>,
    /// A role of the list, or one that it inherits from, cannot be read. Its restrictions are
    /// unknown, so that logins with it are refused.
    pub damaged: bool,
}

impl Roles {
    /// Adds a role.
    pub fn insert(&mut self, role: Role) {
        self.defined.insert(role.name.clone(), role);
    }

    /// Adds a role whose document cannot be read.
    pub fn insert_damaged(&mut self, name: RoleName) {
        self.damaged.insert(name);
    }

    /// The user-defined role with this name.
    pub fn defined(&self, name: &RoleName) -> Option<&Role> {
        self.defined.get(name)
    }

    /// All user-defined roles, ascending by database and name.
    pub fn all_defined(&self) -> impl Iterator<Item = &Role> {
        self.defined.values()
    }

    /// The names of all user-defined roles, including damaged ones.
    pub fn names(&self) -> impl Iterator<Item = &RoleName> {
        self.defined.keys().chain(&self.damaged)
    }

    /// Whether the role exists, built-in or defined.
    pub fn exists(&self, name: &RoleName) -> bool {
        self.defined.contains_key(name) || built_in(name).is_some()
    }

    /// Checks that the role exists.
    ///
    /// # Errors
    /// 31 RoleNotFound.
    pub fn require(&self, name: &RoleName) -> Result<()> {
        match self.exists(name) {
            true => Ok(()),
            false => Err(not_found(name)),
        }
    }

    /// The effective result of these roles, including inherited ones. Every role is visited once,
    /// so that cycles end.
    pub fn resolve<'r>(&self, roles: impl IntoIterator<Item = &'r RoleName>) -> Resolved {
        let mut resolved = Resolved::default();
        let mut open: Vec<RoleName> = roles.into_iter().cloned().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if seen.contains(&name) {
                continue;
            }
            if let Some(privileges) = built_in(&name) {
                resolved.privileges.extend(privileges);
            } else if let Some(role) = self.defined.get(&name) {
                resolved.privileges.extend(role.privileges.iter().cloned());
                open.extend(role.roles.iter().cloned());
                if !role.restrictions.is_empty() {
                    resolved.restrictions.push(role.restrictions.clone());
                }
            } else {
                resolved.damaged |= self.damaged.contains(&name);
                continue;
            }
            seen.insert(name);
        }
        resolved.roles = seen.into_iter().collect();
        resolved
    }

    /// The roles that a role inherits from, without itself.
    pub fn inherited(&self, name: &RoleName) -> Vec<RoleName> {
        let direct = self.defined.get(name).map(|role| role.roles.as_slice()).unwrap_or_default();
        self.resolve(direct).roles
    }

    /// Checks that a role may inherit from others: they exist, do not inherit from it, and are in
    /// its database.
    ///
    /// # Errors
    /// 31 RoleNotFound, 49 InvalidRoleModification for a cycle or for a role of another database,
    /// unless the heir is a role of `admin`.
    pub fn check_inheritance(&self, heir: &RoleName, parents: &[RoleName]) -> Result<()> {
        let fault = |text: String| Err(Error::new(ErrorCode::InvalidRoleModification, text));
        for parent in parents {
            if parent == heir {
                return fault(format!("Cannot grant role {heir} to itself."));
            }
            if heir.db != "admin" && parent.db != heir.db {
                return fault(format!(
                    "Roles on the '{}' database cannot be granted roles from other databases",
                    heir.db
                ));
            }
        }
        parents.iter().try_for_each(|parent| self.require(parent))?;
        if parents.iter().any(|parent| self.inherited(parent).contains(heir)) {
            return fault(format!(
                "Granting roles to {heir} would introduce a cycle in the role graph"
            ));
        }
        Ok(())
    }
}

/// The error 31 RoleNotFound.
fn not_found(name: &RoleName) -> Error {
    Error::new(ErrorCode::RoleNotFound, format!("Could not find role: {name}"))
}

#[cfg(test)]
mod tests;

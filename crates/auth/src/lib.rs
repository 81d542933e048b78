//! Who may do what: users, roles and their privileges, and SCRAM, by which users prove who they are.
//!
//! Pure and synchronous: no store, no network, no clock, no source of randomness. Callers hand in documents, nonces and
//! salts, and get decisions and documents back. Everything that is read from a document fails closed: a document that cannot
//! be read is an error, never a user or a role with other rights than it says.

pub mod action;
mod privilege;
mod privileges;
mod resource;
mod restriction;
mod roles;
pub mod scram;
mod user;

pub use action::{Action, ActionSet};
pub use privilege::Privilege;
pub use privileges::Privileges;
pub use resource::{Resource, Target};
pub use restriction::{Addresses, Restriction};
pub use roles::{BUILT_IN_ADMIN, BUILT_IN_ANYWHERE, Resolved, Role, RoleName, Roles, built_in};
pub use scram::Mechanism;
pub use user::{Credentials, User, UserName};

#[cfg(test)]
mod robustness;

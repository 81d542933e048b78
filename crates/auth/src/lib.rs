//! Authentication and authorization: users, roles and their privileges, and SCRAM.
//!
//! Pure and synchronous: no store, no network, no clock, no source of randomness. Callers pass
//! documents, nonces and salts, and receive decisions and documents. Parsing fails closed: a
//! document that cannot be read is an error, never a user or a role with other privileges than it
//! states.

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

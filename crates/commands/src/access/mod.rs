//! Commands about who may do what: logging in and out, users, roles. And what other commands ask of that: whether a command may run
//! ([`needs`]), and how it may be shown ([`redaction`]).

mod arguments;
pub(crate) mod authenticate;
mod certificate;
pub(crate) mod check;
pub(crate) mod demands;
mod merge;
pub(crate) mod needs;
mod pipeline;
pub(crate) mod redaction;
mod roles;
mod roles_info;
mod user_roles;
mod users;
mod users_info;

pub(crate) use demands::is_set;
pub use needs::{Demands, Needs};

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[
    authenticate::CONTINUE,
    authenticate::LOGOUT,
    authenticate::START,
    certificate::AUTHENTICATE,
    certificate::ROTATE,
    merge::ROW,
    roles::CREATE,
    roles::DROP,
    roles::DROP_ALL,
    roles::GRANT_PRIVILEGES,
    roles::GRANT_ROLES,
    roles::REVOKE_PRIVILEGES,
    roles::REVOKE_ROLES,
    roles::UPDATE,
    roles_info::ROW,
    user_roles::GRANT,
    user_roles::REVOKE,
    users::CREATE,
    users::DROP,
    users::DROP_ALL,
    users::FORGET,
    users::UPDATE,
    users_info::ROW,
];

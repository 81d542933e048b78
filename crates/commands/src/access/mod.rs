//! Commands for access control: logins, users, roles.

mod arguments;
pub(crate) mod authenticate;
mod certificate;
mod merge;
mod roles;
mod roles_info;
mod user_roles;
mod users;
mod users_info;

use crate::context::Command;

/// The group's rows.
pub(crate) const ROWS: &[Command] = &[
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

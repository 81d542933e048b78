//! Access control: the stored users and roles, and the users that are logged in on connections.
//!
//! Users and roles are documents of `admin.system.users` and `admin.system.roles`. Commands or a
//! restore write them like any other document, and no change is announced: each collection counts
//! its commits, and a [`Stamp`] of both counts says whether what was read is still current. A
//! connection resolves its user's privileges once and keeps them while the stamp stays the same, so
//! a change of users or roles takes effect with the next command of every connection.
//!
//! Without `security.authorization` every command is allowed; users can still be created and can
//! log in.

mod attempts;
mod login;
mod stored;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_auth::scram::Decoys;
use mayfly_auth::{
    Action, Addresses, Credentials, Privilege, Privileges, Restriction, RoleName, Roles, Target,
    User, UserName,
};
use mayfly_base::Result;
use mayfly_storage::Store;
use mayfly_work::current;
use parking_lot::{Mutex, MutexGuard};

use crate::clients::{Connection, SessionOwner};

pub use attempts::Attempts;
pub use login::{ConnectionAccess, LoginOrigin, LoginStep, OpenLogin};
pub use stored::each_document;
pub use transport::{ClientCertificate, ServerCertificate, TransportSecurity};

/// The users and roles of a server.
pub struct Access {
    enforced: AtomicBool,
    /// Invented credentials that are presented for users that do not exist.
    pub decoys: Decoys,
    /// Failed logins by address.
    pub attempts: Attempts,
    roles: Mutex<Option<(Stamp, Arc<Roles>)>>,
    changing: Mutex<()>,
}

/// The state of both collections from which users or roles were read: their ids and their numbers
/// of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    users: (u64, u64),
    roles: (u64, u64),
}

/// A logged-in user and its privileges.
#[derive(Debug)]
pub struct LoggedIn {
    /// The user's name and database.
    pub name: UserName,
    /// `userId`: distinguishes the user from a later one of the same name.
    pub id: Option<[u8; 16]>,
    /// The owner of the user's sessions.
    pub session_owner: SessionOwner,
    /// All roles including inherited ones, ascending by database and name.
    pub roles: Vec<RoleName>,
    /// The privileges of all roles, one for each resource.
    pub listed: Vec<Privilege>,
    privileges: Privileges,
    stamp: Stamp,
    /// The user as described by its certificate, if the certificate grants the roles. Such a user
    /// has no document.
    certified: Option<User>,
}

/// The right by which a command runs.
#[derive(Clone, Debug)]
pub enum Authority {
    /// Authorization is off, or the server itself runs the command.
    Unrestricted,
    /// No user is logged in and none exists, and the client is on this machine (localhost
    /// exception): it may create the first user.
    FirstUser,
    /// No user is logged in.
    NotAuthenticated,
    /// The right of a logged-in user.
    User(Arc<LoggedIn>),
}

impl Authority {
    /// Whether the action is allowed on the target.
    #[inline]
    pub fn allows(&self, target: Target<'_>, action: Action) -> bool {
        match self {
            Authority::Unrestricted => true,
            Authority::User(user) => user.privileges.allows(target, action),
            Authority::FirstUser => match (target, action) {
                // The first user may get any role.
                (Target::Database(_), Action::GrantRole) => true,
                (Target::Database("admin"), Action::CreateUser | Action::CreateRole) => true,
                (Target::Database("admin"), Action::SetAuthenticationRestriction) => true,
                _ => false,
            },
            Authority::NotAuthenticated => false,
        }
    }

    /// Whether the right has limits.
    pub fn is_limited(&self) -> bool {
        !matches!(self, Authority::Unrestricted)
    }

    /// The privileges of the user; `None` without one.
    pub fn privileges(&self) -> Option<&Privileges> {
        match self {
            Authority::User(user) => Some(&user.privileges),
            Authority::Unrestricted | Authority::FirstUser | Authority::NotAuthenticated => None,
        }
    }
}

impl Default for Access {
    fn default() -> Access {
        Access {
            enforced: AtomicBool::new(false),
            decoys: Decoys::new(rand::random()),
            attempts: Attempts::default(),
            roles: Mutex::default(),
            changing: Mutex::default(),
        }
    }
}

impl Access {
    /// Makes every command need a user with the right to it.
    pub fn enforce(&self) {
        self.enforced.store(true, Ordering::Relaxed);
    }

    /// Whether commands need a right.
    #[inline]
    pub fn is_enforced(&self) -> bool {
        self.enforced.load(Ordering::Relaxed)
    }

    /// Locks users and roles for a change, from reading them to writing them.
    ///
    /// # Errors
    /// The error of an operation that is interrupted while it waits.
    pub fn change(&self) -> Result<MutexGuard<'_, ()>> {
        current::acquire(|longest| self.changing.try_lock_for(longest))
    }

    /// The right by which a command of this connection runs.
    ///
    /// # Errors
    /// Errors of the engine when a changed user is read again.
    #[inline]
    pub fn authority(&self, store: &Store, connection: &Connection) -> Result<Authority> {
        match self.is_enforced() {
            false => Ok(Authority::Unrestricted),
            true => self.enforced_authority(store, connection),
        }
    }

    fn enforced_authority(&self, store: &Store, connection: &Connection) -> Result<Authority> {
        if let Some(user) = self.user(store, connection)? {
            return Ok(Authority::User(user));
        }
        match connection.is_local() && !stored::has_users_or_roles(store)? {
            true => Ok(Authority::FirstUser),
            false => Ok(Authority::NotAuthenticated),
        }
    }

    /// The user that is logged in on a connection, with its current privileges. A user that was
    /// dropped, replaced or damaged is logged out.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn user(&self, store: &Store, connection: &Connection) -> Result<Option<Arc<LoggedIn>>> {
        let Some(known) = connection.access.user() else { return Ok(None) };
        if known.stamp == stored::stamp(store) {
            return Ok(Some(known));
        }
        let same = match &known.certified {
            Some(user) => Some(user.clone()),
            None => self.find_user(store, &known.name)?.filter(|user| user.id == known.id),
        };
        let refreshed = match same {
            Some(user) => {
                let certified = known.certified.clone();
                Some(Arc::new(LoggedIn { certified, ..self.resolve(store, &user)?.0 }))
            }
            None => None,
        };
        connection.access.replace(&known, refreshed.clone());
        Ok(refreshed)
    }

    /// Logs a user in on a connection. Returns false when its restrictions exclude the connection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn log_in(&self, store: &Store, connection: &Connection, user: &User) -> Result<bool> {
        self.admit(store, connection, user, None)
    }

    /// Logs a user in whose certificate grants its roles. Returns false when restrictions of the
    /// roles exclude the connection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn log_in_certified(
        &self,
        store: &Store,
        connection: &Connection,
        name: &UserName,
        roles: Vec<RoleName>,
    ) -> Result<bool> {
        let user = User {
            name: name.clone(),
            id: None,
            credentials: Credentials::external(),
            roles,
            custom_data: None,
            restrictions: Vec::new(),
        };
        self.admit(store, connection, &user, Some(user.clone()))
    }

    fn admit(
        &self,
        store: &Store,
        connection: &Connection,
        user: &User,
        certified: Option<User>,
    ) -> Result<bool> {
        let (mut logged_in, restrictions) = self.resolve(store, user)?;
        logged_in.certified = certified;
        let addresses = Addresses { client: ip(&connection.client), server: ip(&connection.local) };
        let admitted = Restriction::admits(&user.restrictions, addresses)
            && restrictions
                .is_some_and(|of| of.iter().all(|one| Restriction::admits(one, addresses)));
        if admitted {
            connection.access.set(Some(Arc::new(logged_in)));
        }
        Ok(admitted)
    }

    /// The user with its privileges, and the restrictions of its roles; `None` for these when a
    /// role is damaged.
    fn resolve(
        &self,
        store: &Store,
        user: &User,
    ) -> Result<(LoggedIn, Option<Vec<Vec<Restriction>>>)> {
        // Taken first: what is read afterwards belongs to this stamp or is newer, and newer state
        // is read again.
        let stamp = stored::stamp(store);
        let resolved = self.roles(store)?.resolve(&user.roles);
        let mut listed = Privilege::merge(resolved.privileges);
        let mut privileges = Privileges::new(&listed);
        if resolved.damaged {
            (listed, privileges) = (Vec::new(), Privileges::default());
        }
        let logged_in = LoggedIn {
            name: user.name.clone(),
            id: user.id,
            session_owner: SessionOwner::named(&user.name.to_string()),
            roles: resolved.roles,
            listed,
            privileges,
            stamp,
            certified: None,
        };
        Ok((logged_in, (!resolved.damaged).then_some(resolved.restrictions)))
    }

    /// All user-defined roles, in their current state.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn roles(&self, store: &Store) -> Result<Arc<Roles>> {
        let stamp = stored::stamp(store);
        let known = self.roles.lock().clone();
        if let Some((at, roles)) = known
            && at.roles == stamp.roles
        {
            return Ok(roles);
        }
        let roles = Arc::new(stored::read_roles(store)?);
        *self.roles.lock() = Some((stamp, roles.clone()));
        Ok(roles)
    }

    /// Drops the cached roles.
    pub fn forget(&self) {
        *self.roles.lock() = None;
    }
}

/// The IP address in `address:port`.
fn ip(address: &str) -> Option<std::net::IpAddr> {
    let address = address.parse::<std::net::SocketAddr>().ok()?.ip();
    Some(address.to_canonical())
}

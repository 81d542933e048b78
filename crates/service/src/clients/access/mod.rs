//! Who may do what on this server: users and roles as the store has them, and who is logged in on a connection.
//!
//! Users and roles are documents of `admin.system.users` and `admin.system.roles`, written like any others, by commands or by a
//! restore. Nothing has to announce a change: each collection counts its commits, and a [`Stamp`] of both counts says whether what
//! was read is still what is stored. A connection resolves its user's privileges once and keeps them as long as the stamp stays, so
//! that a change of users or roles holds for the next command of every connection.
//!
//! Without `security.authorization` everybody may do everything, and users can be created and logged in all the same.

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

/// What is known about users and roles of a server.
pub struct Access {
    enforced: AtomicBool,
    /// Credentials shown to those who ask for users that do not exist.
    pub decoys: Decoys,
    /// Logins that failed.
    pub attempts: Attempts,
    roles: Mutex<Option<(Stamp, Arc<Roles>)>>,
    changing: Mutex<()>,
}

/// Which state of both collections something was read from: their ids and their numbers of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    users: (u64, u64),
    roles: (u64, u64),
}

/// A user who has logged in, and what it may do.
#[derive(Debug)]
pub struct LoggedIn {
    /// Who.
    pub name: UserName,
    /// `userId`: another user of the same name is somebody else.
    pub id: Option<[u8; 16]>,
    /// Whose sessions are the user's.
    pub session_owner: SessionOwner,
    /// All roles, inherited ones among them, ascending by database and name.
    pub roles: Vec<RoleName>,
    /// The privileges of all roles, one for each resource.
    pub listed: Vec<Privilege>,
    privileges: Privileges,
    stamp: Stamp,
    /// The user as its certificate describes it, where the certificate grants the roles. No document is looked at then.
    certified: Option<User>,
}

/// By what right a command runs.
#[derive(Clone, Debug)]
pub enum Authority {
    /// Authorization is off, or the server itself asks.
    Unrestricted,
    /// Nobody has logged in, but there are no users yet and the client is on this machine: it may create the first.
    FirstUser,
    /// Nobody has logged in.
    Nobody,
    /// This user's.
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
            Authority::Nobody => false,
        }
    }

    /// Whether what it may do has limits.
    pub fn is_limited(&self) -> bool {
        !matches!(self, Authority::Unrestricted)
    }

    /// The privileges that decide; nothing where no user's do.
    pub fn privileges(&self) -> Option<&Privileges> {
        match self {
            Authority::User(user) => Some(&user.privileges),
            Authority::Unrestricted | Authority::FirstUser | Authority::Nobody => None,
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
    /// From here on every command needs a user with a right to it.
    pub fn enforce(&self) {
        self.enforced.store(true, Ordering::Relaxed);
    }

    /// Whether commands need a right.
    #[inline]
    pub fn is_enforced(&self) -> bool {
        self.enforced.load(Ordering::Relaxed)
    }

    /// Keeps others from changing users and roles, from reading them to writing them.
    ///
    /// # Errors
    /// Those of an operation that ends while it waits.
    pub fn change(&self) -> Result<MutexGuard<'_, ()>> {
        current::acquire(|longest| self.changing.try_lock_for(longest))
    }

    /// By what right a command of this connection runs.
    ///
    /// # Errors
    /// Those of the engine, where a changed user has to be read.
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
            false => Ok(Authority::Nobody),
        }
    }

    /// Who is logged in on a connection, with the privileges of this moment. A user that was dropped, replaced or damaged is
    /// logged out.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// Logs a user in on a connection. False when its restrictions keep it out.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn log_in(&self, store: &Store, connection: &Connection, user: &User) -> Result<bool> {
        self.admit(store, connection, user, None)
    }

    /// Logs a user in whose roles its certificate grants. False when restrictions of those keep it out.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// The user with its privileges, and the restrictions of its roles; nothing when some are not known.
    fn resolve(
        &self,
        store: &Store,
        user: &User,
    ) -> Result<(LoggedIn, Option<Vec<Vec<Restriction>>>)> {
        // Taken first: what is read then is this or newer, and newer is read again.
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

    /// All roles that users have defined, as they are now.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// Forgets what was read.
    pub fn forget(&self) {
        *self.roles.lock() = None;
    }
}

/// The IP address in `address:port`.
fn ip(address: &str) -> Option<std::net::IpAddr> {
    let address = address.parse::<std::net::SocketAddr>().ok()?.ip();
    Some(address.to_canonical())
}

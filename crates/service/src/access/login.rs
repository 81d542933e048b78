//! What a connection knows about its user: who has logged in, and who is about to.

use std::sync::Arc;

use mayfly_auth::UserName;
use mayfly_auth::scram::Conversation;
use parking_lot::Mutex;

use super::LoggedIn;
use crate::Connection;

/// A login that was begun. A connection has one at most, so that many half-open ones cost no memory.
pub struct OpenLogin {
    /// Who logs in.
    pub name: UserName,
    /// By which mechanism.
    pub mechanism: &'static str,
    /// What is said to the client next.
    pub step: LoginStep,
    /// The client wants no empty message after the server's proof.
    pub skip_empty: bool,
}

/// Where a login stands.
pub enum LoginStep {
    /// It waits for the client's proof.
    Proof(Box<Conversation>),
    /// The client has proved itself and has yet to agree with the server's proof.
    Agreement,
}

/// The user of a connection.
#[derive(Default)]
pub struct ConnectionAccess {
    user: Mutex<Option<Arc<LoggedIn>>>,
    login: Mutex<Option<OpenLogin>>,
}

impl ConnectionAccess {
    /// Who is logged in, as it was when it was looked at last.
    pub fn user(&self) -> Option<Arc<LoggedIn>> {
        self.user.lock().clone()
    }

    /// Logs in or out.
    pub fn set(&self, user: Option<Arc<LoggedIn>>) {
        *self.user.lock() = user;
    }

    /// Puts another state in place of a known one, unless somebody else has logged in meanwhile.
    pub(super) fn replace(&self, known: &Arc<LoggedIn>, other: Option<Arc<LoggedIn>>) {
        let mut user = self.user.lock();
        if user.as_ref().is_some_and(|present| Arc::ptr_eq(present, known)) {
            *user = other;
        }
    }

    /// Begins a login; one that was begun before ends.
    pub fn begin_login(&self, login: OpenLogin) {
        *self.login.lock() = Some(login);
    }

    /// Takes the login that was begun.
    pub fn take_login(&self) -> Option<OpenLogin> {
        self.login.lock().take()
    }
}

impl Connection {
    /// Whether the client is on this machine.
    pub fn is_local(&self) -> bool {
        super::ip(&self.client).is_some_and(|address| address.is_loopback())
    }
}

//! What a connection knows about its user: who has logged in, and who is about to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_auth::UserName;
use mayfly_auth::scram::Conversation;
use parking_lot::Mutex;

use super::{ClientCertificate, LoggedIn};
use crate::clients::Connection;

/// A login that was begun. A connection has one at most, so that many half-open ones cost no memory.
pub struct OpenLogin {
    /// Who logs in.
    pub name: UserName,
    /// By which mechanism.
    pub mechanism: &'static str,
    /// Where the client's first message came from.
    pub origin: LoginOrigin,
    /// What is said to the client next.
    pub step: LoginStep,
    /// The client wants no empty message after the server's proof.
    pub skip_empty: bool,
}

/// Where the first message of a login came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOrigin {
    /// It was a command of its own.
    Command,
    /// It was part of the handshake.
    Handshake,
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
    /// What the client's certificate says; nothing without one that was verified.
    pub certificate: OnceLock<ClientCertificate>,
    /// Whether somebody has logged in, without a look at who.
    known: AtomicBool,
    user: Mutex<Option<Arc<LoggedIn>>>,
    login: Mutex<Option<OpenLogin>>,
}

impl ConnectionAccess {
    /// Who is logged in, as it was when it was looked at last.
    pub fn user(&self) -> Option<Arc<LoggedIn>> {
        self.user.lock().clone()
    }

    /// Whether somebody has logged in.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether a login was begun and waits for the client.
    pub fn is_logging_in(&self) -> bool {
        self.login.lock().is_some()
    }

    /// Logs in or out.
    pub fn set(&self, user: Option<Arc<LoggedIn>>) {
        self.known.store(user.is_some(), Ordering::Relaxed);
        *self.user.lock() = user;
    }

    /// Puts another state in place of a known one, unless somebody else has logged in meanwhile.
    pub(super) fn replace(&self, known: &Arc<LoggedIn>, other: Option<Arc<LoggedIn>>) {
        let mut user = self.user.lock();
        if user.as_ref().is_some_and(|present| Arc::ptr_eq(present, known)) {
            self.known.store(other.is_some(), Ordering::Relaxed);
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

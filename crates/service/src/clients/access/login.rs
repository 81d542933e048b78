//! The login state of a connection: its user, and a login that has begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_auth::UserName;
use mayfly_auth::scram::Conversation;
use parking_lot::Mutex;

use super::{ClientCertificate, LoggedIn};
use crate::clients::Connection;

/// A login that has begun. A connection has at most one, so that half-open logins use no memory.
pub struct OpenLogin {
    /// The user that logs in.
    pub name: UserName,
    /// The mechanism, such as `SCRAM-SHA-256`.
    pub mechanism: &'static str,
    /// Whether the client's first message was part of the handshake.
    pub origin: LoginOrigin,
    /// The next step of the conversation.
    pub step: LoginStep,
    /// `skipEmptyExchange`: the client wants no empty message after the server's proof.
    pub skip_empty: bool,
}

/// How the first message of a login arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOrigin {
    /// In a `saslStart` command.
    Command,
    /// In the handshake (`speculativeAuthenticate`).
    Handshake,
}

/// The step that a login waits for.
pub enum LoginStep {
    /// The client's proof.
    Proof(Box<Conversation>),
    /// The client has proved itself and has yet to acknowledge the server's proof.
    Agreement,
}

/// The login state of a connection.
#[derive(Default)]
pub struct ConnectionAccess {
    /// The client's verified certificate; unset without one.
    pub certificate: OnceLock<ClientCertificate>,
    /// Whether a user is logged in; readable without the lock.
    known: AtomicBool,
    user: Mutex<Option<Arc<LoggedIn>>>,
    login: Mutex<Option<OpenLogin>>,
}

impl ConnectionAccess {
    /// The logged-in user, with the privileges of its last refresh.
    pub fn user(&self) -> Option<Arc<LoggedIn>> {
        self.user.lock().clone()
    }

    /// Whether a user is logged in.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether a login has begun and waits for the client.
    pub fn is_logging_in(&self) -> bool {
        self.login.lock().is_some()
    }

    /// Logs a user in, or out with `None`.
    pub fn set(&self, user: Option<Arc<LoggedIn>>) {
        self.known.store(user.is_some(), Ordering::Relaxed);
        *self.user.lock() = user;
    }

    /// Replaces the state of a user, unless another user has logged in since.
    pub(super) fn replace(&self, known: &Arc<LoggedIn>, other: Option<Arc<LoggedIn>>) {
        let mut user = self.user.lock();
        if user.as_ref().is_some_and(|present| Arc::ptr_eq(present, known)) {
            self.known.store(other.is_some(), Ordering::Relaxed);
            *user = other;
        }
    }

    /// Begins a login, in place of an unfinished one.
    pub fn begin_login(&self, login: OpenLogin) {
        *self.login.lock() = Some(login);
    }

    /// Takes the login that has begun.
    pub fn take_login(&self) -> Option<OpenLogin> {
        self.login.lock().take()
    }
}

impl Connection {
    /// Whether the client connects from this machine.
    pub fn is_local(&self) -> bool {
        super::ip(&self.client).is_some_and(|address| address.is_loopback())
    }
}

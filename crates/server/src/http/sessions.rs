//! The sessions of users that have logged in on the page. They are in memory: a restart ends them.
//!
//! A session belongs to the address of its login, because the user's restrictions
//! (`authenticationRestrictions`) were checked for that address. The map has hashes of the tokens.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mayfly_service::access::LoggedIn;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// How long a session lasts, in seconds.
pub(super) const LASTS_SECS: i64 = 12 * 60 * 60;
/// The length of a token: 32 bytes in base64 without padding.
pub(super) const TOKEN_BYTES: usize = 43;
/// The largest number of sessions. Another login ends the oldest one.
const MAX_SESSIONS: usize = 1000;

struct Session {
    user: Arc<LoggedIn>,
    address: IpAddr,
    /// Its end, in monotonic microseconds.
    ends: i64,
}

type TokenHash = [u8; 32];

/// The sessions of users that have logged in.
pub(super) struct Sessions {
    open: Mutex<HashMap<TokenHash, Session>>,
    /// Part of every hash, so that a copy of the memory does not reveal a password of Basic
    /// authentication to a table of hashes.
    salt: [u8; 32],
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { open: Mutex::default(), salt: rand::random() }
    }
}

impl Sessions {
    /// Begins a session; returns its token. `now` is in monotonic microseconds.
    pub(super) fn begin(&self, user: Arc<LoggedIn>, address: IpAddr, now: i64) -> String {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        self.put(&token, user, address, (now, LASTS_SECS));
        token
    }

    /// Begins a session with a token that the client has chosen, for some seconds.
    pub(super) fn put(
        &self,
        token: &str,
        user: Arc<LoggedIn>,
        address: IpAddr,
        (now, secs): (i64, i64),
    ) {
        let mut open = self.open.lock();
        open.retain(|_, session| session.ends > now);
        if open.len() >= MAX_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, session)| session.ends).map(|(hash, _)| *hash);
            oldest.map(|hash| open.remove(&hash));
        }
        let ends = now + secs * 1_000_000;
        open.insert(self.hash(token), Session { user, address, ends });
    }

    /// The user of a session.
    pub(super) fn find(&self, token: &str, address: IpAddr, now: i64) -> Option<Arc<LoggedIn>> {
        let open = self.open.lock();
        let session = open.get(&self.hash(token))?;
        (session.ends > now && session.address == address).then(|| session.user.clone())
    }

    /// Ends a session.
    pub(super) fn end(&self, token: &str) {
        self.open.lock().remove(&self.hash(token));
    }

    fn hash(&self, token: &str) -> TokenHash {
        Sha256::new().chain_update(self.salt).chain_update(token).finalize().into()
    }
}

//! The identity of a logical session: the id that its client chose, and its owner. The same id of
//! another user is another session, so that users cannot read, end or continue each other's
//! sessions.

use std::hash::{Hash, Hasher};

use mayfly_storage::SessionKey;
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use sha2::{Digest, Sha256};

use crate::clients::access::Authority;

/// The owner of sessions: `uid`, the SHA-256 of the user's name and database, `user@db`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionOwner(pub [u8; 32]);

/// The identity of a logical session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    /// The UUID that the client chose.
    pub id: [u8; 16],
    /// The user to whom the session belongs: equal UUIDs of two users are two sessions.
    pub owner: SessionOwner,
}

impl SessionOwner {
    /// The digest of the empty name: the owner of all sessions without access control.
    pub const NONE: SessionOwner = SessionOwner([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ]);

    /// The owner for a user, by its name and database (`user@db`).
    pub fn named(full_name: &str) -> SessionOwner {
        SessionOwner(Sha256::digest(full_name).into())
    }

    /// The owner of the sessions of commands that run by this right.
    pub fn of(authority: &Authority) -> SessionOwner {
        match authority {
            Authority::User(user) => user.session_owner,
            Authority::Unrestricted | Authority::FirstUser | Authority::NotAuthenticated => {
                SessionOwner::NONE
            }
        }
    }
}

/// Hashes the id only: every command with a session looks it up, and two owners hardly ever have
/// the same id.
impl Hash for SessionId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.id);
    }
}

impl SessionId {
    /// The key of the session's statements in the store: the id, or for a user's session a digest
    /// of owner and id.
    pub fn key(&self) -> SessionKey {
        if self.owner == SessionOwner::NONE {
            return self.id;
        }
        let digest = Sha256::new().chain_update(self.owner.0).chain_update(self.id).finalize();
        let mut key = self.id;
        key.copy_from_slice(&digest[..16]);
        key
    }

    /// `{ id, uid }`.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        self.append_to(&mut out);
        out.finish()
    }

    /// The bytes of [`to_document`](SessionId::to_document). Every command of a user needs them,
    /// and building the document costs ten times as much.
    #[inline]
    pub fn to_bytes(&self) -> Vec<u8> {
        let before_id = b"\x48\0\0\0\x05id\0\x10\0\0\0\x04";
        let before_owner = b"\x05uid\0\x20\0\0\0\0";
        [&before_id[..], &self.id, before_owner, &self.owner.0, b"\0"].concat()
    }

    /// Appends `id` and `uid` to an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("id", RawValue::uuid(&self.id));
        out.append("uid", RawValue::Binary { subtype: 0, bytes: &self.owner.0 });
    }
}

impl std::fmt::Display for SessionId {
    /// Formats the UUID, as the reference does.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.id.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let session = SessionId { id: [7; 16], owner: SessionOwner::named("a@b") };
        assert_eq!(session.to_bytes(), session.to_document().into_bytes());
    }

    #[test]
    fn sessions_of_different_users_have_different_keys() {
        assert_eq!(SessionOwner::named(""), SessionOwner::NONE);
        let owners = [SessionOwner::NONE, SessionOwner::named("a@b"), SessionOwner::named("b@a")];
        let keys = owners.map(|owner| SessionId { id: [7; 16], owner }.key());
        assert_eq!(keys[0], [7; 16], "what was stored without access control is found again");
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }
}

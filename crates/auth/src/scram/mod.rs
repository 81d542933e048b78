//! SCRAM as a server speaks it: RFC 5802 with SHA-1 and RFC 7677 with SHA-256.
//!
//! ```text
//! client                                          server
//! n,,n=user,r=CNONCE                       ->
//!                                          <-     r=CNONCE+SNONCE,s=SALT,i=ITERATIONS
//! c=biws,r=CNONCE+SNONCE,p=PROOF           ->
//!                                          <-     v=SIGNATURE
//! ```
//!
//! 1. [`ClientFirst::parse`] reads who wants to log in.
//! 2. The caller looks for the user and calls [`Conversation::begin`] with what is stored, or with nothing: then the
//!    conversation goes on with credentials that [`Decoys`] makes from the name, and fails at the same place as one with a
//!    wrong password.
//! 3. [`Conversation::finish`] checks the proof and gives the server's own.
//!
//! Nobody derives a key from a password while somebody logs in: what is stored suffices to check the proof. With SHA-1 the
//! password is not the user's own but its MD5 digest with the name, for the sake of clients that know no other
//! ([`password::for_mechanism`]).

mod conversation;
mod credential;
mod digest;
mod message;
pub mod password;

pub use conversation::{Conversation, Decoys, Refusal};
pub use credential::{Credential, Iterations};
pub use message::ClientFirst;

/// A mechanism of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// `SCRAM-SHA-1`.
    ScramSha1,
    /// `SCRAM-SHA-256`.
    ScramSha256,
}

impl Mechanism {
    /// All of them, in the order in which users' credentials list them.
    pub const ALL: [Mechanism; 2] = [Mechanism::ScramSha1, Mechanism::ScramSha256];

    /// Its name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism of this name; names are compared exactly.
    pub fn by_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Length of its hashes, in bytes.
    pub(crate) fn hash_bytes(self) -> usize {
        match self {
            Mechanism::ScramSha1 => 20,
            Mechanism::ScramSha256 => 32,
        }
    }

    /// Length of its salts, in bytes: with the number of the first block a salt fills one hash.
    pub fn salt_bytes(self) -> usize {
        self.hash_bytes() - 4
    }

    /// How often a password is hashed unless parameters say otherwise.
    pub fn default_iterations(self) -> Iterations {
        match self {
            Mechanism::ScramSha1 => Iterations::SHA_1,
            Mechanism::ScramSha256 => Iterations::SHA_256,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

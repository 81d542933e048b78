//! The server's side of SCRAM: RFC 5802 with SHA-1 and RFC 7677 with SHA-256.
//!
//! ```text
//! client                                          server
//! n,,n=user,r=CNONCE                       ->
//!                                          <-     r=CNONCE+SNONCE,s=SALT,i=ITERATIONS
//! c=biws,r=CNONCE+SNONCE,p=PROOF           ->
//!                                          <-     v=SIGNATURE
//! ```
//!
//! 1. [`ClientFirst::parse`] reads the user's name.
//! 2. The caller looks up the user and calls [`Conversation::begin`] with the stored credential, or
//!    with none: then the conversation continues with a credential that [`Decoys`] derives from the
//!    name, and fails at the same step as one with a wrong password.
//! 3. [`Conversation::finish`] checks the proof and returns the server's signature.
//!
//! The server derives no key from a password during a login: the stored credential suffices to
//! check the proof. With SHA-1 the password is not the user's own but its MD5 digest with the name,
//! for compatibility with clients that use no other ([`password::for_mechanism`]).

mod conversation;
mod credential;
mod digest;
mod message;
pub mod password;

pub use conversation::{Conversation, Decoys, Refusal};
pub use credential::{Credential, Iterations};
pub use message::ClientFirst;

/// An authentication mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// `SCRAM-SHA-1`.
    ScramSha1,
    /// `SCRAM-SHA-256`.
    ScramSha256,
}

impl Mechanism {
    /// All mechanisms, in the order of users' credentials.
    pub const ALL: [Mechanism; 2] = [Mechanism::ScramSha1, Mechanism::ScramSha256];

    /// Its name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism with this name; names are compared exactly.
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

    /// Length of its salts, in bytes: a salt and the four-byte number of the first block fill one
    /// hash.
    pub fn salt_bytes(self) -> usize {
        self.hash_bytes() - 4
    }

    /// The number of iterations unless a parameter sets another.
    pub fn default_iterations(self) -> Iterations {
        match self {
            Mechanism::ScramSha1 => Iterations::SHA_1,
            Mechanism::ScramSha256 => Iterations::SHA_256,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

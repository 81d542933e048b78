//! The server's side of a SCRAM conversation, from the client's first message to the server's
//! signature.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::credential::Credential;
use super::digest::{Digest, hash, hmac};
use super::message::{ClientFinal, ClientFirst};
use super::{Iterations, Mechanism};

/// Why a conversation failed. For the server's log: clients receive the same text for all reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a SCRAM message, or too long.
    Malformed,
    /// The client demands an unsupported feature: channel binding, another identity, an extension.
    ChannelBinding,
    /// The last message belongs to another conversation.
    WrongNonce,
    /// The proof does not match the user's password, or the user does not exist.
    WrongProof,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Malformed => "malformed message",
            Refusal::ChannelBinding => "channel binding or extension not supported",
            Refusal::WrongNonce => "nonce of another conversation",
            Refusal::WrongProof => "wrong user, mechanism or password",
        })
    }
}

/// Makes credentials for users that do not exist. The same name has the same ones during the life
/// of the process, so that repeated attempts do not reveal that they are decoys. No password
/// matches them.
pub struct Decoys {
    secret: Zeroizing<[u8; 32]>,
}

impl Decoys {
    /// Decoys of a process, derived from 32 random bytes.
    pub fn new(secret: [u8; 32]) -> Decoys {
        Decoys { secret: Zeroizing::new(secret) }
    }

    /// The decoy of a user. `full_name` is `db.user`.
    fn credential(
        &self,
        mechanism: Mechanism,
        full_name: &str,
        iterations: Iterations,
    ) -> Credential {
        let part = |what: &str| {
            let text = format!("{}\0{what}\0{full_name}", mechanism.name());
            hmac(Mechanism::ScramSha256, &*self.secret, text.as_bytes())
        };
        let key = |what: &str| hash(mechanism, part(what).as_bytes());
        Credential {
            mechanism,
            iterations,
            salt: part("salt").as_bytes()[..mechanism.salt_bytes()].to_vec(),
            stored_key: key("stored"),
            server_key: key("server"),
        }
    }
}

/// A conversation that waits for the client's proof.
#[derive(Debug)]
pub struct Conversation {
    credential: Credential,
    /// The user exists. A proof against a decoy always fails.
    known: bool,
    header: &'static str,
    nonce: String,
    /// `client-first-bare,server-first`, the first two thirds of the text that both sides sign.
    signed: String,
}

impl Conversation {
    /// Answers the client's first message. `own_nonce` are random bytes of this conversation;
    /// `iterations` is the number for new users of the mechanism, which decoys use.
    ///
    /// Returns the conversation and the message for the client.
    pub fn begin(
        first: &ClientFirst,
        full_name: &str,
        stored: Option<&Credential>,
        decoys: &Decoys,
        iterations: Iterations,
        own_nonce: &[u8; 24],
    ) -> (Conversation, String) {
        // Computed for existing users too, so that the time does not reveal whether the user
        // exists.
        let decoy = decoys.credential(first.mechanism, full_name, iterations);
        let stored = stored.filter(|stored| stored.mechanism == first.mechanism);
        let credential = stored.unwrap_or(&decoy).clone();
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(own_nonce));
        let salt = STANDARD.encode(&credential.salt);
        let reply = format!("r={nonce},s={salt},i={}", credential.iterations.get());
        let signed = format!("{},{reply}", first.bare);
        let known = stored.is_some();
        (Conversation { credential, known, header: first.header, nonce, signed }, reply)
    }

    /// Checks the client's last message. On success the client is authenticated, and the server's
    /// signature is returned.
    ///
    /// # Errors
    /// Any [`Refusal`].
    pub fn finish(self, payload: &[u8]) -> Result<String, Refusal> {
        let Credential { mechanism, stored_key, server_key, .. } = &self.credential;
        let last = ClientFinal::parse(*mechanism, payload)?;
        if last.binding != self.header.as_bytes() {
            return Err(Refusal::ChannelBinding);
        }
        if last.nonce != self.nonce {
            return Err(Refusal::WrongNonce);
        }
        let signed = format!("{},{}", self.signed, last.without_proof);
        let signature = hmac(*mechanism, stored_key.as_bytes(), signed.as_bytes());
        let client_key: Digest = last.proof.xor(&signature);
        let right = hash(*mechanism, client_key.as_bytes()).equals(stored_key);
        let proof = hmac(*mechanism, server_key.as_bytes(), signed.as_bytes());
        match right & self.known {
            true => Ok(format!("v={}", STANDARD.encode(proof.as_bytes()))),
            false => Err(Refusal::WrongProof),
        }
    }
}

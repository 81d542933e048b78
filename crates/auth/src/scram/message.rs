//! The client's two messages. Parsing arbitrary bytes ends with a message or a refusal.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Mechanism;
use super::conversation::Refusal;
use super::digest::Digest;

/// Longest accepted message, in bytes. Names and nonces of clients are far shorter.
const MAX_MESSAGE_BYTES: usize = 4096;
/// Shortest accepted nonce of a client, in characters: it prevents replays of the server's
/// messages.
const MIN_NONCE_CHARACTERS: usize = 8;

/// The client's first message: `n,,n=user,r=nonce`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst {
    pub(super) mechanism: Mechanism,
    /// The name of the user, unescaped.
    pub user: String,
    /// `n,,` or `y,,`: no channel binding. The client repeats it in its last message.
    pub(super) header: &'static str,
    /// The part that both sides sign: `n=user,r=nonce` as it was sent.
    pub(super) bare: String,
    pub(super) nonce: String,
}

/// The client's last message: `c=BINDING,r=nonce,p=PROOF`.
pub(super) struct ClientFinal<'a> {
    pub(super) binding: Vec<u8>,
    pub(super) nonce: &'a str,
    /// Everything before the proof, which both sides sign.
    pub(super) without_proof: &'a str,
    pub(super) proof: Digest,
}

impl ClientFirst {
    /// Parses the client's first message.
    ///
    /// # Errors
    /// [`Refusal::Malformed`], and [`Refusal::ChannelBinding`] when the client demands channel
    /// binding, an authorization identity or an extension.
    pub fn parse(mechanism: Mechanism, payload: &[u8]) -> Result<ClientFirst, Refusal> {
        let text = text(payload)?;
        let (header, bare) = if let Some(bare) = text.strip_prefix("n,,") {
            ("n,,", bare)
        } else if let Some(bare) = text.strip_prefix("y,,") {
            ("y,,", bare)
        } else if text.starts_with("p=") || text.starts_with("n,a=") || text.starts_with("y,a=") {
            return Err(Refusal::ChannelBinding);
        } else {
            return Err(Refusal::Malformed);
        };
        if bare.starts_with("m=") {
            // A mandatory extension.
            return Err(Refusal::ChannelBinding);
        }
        // Extensions after the nonce are ignored; both sides sign them.
        let mut parts = bare.split(',');
        let name = attribute(parts.next(), "n=")?;
        let nonce = attribute(parts.next(), "r=")?;
        check_nonce(nonce)?;
        let user = unescape(name)?;
        if user.is_empty() {
            return Err(Refusal::Malformed);
        }
        Ok(ClientFirst { mechanism, user, header, bare: bare.to_owned(), nonce: nonce.to_owned() })
    }
}

impl<'a> ClientFinal<'a> {
    pub(super) fn parse(mechanism: Mechanism, payload: &'a [u8]) -> Result<Self, Refusal> {
        let text = text(payload)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Refusal::Malformed)?;
        let mut parts = without_proof.split(',');
        let binding = attribute(parts.next(), "c=")?;
        let nonce = attribute(parts.next(), "r=")?;
        let binding = STANDARD.decode(binding).map_err(|_| Refusal::Malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| Refusal::Malformed)?;
        let proof = Digest::from_bytes(mechanism, &proof).ok_or(Refusal::Malformed)?;
        Ok(ClientFinal { binding, nonce, without_proof, proof })
    }
}

fn text(payload: &[u8]) -> Result<&str, Refusal> {
    if payload.len() > MAX_MESSAGE_BYTES || payload.contains(&0) {
        return Err(Refusal::Malformed);
    }
    std::str::from_utf8(payload).map_err(|_| Refusal::Malformed)
}

fn attribute<'a>(part: Option<&'a str>, name: &str) -> Result<&'a str, Refusal> {
    part.and_then(|part| part.strip_prefix(name)).ok_or(Refusal::Malformed)
}

/// Checks that a nonce is printable ASCII without commas, and long enough.
fn check_nonce(nonce: &str) -> Result<(), Refusal> {
    let printable = nonce.bytes().all(|byte| byte.is_ascii_graphic());
    match printable && nonce.len() >= MIN_NONCE_CHARACTERS {
        true => Ok(()),
        false => Err(Refusal::Malformed),
    }
}

/// Replaces `=2C` by a comma and `=3D` by an equals sign; other sequences are malformed.
fn unescape(name: &str) -> Result<String, Refusal> {
    let mut pieces = name.split('=');
    let mut user = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (character, rest) = match (piece.strip_prefix("2C"), piece.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Refusal::Malformed),
        };
        user.push(character);
        user.push_str(rest);
    }
    Ok(user)
}

//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677).

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use mayfly_auth::Mechanism;
use mayfly_auth::scram::password;
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::Client;
use super::uri::UriUser;

/// A server that asks for more keeps the client busy on purpose.
const MOST_ITERATIONS: u32 = 10_000_000;

/// The messages of a login.
pub(crate) struct Exchange {
    user: UriUser,
    first_bare: String,
    nonce: String,
}

/// The client's last message, and the signature that proves that the server knows the password.
pub(crate) struct Proof {
    pub(crate) message: String,
    server_signature: String,
}

impl Exchange {
    /// Begins a login with a random nonce.
    pub(crate) fn begin(user: UriUser, nonce: String) -> Exchange {
        let name = user.name.replace('=', "=3D").replace(',', "=2C");
        Exchange { user, first_bare: format!("n={name},r={nonce}"), nonce }
    }

    /// The client's first message.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// The proof for the server's first message.
    ///
    /// # Errors
    /// An invalid message, and passwords that are not allowed in SCRAM.
    pub(crate) fn prove(&self, server_first: &str) -> anyhow::Result<Proof> {
        let field = |name: &str| {
            let found = server_first.split(',').find_map(|part| part.strip_prefix(name));
            found.with_context(|| format!("the server's message of the login has no {name}"))
        };
        let (nonce, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
        ensure!(nonce.starts_with(&self.nonce), "the server answered another login");
        let salt = STANDARD.decode(salt).context("the salt is invalid")?;
        let iterations: u32 = iterations.parse().context("the iterations are invalid")?;
        ensure!((1..=MOST_ITERATIONS).contains(&iterations), "the iterations are out of range");
        let password = self.user.password.expose_secret();
        let password = password::for_mechanism(Mechanism::ScramSha256, "", password)?;
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
        let client_key = hmac(&salted, "Client Key")?;
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = hmac(&Sha256::digest(client_key), &signed)?;
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let server_signature = hmac(&hmac(&salted, "Server Key")?, &signed)?;
        Ok(Proof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)),
            server_signature: STANDARD.encode(server_signature),
        })
    }
}

fn hmac(key: &[u8], text: &str) -> anyhow::Result<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).context("a key of an invalid length")?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().into())
}

/// Logs in.
///
/// # Errors
/// A wrong password; errors of the network.
pub(super) fn log_in(client: &mut Client, user: &UriUser) -> anyhow::Result<()> {
    let nonce = STANDARD.encode(rand::random::<[u8; 24]>());
    let exchange = Exchange::begin(user.clone(), nonce);
    let mut start = DocBuilder::new();
    start.append("saslStart", 1).append("mechanism", Mechanism::ScramSha256.name());
    append_payload(&mut start, &exchange.first());
    start.append("$db", user.source.as_str());
    let reply = client.run(start.finish().as_doc())?;
    let proof = exchange.prove(&payload(&reply)?)?;
    let reply = client.run(next(&reply, &proof.message, user)?.as_doc())?;
    if payload(&reply)?.strip_prefix("v=") != Some(proof.server_signature.as_str()) {
        bail!("the server does not know the password of the user");
    }
    if reply.as_doc().get("done") != Some(RawValue::Bool(true)) {
        client.run(next(&reply, "", user)?.as_doc())?;
    }
    Ok(())
}

fn next(reply: &DocBuf, payload: &str, user: &UriUser) -> anyhow::Result<DocBuf> {
    let id = reply.as_doc().get("conversationId").context("the reply of the login is invalid")?;
    let mut command = DocBuilder::new();
    command.append("saslContinue", 1).append("conversationId", id);
    append_payload(&mut command, payload);
    command.append("$db", user.source.as_str());
    Ok(command.finish())
}

fn append_payload(command: &mut DocBuilder, payload: &str) {
    command.append("payload", RawValue::Binary { subtype: 0, bytes: payload.as_bytes() });
}

fn payload(reply: &DocBuf) -> anyhow::Result<String> {
    match reply.as_doc().get("payload") {
        Some(RawValue::Binary { bytes, .. }) => Ok(std::str::from_utf8(bytes)?.to_owned()),
        _ => bail!("the reply of the login has no payload"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_is_that_of_the_standard() {
        let user =
            UriUser { name: "user".into(), password: "pencil".into(), source: "admin".into() };
        let exchange = Exchange::begin(user, "rOprNGfwEbeRWgbNEkqO".into());
        assert_eq!(exchange.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = exchange.prove(server).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(proof.server_signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for wrong in ["", "r=x,s=AA==,i=1", "r=rOprNGfwEbeRWgbNEkqO,s=AA==,i=0"] {
            assert!(exchange.prove(wrong).is_err(), "{wrong}");
        }
    }
}

//! What is stored of a password: enough to check a proof, not enough to make one.
//!
//! ```text
//! { iterationCount: 15000, salt: BASE64, storedKey: BASE64, serverKey: BASE64 }
//!
//! salted    = PBKDF2(password, salt, iterationCount)
//! storedKey = H(HMAC(salted, "Client Key"))
//! serverKey =   HMAC(salted, "Server Key")
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

use super::digest::{Digest, hash, hmac, stretch};
use super::{Mechanism, password};

/// How often a password is hashed, within the limits of the reference's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations(u32);

impl Iterations {
    /// As many as are usual with SHA-1, whose passwords are hashes already.
    pub const SHA_1: Iterations = Iterations(10_000);
    /// As many as are usual with SHA-256.
    pub const SHA_256: Iterations = Iterations(15_000);
    /// RFC 5802 and RFC 7677 demand no fewer.
    const LEAST: u32 = 4096;
    /// More would let one who stores a document keep clients computing for minutes.
    const MOST: u32 = 100_000_000;

    /// This many; nothing when they are too few to protect a password or absurdly many.
    pub fn new(count: i64) -> Option<Iterations> {
        let count = u32::try_from(count).ok()?;
        (Iterations::LEAST..=Iterations::MOST).contains(&count).then_some(Iterations(count))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The stored form of a user's password for one mechanism. `Debug` shows no secrets.
#[derive(Clone, Debug)]
pub struct Credential {
    pub(super) mechanism: Mechanism,
    pub(super) iterations: Iterations,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Digest,
    pub(super) server_key: Digest,
}

impl Credential {
    /// Derives what is stored from a password, which takes milliseconds on purpose. The salt is
    /// [`Mechanism::salt_bytes`] long.
    ///
    /// # Errors
    /// 2 BadValue for a password that the mechanism cannot take.
    pub fn derive(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        salt: &[u8],
        iterations: Iterations,
    ) -> Result<Credential> {
        let prepared = password::for_mechanism(mechanism, user, password)?;
        Ok(Credential::derive_prepared(mechanism, &prepared, salt, iterations))
    }

    /// The same from a password that a client has prepared: with SHA-1 the MD5 digest.
    pub fn derive_prepared(
        mechanism: Mechanism,
        prepared: &str,
        salt: &[u8],
        iterations: Iterations,
    ) -> Credential {
        let salted = stretch(mechanism, prepared.as_bytes(), salt, iterations.get());
        let client_key = hmac(mechanism, salted.as_bytes(), b"Client Key");
        Credential {
            mechanism,
            iterations,
            salt: salt.to_vec(),
            stored_key: hash(mechanism, client_key.as_bytes()),
            server_key: hmac(mechanism, salted.as_bytes(), b"Server Key"),
        }
    }

    /// Reads `credentials.<mechanism>` of a user.
    ///
    /// # Errors
    /// 12 UnsupportedFormat for anything but four well-formed fields of the right sizes. The text names the field only.
    pub fn parse(mechanism: Mechanism, document: RawDoc<'_>) -> Result<Credential> {
        let wrong = |field: &str| {
            let text = format!("credentials for {} have a bad '{field}'", mechanism.name());
            Error::new(ErrorCode::UnsupportedFormat, text)
        };
        let bytes = |field: &str| {
            let text =
                document.get(field).and_then(RawValue::as_str).ok_or_else(|| wrong(field))?;
            STANDARD.decode(text).map_err(|_| wrong(field))
        };
        let digest =
            |field: &str| Digest::from_bytes(mechanism, &bytes(field)?).ok_or_else(|| wrong(field));
        let count = document.get("iterationCount").and_then(Number::from_value);
        let iterations = count.and_then(Number::to_i64_exact).and_then(Iterations::new);
        let salt = bytes("salt")?;
        if salt.len() != mechanism.salt_bytes() {
            return Err(wrong("salt"));
        }
        Ok(Credential {
            mechanism,
            iterations: iterations.ok_or_else(|| wrong("iterationCount"))?,
            salt,
            stored_key: digest("storedKey")?,
            server_key: digest("serverKey")?,
        })
    }

    /// Writes the fields into an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("iterationCount", i32::try_from(self.iterations.get()).unwrap_or(i32::MAX));
        out.append("salt", STANDARD.encode(&self.salt).as_str());
        out.append("storedKey", STANDARD.encode(self.stored_key.as_bytes()).as_str());
        out.append("serverKey", STANDARD.encode(self.server_key.as_bytes()).as_str());
    }
}

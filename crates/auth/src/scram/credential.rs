//! The stored form of a password: sufficient to check a proof, not to create one.
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
    /// The default for SHA-1, whose passwords are MD5 digests.
    pub const SHA_1: Iterations = Iterations(10_000);
    /// The default for SHA-256.
    pub const SHA_256: Iterations = Iterations(15_000);
    /// The minimum of RFC 5802 and RFC 7677.
    const LEAST: u32 = 4096;
    /// The maximum: a larger number in a stored document would keep clients computing for minutes.
    const MOST: u32 = 100_000_000;

    /// This number; `None` when it is outside the limits.
    pub fn new(count: i64) -> Option<Iterations> {
        let count = u32::try_from(count).ok()?;
        (Iterations::LEAST..=Iterations::MOST).contains(&count).then_some(Iterations(count))
    }

    /// The number of iterations.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The stored form of a user's password for one mechanism. `Debug` prints no secrets.
#[derive(Clone, Debug)]
pub struct Credential {
    pub(super) mechanism: Mechanism,
    pub(super) iterations: Iterations,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Digest,
    pub(super) server_key: Digest,
}

impl Credential {
    /// Derives the stored form of a password, which takes milliseconds by design. The salt must be
    /// [`Mechanism::salt_bytes`] long.
    ///
    /// # Errors
    /// 2 BadValue for a password that the mechanism does not accept.
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

    /// The same from a password that the client has prepared: for SHA-1 the MD5 digest.
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

    /// Parses `credentials.<mechanism>` of a user.
    ///
    /// # Errors
    /// 12 UnsupportedFormat unless there are four well-formed fields of the right sizes. The text
    /// names only the field.
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

    /// Appends the fields to an open document.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("iterationCount", i32::try_from(self.iterations.get()).unwrap_or(i32::MAX));
        out.append("salt", STANDARD.encode(&self.salt).as_str());
        out.append("storedKey", STANDARD.encode(self.stored_key.as_bytes()).as_str());
        out.append("serverKey", STANDARD.encode(self.server_key.as_bytes()).as_str());
    }
}

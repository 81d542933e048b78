//! The hash functions of the mechanisms, with a common type for their results.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Mechanism;

/// Longest hash of a mechanism, in bytes.
const MAX_BYTES: usize = 32;

/// A hash, a key or a signature: 20 or 32 bytes. Zeroed when dropped; `Debug` prints only the
/// length.
#[derive(Clone)]
pub(super) struct Digest {
    bytes: Zeroizing<[u8; MAX_BYTES]>,
    len: usize,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest of {} bytes", self.len)
    }
}

impl Digest {
    /// These bytes as a hash of the mechanism; `None` when the length differs.
    pub(super) fn from_bytes(mechanism: Mechanism, bytes: &[u8]) -> Option<Digest> {
        if bytes.len() != mechanism.hash_bytes() {
            return None;
        }
        let mut digest = Digest { bytes: Zeroizing::new([0; MAX_BYTES]), len: bytes.len() };
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(digest)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Compares in constant time.
    pub(super) fn equals(&self, other: &Digest) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }

    /// The bitwise exclusive or.
    pub(super) fn xor(&self, other: &Digest) -> Digest {
        let mut mixed = self.clone();
        for (byte, other) in mixed.bytes.iter_mut().zip(*other.bytes) {
            *byte ^= other;
        }
        mixed
    }
}

/// The plain hash: `H` in the RFC.
pub(super) fn hash(mechanism: Mechanism, data: &[u8]) -> Digest {
    let mut digest = Digest { bytes: Zeroizing::new([0; MAX_BYTES]), len: mechanism.hash_bytes() };
    match mechanism {
        Mechanism::ScramSha1 => digest.bytes[..20].copy_from_slice(&Sha1::digest(data)),
        Mechanism::ScramSha256 => digest.bytes.copy_from_slice(&Sha256::digest(data)),
    }
    digest
}

/// The keyed hash: `HMAC` in the RFC. Keys may have any length.
pub(super) fn hmac(mechanism: Mechanism, key: &[u8], data: &[u8]) -> Digest {
    let mut digest = Digest { bytes: Zeroizing::new([0; MAX_BYTES]), len: mechanism.hash_bytes() };
    // HMAC accepts keys of any length: it hashes longer ones.
    match mechanism {
        Mechanism::ScramSha1 => {
            if let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(key) {
                mac.update(data);
                digest.bytes[..20].copy_from_slice(&mac.finalize().into_bytes());
            }
        }
        Mechanism::ScramSha256 => {
            if let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) {
                mac.update(data);
                digest.bytes.copy_from_slice(&mac.finalize().into_bytes());
            }
        }
    }
    digest
}

/// The slow hash of a password: `Hi` in the RFC, PBKDF2 with one block.
pub(super) fn stretch(
    mechanism: Mechanism,
    password: &[u8],
    salt: &[u8],
    iterations: u32,
) -> Digest {
    let mut digest = Digest { bytes: Zeroizing::new([0; MAX_BYTES]), len: mechanism.hash_bytes() };
    match mechanism {
        Mechanism::ScramSha1 => {
            pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut digest.bytes[..20]);
        }
        Mechanism::ScramSha256 => {
            pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut *digest.bytes);
        }
    }
    digest
}

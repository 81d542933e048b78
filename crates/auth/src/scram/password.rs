//! Preparation of passwords for hashing.

use mayfly_base::{Error, ErrorCode, Result};
use md5::{Digest, Md5};
use zeroize::Zeroizing;

use super::Mechanism;

/// The password as the mechanism hashes it. For SHA-256 it is prepared by SASLprep, so that
/// equivalent spellings are the same password; for SHA-1 it is the hexadecimal MD5 of
/// `user:mongo:password`.
///
/// # Errors
/// 2 BadValue for characters that SASLprep prohibits. The text does not contain them.
pub fn for_mechanism(
    mechanism: Mechanism,
    user: &str,
    password: &str,
) -> Result<Zeroizing<String>> {
    match mechanism {
        Mechanism::ScramSha1 => Ok(digested(user, password)),
        Mechanism::ScramSha256 => match stringprep::saslprep(password) {
            Ok(prepared) => Ok(Zeroizing::new(prepared.into_owned())),
            Err(_) => {
                let text =
                    "Error preflighting normalization: the password has prohibited characters";
                Err(Error::new(ErrorCode::BadValue, text))
            }
        },
    }
}

/// The hexadecimal MD5 of `user:mongo:password`.
pub fn digested(user: &str, password: &str) -> Zeroizing<String> {
    let mut hash = Md5::new();
    hash.update(user);
    hash.update(":mongo:");
    hash.update(password);
    let hash = hash.finalize();
    let hex = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    Zeroizing::new(hash.iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 15)]).collect())
}

//! JSON objects that contain their own checksum.
//!
//! ```text
//! {"sha256":"44d1...",
//!   "format": 1,
//!   ...
//! ```
//!
//! The first line is exactly `{"sha256":"`, 64 digits, `",` and a newline. The checksum covers all
//! bytes after that newline, so that a reader checks it without knowing how the JSON was printed.
//! The whole is valid JSON. Every sealed object has a field `format`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::names::Checksum;

/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u64 = 1;

const OPENING: &str = "{\"sha256\":\"";
const CLOSING: &str = "\",\n";
const DIGITS: usize = 64;

/// The sealed text of a value, which must serialise as a JSON object with at least one field.
pub(crate) fn seal<T: Serialize>(object: &str, value: &T) -> Result<Vec<u8>> {
    let json = serde_json::to_vec_pretty(value).map_err(|error| Error::damaged(object, error))?;
    let rest = json.strip_prefix(b"{\n").unwrap_or(&json);
    let mut sealed = format!("{OPENING}{}{CLOSING}", Checksum::of(rest)).into_bytes();
    sealed.extend_from_slice(rest);
    Ok(sealed)
}

/// Reads a sealed object: its format, its checksum, and then the value.
///
/// # Errors
/// [`Error::NewerFormat`], [`Error::Damaged`].
pub(crate) fn unseal<T: DeserializeOwned>(object: &str, bytes: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    // A later format may be sealed in another way, but has this field.
    if let Ok(Format { format }) = serde_json::from_slice(bytes)
        && format > FORMAT
    {
        return Err(Error::NewerFormat { object: object.to_owned(), format });
    }
    let (written, rest) = split(bytes)
        .ok_or_else(|| Error::damaged(object, "it does not begin with its checksum"))?;
    if written != Checksum::of(rest) {
        return Err(Error::damaged(object, "its checksum does not match its content"));
    }
    let Format { format } =
        serde_json::from_slice(bytes).map_err(|error| Error::damaged(object, error))?;
    if format != FORMAT {
        return Err(Error::damaged(object, format!("there is no format {format}")));
    }
    serde_json::from_slice(bytes).map_err(|error| Error::damaged(object, error))
}

/// The checksum of the first line, and the bytes that it covers.
fn split(bytes: &[u8]) -> Option<(Checksum, &[u8])> {
    let rest = bytes.strip_prefix(OPENING.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(DIGITS)?;
    let rest = rest.strip_prefix(CLOSING.as_bytes())?;
    let checksum = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((checksum, rest))
}

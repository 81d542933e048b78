//! The size limit of documents that the server builds: the same as for external ones. Without it,
//! expressions could double their values endlessly.

use mayfly_base::limits::MAX_WIRE_DOCUMENT_BYTES;
use mayfly_base::{Error, ErrorCode, Result};

/// Checks that a document or value is not larger than BSON allows.
///
/// # Errors
/// 10334 BSONObjectTooLarge.
#[inline]
pub fn check_size(bytes: usize) -> Result<()> {
    if bytes <= MAX_WIRE_DOCUMENT_BYTES { Ok(()) } else { Err(too_large(bytes)) }
}

#[cold]
fn too_large(bytes: usize) -> Error {
    let most = MAX_WIRE_DOCUMENT_BYTES;
    let text = format!(
        "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {most}(16MB)"
    );
    Error::new(ErrorCode(10334), text)
}

//! Which documents may be stored: limits of size and depth, and intact bytes.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::{DocBuf, RawDoc, ty, validate};

/// The bytes that one level of nesting takes at least: type, end of name, length, end of document.
const LEVEL_BYTES: usize = 7;

/// Levels that the catalog and the log add to a document of a client, such as a validator.
const WRAPPING_LEVELS: usize = 8;

/// Checks a document's bytes. Documents built by the server are checked as strictly as those of
/// clients, so that damaged bytes are never stored.
///
/// # Errors
/// 22 InvalidBSON, 15 Overflow.
pub(crate) fn check_bytes(document: RawDoc<'_>) -> Result<()> {
    // A delta nests deeper than the document whose parts it holds. [`check_storable`] checks the
    // depth of documents.
    match validate(document.as_bytes(), limits::MAX_BSON_DEPTH + WRAPPING_LEVELS) {
        Ok(_) => Ok(()),
        Err(error) if error.code() == ErrorCode::Overflow => Err(too_deep()),
        Err(error) => Err(error),
    }
}

/// The longest key of a record in a clustered collection.
pub(crate) const MAX_CLUSTERED_KEY_BYTES: usize = 8 * 1024 * 1024;

fn too_deep() -> Error {
    let text = format!("Document exceeds maximum nesting depth of {}", limits::MAX_STORED_DEPTH);
    Error::new(ErrorCode::Overflow, text)
}

/// Checks the limits of a stored document.
///
/// # Errors
/// 10334 BSONObjectTooLarge, 15 Overflow.
pub(crate) fn check_storable(document: RawDoc<'_>) -> Result<()> {
    let size = document.as_bytes().len();
    if size > limits::MAX_USER_DOCUMENT_BYTES {
        return Err(Error::new(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {}(16MB)",
                limits::MAX_USER_DOCUMENT_BYTES
            ),
        ));
    }
    // A shorter document cannot be too deep.
    if size > limits::MAX_STORED_DEPTH * LEVEL_BYTES
        && deeper_than(document, limits::MAX_STORED_DEPTH)
    {
        return Err(too_deep());
    }
    Ok(())
}

/// Checks the key of a record, which is longer than [`MAX_CLUSTERED_KEY_BYTES`]. The limit is that
/// of collections that clients create with `clusteredIndex`.
///
/// # Errors
/// 5894900.
pub(crate) fn check_clustered_key(options: &DocBuf, key: &[u8]) -> Result<()> {
    if options.as_doc().get("clusteredIndex").is_none() {
        return Ok(());
    }
    let text = format!(
        "the key of an '_id' in a clustered collection must have at most \
         {MAX_CLUSTERED_KEY_BYTES} bytes, but has {}",
        key.len()
    );
    Err(Error::new(ErrorCode(5_894_900), text))
}

/// Whether documents and arrays nest deeper than this; the document itself is the first level.
fn deeper_than(document: RawDoc<'_>, levels: usize) -> bool {
    levels == 0
        || document.iter().any(|element| match element.type_byte() {
            ty::DOCUMENT | ty::ARRAY => {
                let inner = element.data();
                inner.len() > LEVEL_BYTES
                    && RawDoc::new(inner).is_some_and(|inner| deeper_than(inner, levels - 1))
                    || levels == 1
            }
            _ => false,
        })
}

//! Documents as bytes in memory or in files.
//!
//! ```text
//! row: document | metadata document, or nothing
//! ```
//!
//! Documents begin with their length.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, RawDoc};

use crate::language::metadata::Metadata;

fn damaged() -> Error {
    Error::internal("a temporary file holds what is no document")
}

/// The parts of a row.
pub(super) fn parts<'r>(document: RawDoc<'r>, metadata: &'r Metadata) -> [&'r [u8]; 2] {
    [document.as_bytes(), metadata.as_doc().map_or(&[][..], |notes| notes.as_bytes())]
}

/// Splits a row.
///
/// # Errors
/// 8 if the bytes are not a row.
pub(crate) fn row(bytes: &[u8]) -> Result<(RawDoc<'_>, Metadata)> {
    let document = RawDoc::at_front(bytes).ok_or_else(damaged)?;
    let metadata = match &bytes[document.as_bytes().len()..] {
        [] => Metadata::NONE,
        notes => Metadata::new(into_document(notes.to_vec())?),
    };
    Ok((document, metadata))
}

/// Parses a document that was written alone.
///
/// # Errors
/// 8 if the bytes are not a document.
pub(crate) fn into_document(bytes: Vec<u8>) -> Result<DocBuf> {
    DocBuf::from_bytes(bytes).ok_or_else(damaged)
}

/// Parses a borrowed document.
pub(crate) fn as_document(bytes: &[u8]) -> Result<RawDoc<'_>> {
    RawDoc::new(bytes).ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuilder;

    #[test]
    fn rows_come_back_with_their_metadata() {
        let mut out = DocBuilder::new();
        out.append("n", 1);
        let document = out.finish();
        for metadata in [Metadata::NONE, Metadata::new(document.clone())] {
            let bytes = parts(document.as_doc(), &metadata).concat();
            let (found, known) = row(&bytes).unwrap();
            assert_eq!(found, document.as_doc());
            assert_eq!(known.as_doc(), metadata.as_doc());
        }
        assert!(row(&[1, 2, 3]).is_err());
    }
}

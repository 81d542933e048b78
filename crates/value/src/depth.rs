//! The nesting limit of documents that the server builds: the same as for external ones
//! ([`crate::validate()`]). Readers of values recurse into them, so that nothing deeper may exist.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};

use crate::raw::{RawDoc, RawIter, ty};

/// The smallest size of a level: type, terminator of an empty name, length, terminator.
const LEVEL_BYTES: usize = 7;

/// Checks that a document or array is not nested deeper than BSON allows. Small ones cannot be.
///
/// # Errors
/// 15 Overflow.
#[inline]
pub fn check_depth(made: RawDoc<'_>) -> Result<()> {
    if made.as_bytes().len() <= LEVEL_BYTES * MAX_BSON_DEPTH { Ok(()) } else { check(made) }
}

fn check(made: RawDoc<'_>) -> Result<()> {
    if !is_deeper(made, MAX_BSON_DEPTH) {
        return Ok(());
    }
    let text = format!(
        "cannot convert document to BSON because it exceeds the limit of {MAX_BSON_DEPTH} levels of nesting"
    );
    Err(Error::new(ErrorCode::Overflow, text))
}

/// Whether the document has more than `most` levels, its own included. Without recursion; documents
/// too short for more levels are not read.
fn is_deeper(document: RawDoc<'_>, most: usize) -> bool {
    let mut open: Vec<RawIter<'_>> = vec![document.iter()];
    while let Some(elements) = open.last_mut() {
        let Some(element) = elements.next() else {
            open.pop();
            continue;
        };
        let levels = matches!(element.type_byte(), ty::DOCUMENT | ty::ARRAY);
        if !levels || element.data().len() <= LEVEL_BYTES * most.saturating_sub(open.len()) {
            continue;
        }
        if open.len() >= most {
            return true;
        }
        if let Some(inner) = RawDoc::new(element.data()) {
            open.push(inner.iter());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DocBuf, DocBuilder, RawValue};

    /// A document of this many levels, arrays and documents alternating, with other fields on each
    /// level.
    fn nested(levels: usize, name: &str, other: &str) -> DocBuf {
        let mut document = DocBuf::empty();
        for level in 1..levels {
            let mut out = DocBuilder::new();
            out.append("before", other);
            if level % 2 == 0 {
                out.append(name, document.as_doc());
            } else {
                out.start_array(name).push(other).end();
                out.append(name, RawValue::Array(document.as_doc()));
            }
            document = out.finish();
        }
        document
    }

    #[test]
    fn levels_are_counted() {
        for (name, other) in [("", ""), ("a", ""), ("a", "much more than that"), ("", "x")] {
            let allowed = nested(MAX_BSON_DEPTH, name, other);
            assert!(check_depth(allowed.as_doc()).is_ok());
            let error = check_depth(nested(MAX_BSON_DEPTH + 1, name, other).as_doc()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Overflow);
        }
        let mut plain = DocBuf::empty();
        for level in 1..=MAX_BSON_DEPTH {
            assert!(check_depth(plain.as_doc()).is_ok(), "{level}");
            let mut out = DocBuilder::new();
            out.append("", plain.as_doc());
            plain = out.finish();
        }
        assert!(check_depth(plain.as_doc()).is_err());
    }
}

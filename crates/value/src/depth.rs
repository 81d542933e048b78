//! How deep documents made here may be: as deep as those that come from outside ([`crate::validate()`]). What reads values goes down
//! their levels by calls, so that nothing deeper may exist.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};

use crate::raw::{RawDoc, RawIter, ty};

/// A level takes no less: its type, an empty name's end, a length, an end.
const LEVEL_BYTES: usize = 7;

/// Checks that a document or array has no more levels than BSON may have. Small ones cannot.
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

/// Whether there are more levels, the document's own among them. No recursion, and no look into what is too short for more.
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

    /// So many levels, an array in turn with a document, with something beside each.
    fn nested(levels: usize, name: &str, beside: &str) -> DocBuf {
        let mut document = DocBuf::empty();
        for level in 1..levels {
            let mut out = DocBuilder::new();
            out.append("before", beside);
            if level % 2 == 0 {
                out.append(name, document.as_doc());
            } else {
                out.start_array(name).push(beside).end();
                out.append(name, RawValue::Array(document.as_doc()));
            }
            document = out.finish();
        }
        document
    }

    #[test]
    fn levels_are_counted() {
        for (name, beside) in [("", ""), ("a", ""), ("a", "much more than that"), ("", "x")] {
            let allowed = nested(MAX_BSON_DEPTH, name, beside);
            assert!(check_depth(allowed.as_doc()).is_ok());
            let error = check_depth(nested(MAX_BSON_DEPTH + 1, name, beside).as_doc()).unwrap_err();
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

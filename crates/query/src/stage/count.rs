//! `$count`: rewritten to a `$group` over all documents and a `$project`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::written;

pub(crate) fn parse(value: RawValue<'_>) -> Result<Vec<DocBuf>> {
    let fail = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    let name = match value {
        RawValue::String(name) => name,
        _ => return fail(40156, "the count field must be a non-empty string"),
    };
    if name == "_id" {
        return fail(9_039_800, "the count field cannot be '_id'");
    }
    if name.is_empty() {
        return fail(40157, "the count field must be a non-empty string");
    }
    if name.starts_with('$') {
        return fail(40158, "the count field cannot be a $-prefixed path");
    }
    if name.contains('\0') {
        return fail(40159, "the count field cannot contain a null byte");
    }
    if name.contains('.') {
        return fail(40160, "the count field cannot contain '.'");
    }
    let mut spec = DocBuilder::new();
    spec.append("_id", RawValue::Null).start_document(name).append("$sum", 1).end();
    let mut rest = DocBuilder::new();
    rest.append(name, true).append("_id", false);
    Ok(vec![written("$group", &spec.finish()), written("$project", &rest.finish())])
}

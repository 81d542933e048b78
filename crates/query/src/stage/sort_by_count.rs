//! `$sortByCount`: rewritten to a `$group` by an expression with a count, and a `$sort` by that
//! count.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::written;

pub(crate) fn parse(value: RawValue<'_>) -> Result<Vec<DocBuf>> {
    let fail = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    match value {
        RawValue::Document(expression) => {
            let operator = expression.iter().next().is_some_and(|e| e.name().starts_with('$'));
            if !operator {
                return fail(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
                );
            }
        }
        RawValue::String(path) if path.starts_with('$') => {}
        RawValue::String(_) => {
            return fail(40148, "the sortByCount field must be defined as a $-prefixed path");
        }
        _ => {
            return fail(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            );
        }
    }
    let mut spec = DocBuilder::new();
    spec.append("_id", value).start_document("count").append("$sum", 1).end();
    let mut order = DocBuilder::new();
    order.append("count", -1);
    Ok(vec![written("$group", &spec.finish()), written("$sort", &order.finish())])
}

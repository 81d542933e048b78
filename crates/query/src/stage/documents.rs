//! `$documents`: documents written in the pipeline itself.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::{Around, Stage};

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    let expression = Expression::parse_in(value, around.scope)?;
    let value = expression.evaluate(Frame::new(RawDoc::EMPTY))?;
    let Some(RawValue::Array(items)) = value.as_raw() else {
        let text = "error during aggregation :: caused by :: an array is expected";
        return Err(Error::new(ErrorCode(5858203), text));
    };
    let mut documents: Vec<DocBuf> = Vec::new();
    for item in items {
        match item.value() {
            RawValue::Document(document) => documents.push(document.to_owned()),
            other => {
                let text = format!(
                    "'newRoot' expression must evaluate to an object, but resulting value was: {}. Type of resulting \
                     value: '{}'. Input document: {{}}",
                    mayfly_value::shell::ShellValue(other),
                    other.type_name()
                );
                return Err(Error::new(ErrorCode(40228), text));
            }
        }
    }
    Ok(vec![Stage::Documents(documents)])
}

//! `$documents`: documents given as expressions in the pipeline.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame};
use mayfly_storage::StoreSession;
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::source::{MemorySource, RunningSource};
use super::{About, PipelineContext, Source};
use crate::stage::Host;

/// The documents of the pipeline.
#[derive(Debug)]
struct Documents(Vec<DocBuf>);

impl Source for Documents {
    fn about(&self) -> About {
        About::Pipeline
    }

    fn start(&self, _: StoreSession<'_>, _: &dyn Host) -> Result<Box<dyn RunningSource>> {
        Ok(MemorySource::boxed(self.0.clone()))
    }

    fn given(&self) -> Option<&[DocBuf]> {
        Some(&self.0)
    }
}

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Source>> {
    if value.as_document().is_some_and(RawDoc::is_empty) {
        let text = "Invalid empty sub-projection: _tempDocumentsField";
        return Err(Error::new(ErrorCode(51270), text));
    }
    let expression = Expression::parse_in(value, context.scope)?;
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
    Ok(Box::new(Documents(documents)))
}

//! `$redact`: on each level of a document, an expression decides whether to keep it, to drop it, or
//! to descend. Its paths begin at the level; `$$ROOT` is the whole document at every level.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::current::spend;

use super::{Next, PipelineContext, Running, Stage, StageContext};
use crate::exec::Flow;

/// The values of the system variables. They are visible only if the expression returns them in
/// other places.
const DESCEND: &str = "descend";
const PRUNE: &str = "prune";
const KEEP: &str = "keep";

pub(crate) fn parse(value: RawValue<'_>, context: &PipelineContext<'_>) -> Result<Box<dyn Stage>> {
    let mut scope = context.scope.clone();
    for (name, value) in [("DESCEND", DESCEND), ("PRUNE", PRUNE), ("KEEP", KEEP)] {
        scope = scope.with_system(name, RawValue::String(value));
    }
    Ok(Box::new(Redact(Expression::parse_on_levels(value, &scope)?)))
}

/// A parsed `$redact`.
#[derive(Debug)]
pub(crate) struct Redact(Expression);

impl Stage for Redact {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningRedact(self.0))
    }
}

struct RunningRedact(Expression);

impl RunningRedact {
    /// The remaining part of a level of the document in the frame; `None` if it is dropped.
    fn redacted(&self, document: RawDoc<'_>, root: Frame<'_>) -> Result<Option<DocBuf>> {
        spend(1)?;
        let value = self.0.evaluate_at(document, root)?;
        match value.as_raw() {
            Some(RawValue::String(KEEP)) => Ok(Some(document.to_owned())),
            Some(RawValue::String(PRUNE)) => Ok(None),
            Some(RawValue::String(DESCEND)) => {
                let mut out = DocBuilder::new();
                for field in document {
                    match field.value() {
                        RawValue::Document(inner) => {
                            if let Some(inner) = self.redacted(inner, root)? {
                                out.append(field.name(), &inner);
                            }
                        }
                        RawValue::Array(items) => {
                            let items = self.redacted_items(items, root)?;
                            out.append(field.name(), RawValue::Array(items.as_doc()));
                        }
                        _ => {
                            out.append_element(field);
                        }
                    }
                }
                Ok(Some(out.finish()))
            }
            other => {
                let shown = other.map_or("MISSING".to_owned(), |it| ShellValue(it).to_string());
                let text = format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and \
                     $$PRUNE, but returned {shown}"
                );
                Err(Error::new(ErrorCode(17053), text))
            }
        }
    }

    /// Recursion is bounded by the nesting limit of documents.
    fn redacted_items(&self, items: RawDoc<'_>, root: Frame<'_>) -> Result<DocBuf> {
        let mut out = DocBuilder::new_array();
        for item in items {
            match item.value() {
                RawValue::Document(inner) => {
                    if let Some(inner) = self.redacted(inner, root)? {
                        out.push(&inner);
                    }
                }
                RawValue::Array(inner) => {
                    let inner = self.redacted_items(inner, root)?;
                    out.push(RawValue::Array(inner.as_doc()));
                }
                value => {
                    out.push(value);
                }
            }
        }
        Ok(out.finish())
    }
}

impl Running for RunningRedact {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        match self.redacted(document, context.metadata.get().frame(document))? {
            Some(left) => next(left.as_doc()),
            None => Ok(Flow::More),
        }
    }
}

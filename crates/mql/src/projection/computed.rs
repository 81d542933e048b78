//! `$elemMatch` in a find projection.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::Matcher;

/// A condition on array items, as a filter on documents with one field, an array of one item.
#[derive(Clone, Debug)]
pub(crate) struct ElementMatch(Matcher);

/// The field of the filter.
const FIELD: &str = "a";

impl ElementMatch {
    /// Parses `{$elemMatch: condition}`.
    ///
    /// # Errors
    /// 31274 when the condition is not a document, errors of filters.
    pub(super) fn parse(operator: RawDoc<'_>, scope: &Scope) -> Result<ElementMatch> {
        let condition = operator.get("$elemMatch").unwrap_or(RawValue::Null);
        if condition.as_document().is_none() {
            let found = condition.type_name();
            let text = format!("elemMatch: Invalid argument, object required, but got {found}");
            return Err(Error::new(ErrorCode(31274), text));
        }
        let mut filter = DocBuilder::new();
        filter.append(FIELD, RawValue::Document(operator));
        Ok(ElementMatch(Matcher::parse_plain(filter.finish().as_doc(), scope)?))
    }

    /// The first item that satisfies the condition.
    ///
    /// # Errors
    /// Errors of filters.
    pub(super) fn first<'a>(&self, value: RawValue<'a>) -> Result<Option<RawValue<'a>>> {
        let Some(items) = value.as_array() else { return Ok(None) };
        let mut holder = DocBuilder::new();
        holder.append(FIELD, value);
        let holder = holder.finish();
        if !self.0.matches(holder.as_doc())? {
            return Ok(None);
        }
        let position = self.0.array_position(holder.as_doc())?;
        Ok(position.and_then(|at| items.iter().nth(at)).map(|item| item.value()))
    }
}

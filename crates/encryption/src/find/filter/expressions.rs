//! Payloads in expressions: `$expr` of filters, and the stages of pipelines.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

use super::ranges::{has_encrypted, query_bytes};
use super::{Comparison, Condition, FilterRewriter, misplaced, push_tags};
use crate::payload::ENCRYPTED;
use crate::write::SAFE_CONTENT;

impl FilterRewriter<'_> {
    /// Appends an element of an expression.
    pub(super) fn write_expression(
        &mut self,
        element: RawElement<'_>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        let (name, value) = (element.name(), element.value());
        match value {
            _ if !has_encrypted(value) => {
                out.append_element(element);
            }
            RawValue::Array(arguments) if Comparison::of(name).is_some() => {
                self.write_comparison(name, arguments, out)?;
            }
            RawValue::Array(arguments) => {
                out.start_array(name);
                for argument in arguments {
                    match argument.value() {
                        RawValue::Document(inner) => {
                            out.push_document();
                            for element in inner.iter() {
                                self.write_expression(element, out)?;
                            }
                            out.end();
                        }
                        value if has_encrypted(value) => return Err(misplaced(name)),
                        value => {
                            out.push(value);
                        }
                    }
                }
                out.end();
            }
            RawValue::Document(inner) => {
                out.start_document(name);
                for element in inner.iter() {
                    self.write_expression(element, out)?;
                }
                out.end();
            }
            _ => return Err(misplaced(name)),
        }
        Ok(())
    }

    /// Appends a comparison of an expression: `{$eq: ["$path", payload]}` in either order, or
    /// `{$in: ["$path", [payload, ..]]}`.
    fn write_comparison(
        &mut self,
        name: &str,
        arguments: RawDoc<'_>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        let values: Vec<RawValue<'_>> = arguments.iter().map(|item| item.value()).collect();
        let (path, payloads) = match values[..] {
            [RawValue::String(path), RawValue::Array(items)] if name == "$in" => {
                let bytes = items.iter().map(|item| query_bytes(item.value()));
                (path, bytes.collect::<Option<Vec<_>>>().ok_or_else(|| misplaced(name))?)
            }
            [RawValue::String(path), RawValue::Binary { subtype: ENCRYPTED, bytes }]
            | [RawValue::Binary { subtype: ENCRYPTED, bytes }, RawValue::String(path)]
                if name != "$in" =>
            {
                (path, vec![bytes])
            }
            _ => return Err(misplaced(name)),
        };
        let path = path.strip_prefix('$').filter(|path| !path.starts_with('$'));
        let path = path.ok_or_else(|| misplaced(name))?;
        let comparison = Comparison::of(name).ok_or_else(|| misplaced(name))?;
        match comparison == Comparison::NotEqual {
            true => out.start_array("$not").push_document().start_array("$or"),
            false => out.start_array("$or"),
        };
        for bytes in payloads {
            let condition = self.condition(path, comparison, bytes)?;
            out.push_document();
            self.write_value(path, condition, out)?;
            out.end();
        }
        match comparison == Comparison::NotEqual {
            true => out.end().end().end(),
            false => out.end(),
        };
        Ok(())
    }

    /// Appends a condition as an operator of an expression, whose value is a boolean.
    fn write_value(&self, path: &str, condition: Condition, out: &mut DocBuilder) -> Result<()> {
        match condition {
            Condition::Always => {
                out.append("$literal", true);
            }
            Condition::Tags(tags) => {
                // Some tag of the query is one of the document, which may have none.
                out.start_array("$gt").push_document().start_document("$size");
                out.start_array("$setIntersection").push_document().start_array("$ifNull");
                out.push(&format!("${SAFE_CONTENT}")[..]).push_array().end().end().end();
                out.push_document().start_array("$literal");
                push_tags(&tags, out);
                out.end().end().end().end().end().push(0).end();
            }
            Condition::Fallback(predicate) => (self.fallback)(path, &predicate, out)?,
        }
        Ok(())
    }
}

//! Expressions: constants, field paths, documents and arrays of expressions.
//!
//! A path through an array gives the array of what its documents have there, as the manual's page "Field Paths" says; what
//! is missing stays out.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::{DocBuilder, RawDoc, RawValue, ValueBuf};

use crate::op;

/// A parsed expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A value that does not depend on the document.
    Constant(ValueBuf),
    /// `$a.b`; no parts for `$$ROOT`.
    Path(Vec<String>),
    /// `{ a: ..., b: ... }`
    Document(Vec<(String, Expression)>),
    /// `[ ..., ... ]`
    Array(Vec<Expression>),
}

impl Expression {
    /// Parses a value as an expression.
    ///
    /// # Errors
    /// 168 InvalidPipelineOperator for an unknown operator, 238 NotImplemented for one that is missing here,
    /// 16410, 16872, 17276 for bad paths and variables.
    pub fn parse(value: RawValue<'_>) -> Result<Expression> {
        parse(value, 0)
    }

    /// The value for this document; nothing when it is missing.
    pub fn evaluate(&self, document: RawDoc<'_>) -> Option<ValueBuf> {
        match self {
            Expression::Constant(value) => Some(value.clone()),
            Expression::Path(parts) => follow(RawValue::Document(document), parts),
            Expression::Document(fields) => {
                let mut out = DocBuilder::new();
                for (name, field) in fields {
                    if let Some(value) = field.evaluate(document) {
                        out.append(name, &value);
                    }
                }
                Some(RawValue::Document(out.finish().as_doc()).to_owned())
            }
            Expression::Array(items) => {
                let mut out = DocBuilder::new_array();
                for item in items {
                    match item.evaluate(document) {
                        Some(value) => out.push(&value),
                        None => out.push(RawValue::Null),
                    };
                }
                Some(RawValue::Array(out.finish().as_doc()).to_owned())
            }
        }
    }

    /// The same without a copy, where it is a path without arrays or a constant.
    pub fn evaluate_borrowed<'a>(&'a self, document: RawDoc<'a>) -> Option<Option<RawValue<'a>>> {
        match self {
            Expression::Constant(value) => Some(Some(value.as_raw())),
            Expression::Path(parts) => {
                let mut value = RawValue::Document(document);
                for part in parts {
                    match value {
                        RawValue::Document(inner) => match inner.get(part) {
                            Some(next) => value = next,
                            None => return Some(None),
                        },
                        RawValue::Array(_) => return None,
                        _ => return Some(None),
                    }
                }
                Some(Some(value))
            }
            Expression::Document(_) | Expression::Array(_) => None,
        }
    }
}

fn parse(value: RawValue<'_>, depth: usize) -> Result<Expression> {
    if depth > limits::MAX_FILTER_DEPTH {
        return Err(Error::new(ErrorCode::Overflow, "expression is nested too deeply"));
    }
    match value {
        RawValue::String(text) if text.starts_with('$') => path(text),
        RawValue::Array(items) => {
            let items = items.iter().map(|item| parse(item.value(), depth + 1));
            Ok(Expression::Array(items.collect::<Result<_>>()?))
        }
        RawValue::Document(document) => parse_document(document, depth),
        constant => Ok(Expression::Constant(constant.to_owned())),
    }
}

fn parse_document(document: RawDoc<'_>, depth: usize) -> Result<Expression> {
    let mut fields = Vec::new();
    for element in document {
        let name = element.name();
        if name.starts_with('$') {
            if document.iter().count() > 1 {
                return Err(Error::new(
                    ErrorCode(15983),
                    format!(
                        "An object representing an expression must have exactly one field: {document:?}"
                    ),
                ));
            }
            return operator(name, element.value());
        }
        if name.contains('.') {
            return Err(Error::new(
                ErrorCode(16412),
                format!(
                    "FieldPath field names may not contain '.'. Consider using $getField or $setField. {name}"
                ),
            ));
        }
        fields.push((name.to_owned(), parse(element.value(), depth + 1)?));
    }
    Ok(Expression::Document(fields))
}

fn operator(name: &str, operand: RawValue<'_>) -> Result<Expression> {
    if name == "$literal" {
        return Ok(Expression::Constant(operand.to_owned()));
    }
    if op::MISSING.contains(&name) {
        return Err(Error::not_implemented(format!("expression '{name}'")));
    }
    Err(Error::new(ErrorCode::InvalidPipelineOperator, format!("Unrecognized expression '{name}'")))
}

fn path(text: &str) -> Result<Expression> {
    if let Some(variable) = text.strip_prefix("$$") {
        let (name, rest) = variable.split_once('.').unwrap_or((variable, ""));
        return match name {
            "ROOT" | "CURRENT" if rest.is_empty() => Ok(Expression::Path(Vec::new())),
            "ROOT" | "CURRENT" => path(&format!("${rest}")),
            "NOW" | "CLUSTER_TIME" | "REMOVE" | "DESCEND" | "PRUNE" | "KEEP" | "SEARCH_META"
            | "USER_ROLES" => Err(Error::not_implemented(format!("system variable '$${name}'"))),
            _ => Err(Error::new(ErrorCode(17276), format!("Use of undefined variable: {name}"))),
        };
    }
    let dotted = &text[1..];
    if dotted.is_empty() {
        return Err(Error::new(ErrorCode(16872), "'$' by itself is not a valid FieldPath"));
    }
    let parts: Vec<String> = dotted.split('.').map(str::to_owned).collect();
    if parts.len() > limits::MAX_BSON_DEPTH {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    if parts.iter().any(String::is_empty) {
        let text = if dotted.ends_with('.') {
            "FieldPath must not end with a '.'."
        } else {
            "FieldPath field names may not be empty strings."
        };
        return Err(Error::new(ErrorCode(if dotted.ends_with('.') { 40353 } else { 15998 }), text));
    }
    if let Some(part) = parts.iter().find(|part| part.starts_with('$')) {
        return Err(Error::new(
            ErrorCode(16410),
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or $setField. {part}"
            ),
        ));
    }
    Ok(Expression::Path(parts))
}

fn follow(value: RawValue<'_>, parts: &[String]) -> Option<ValueBuf> {
    let Some((part, rest)) = parts.split_first() else { return Some(value.to_owned()) };
    match value {
        RawValue::Document(inner) => follow(inner.get(part)?, rest),
        RawValue::Array(items) => {
            let mut out = DocBuilder::new_array();
            for item in items.iter().map(|item| item.value()) {
                // Arrays directly inside arrays are not entered.
                if let RawValue::Document(_) = item
                    && let Some(found) = follow(item, parts)
                {
                    out.push(&found);
                }
            }
            Some(RawValue::Array(out.finish().as_doc()).to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Document, doc};

    fn check(expression: &Document, document: &Document, wanted: &Document) {
        let expression = DocBuf::from_bson(expression);
        let parsed = Expression::parse(expression.as_doc().get("e").unwrap()).unwrap();
        let document = DocBuf::from_bson(document);
        let found = parsed.evaluate(document.as_doc());
        let wanted = DocBuf::from_bson(wanted);
        assert_eq!(found.as_ref().map(ValueBuf::as_raw), wanted.as_doc().get("v"));
    }

    /// The manual, "Field Paths" and "Literal Expressions".
    #[test]
    fn paths_constants_and_documents() {
        check(&doc! { "e": "$a.b" }, &doc! { "a": { "b": 1 } }, &doc! { "v": 1 });
        check(&doc! { "e": "$a.c" }, &doc! { "a": { "b": 1 } }, &doc! {});
        check(
            &doc! { "e": "$a.b" },
            &doc! { "a": [{ "b": 1 }, { "c": 1 }, { "b": 2 }] },
            &doc! { "v": [1, 2] },
        );
        check(&doc! { "e": { "x": "$a", "y": "$z" } }, &doc! { "a": 1 }, &doc! { "v": { "x": 1 } });
        check(&doc! { "e": ["$a", "$z"] }, &doc! { "a": 1 }, &doc! { "v": [1, null] });
        check(&doc! { "e": { "$literal": "$a" } }, &doc! { "a": 1 }, &doc! { "v": "$a" });
    }

    #[test]
    fn bad_paths_have_their_codes() {
        for (text, code) in
            [("$", 16872), ("$a.", 40353), ("$a..b", 15998), ("$$x", 17276), ("$a.$b", 16410)]
        {
            let error = Expression::parse(RawValue::String(text)).unwrap_err();
            assert_eq!(error.code().0, code, "{text}");
        }
    }
}

//! Documents to trees: top-level operators, fields with operators, fields with plain values.

use std::sync::Arc;

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue};

use super::op::{self, Operand, Parse};
use super::{CmpOp, Expr, Predicate, Regex, is_operator_document};
use crate::FieldPath;

/// What stands around a part of a filter.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Logical operators around it.
    depth: usize,
    /// What expressions may name.
    pub(super) scope: &'a Scope,
    /// Which documents it is about.
    pub(super) subject: Subject,
    /// Whether documents can be sought by distance.
    pub(super) near: NearPlace,
}

/// What a filter is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The documents of a collection.
    Document,
    /// Items of an array in such a document.
    ArrayItem,
    /// Items of an array that an update removes.
    PulledItem,
}

/// Whether a condition on the distance may stand somewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NearPlace {
    /// The order of the results is somebody else's.
    Nowhere,
    /// In the outermost conjunction of a query.
    Here,
    /// In a query, below something else.
    Nested,
}

impl<'a> Around<'a> {
    /// Nothing stands around it.
    pub(super) fn nothing(scope: &'a Scope) -> Around<'a> {
        Around { depth: 0, scope, subject: Subject::Document, near: NearPlace::Nowhere }
    }

    /// It is what `$pull` removes.
    pub(super) fn pulled(scope: &'a Scope) -> Around<'a> {
        Around { subject: Subject::PulledItem, ..Around::nothing(scope) }
    }

    /// It is all of a query.
    pub(super) fn query(scope: &'a Scope) -> Around<'a> {
        Around { near: NearPlace::Here, ..Around::nothing(scope) }
    }

    /// The same for one part of a conjunction.
    pub(super) fn conjunct(self) -> Around<'a> {
        Around { depth: self.depth + 1, ..self }
    }

    /// The same below one more operator.
    pub(super) fn deeper(self) -> Around<'a> {
        let near = match self.near {
            NearPlace::Nowhere => NearPlace::Nowhere,
            NearPlace::Here | NearPlace::Nested => NearPlace::Nested,
        };
        Around { depth: self.depth + 1, near, ..self }
    }

    /// The same below an operator on the items of an array.
    pub(super) fn inside_array(self) -> Around<'a> {
        Around { subject: Subject::ArrayItem, ..self.deeper() }
    }
}

/// Parses a whole filter.
pub(super) fn parse_filter(filter: RawDoc<'_>, around: Around<'_>) -> Result<Expr> {
    if around.depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut parts = Vec::new();
    for element in filter.iter() {
        if element.name_bytes().starts_with(b"$") {
            parts.extend(parse_top_level(element, around)?);
        } else {
            parse_field(element, around, &mut parts)?;
        }
    }
    Ok(Expr::and(parts))
}

fn parse_top_level(element: RawElement<'_>, around: Around<'_>) -> Result<Option<Expr>> {
    let name = element.name();
    match op::find(name).map(|row| &row.parse) {
        Some(Parse::TopLevel(parse)) => parse(element, around),
        Some(Parse::MissingTopLevel) => Err(Error::not_implemented(name)),
        _ => Err(Error::bad_value(format!(
            "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, \
             consider using $getField or $setField."
        ))),
    }
}

fn parse_field(element: RawElement<'_>, around: Around<'_>, parts: &mut Vec<Expr>) -> Result<()> {
    let path = FieldPath::new(element.name())?;
    match element.value() {
        RawValue::Document(operators) if is_operator_document(operators) => {
            for predicate in parse_operators(operators, path.as_str(), around)? {
                spread(&path, predicate, parts);
            }
        }
        value => {
            let predicate = parse_implicit(value, around.scope.collation())?;
            parts.push(Expr::Path { path, predicate });
        }
    }
    Ok(())
}

/// A conjunction on one path is as many conditions on that path, which the planner likes better.
fn spread(path: &FieldPath, predicate: Predicate, parts: &mut Vec<Expr>) {
    match predicate {
        Predicate::All(inner) => {
            inner.into_iter().for_each(|predicate| spread(path, predicate, parts));
        }
        predicate => parts.push(Expr::Path { path: path.clone(), predicate }),
    }
}

/// `{field: value}`: equality, or the pattern where the value is one.
pub(super) fn parse_implicit(
    value: RawValue<'_>,
    collation: Option<&Arc<Collation>>,
) -> Result<Predicate> {
    match value {
        RawValue::Regex { pattern, options } => Ok(Predicate::Regex(Regex::new(pattern, options)?)),
        RawValue::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        value => Ok(Predicate::cmp(CmpOp::Eq, value, collation)),
    }
}

/// `{field: {$op: operand, ...}}`.
pub(super) fn parse_operators(
    operators: RawDoc<'_>,
    path: &str,
    around: Around<'_>,
) -> Result<Vec<Predicate>> {
    if around.depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut predicates = Vec::new();
    for element in operators.iter() {
        let name = element.name();
        let operand = Operand { name, value: element.value(), siblings: operators, path, around };
        match op::find(name).map(|row| &row.parse) {
            Some(Parse::Predicate(parse)) => predicates.extend(parse(&operand)?),
            Some(Parse::MissingPredicate) => return Err(Error::not_implemented(name)),
            _ => {
                return Err(Error::new(ErrorCode::BadValue, format!("unknown operator: {name}")));
            }
        }
    }
    Ok(predicates)
}

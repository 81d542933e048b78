//! Parses filters: top-level operators, fields with operators, fields with plain values.

use std::sync::Arc;

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue};

use super::op::{self, Operand, Parse};
use super::{CmpOp, Expr, Predicate, Regex, is_operator_document};
use crate::FieldPath;

/// The context of a part of a filter.
#[derive(Clone, Copy)]
pub struct FilterContext<'a> {
    /// Number of enclosing logical operators.
    depth: usize,
    /// The variables for expressions.
    pub(super) scope: &'a Scope,
    /// The documents that the filter applies to.
    pub(super) subject: Subject,
    /// Whether a search by distance is allowed.
    pub(super) near: NearPosition,
    /// Whether `$expr` and `$jsonSchema` are refused.
    pub(super) plain: bool,
}

/// The documents that a filter applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Documents of a collection.
    Document,
    /// Array items in such a document.
    ArrayItem,
}

/// Whether a search by distance is allowed in a context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NearPosition {
    /// Not allowed: the filter does not determine the order of results.
    Nowhere,
    /// In the outermost conjunction of a query, where it is allowed.
    Here,
    /// In a query, below another operator.
    Nested,
}

impl<'a> FilterContext<'a> {
    /// The context of a whole filter.
    pub(super) fn nothing(scope: &'a Scope) -> FilterContext<'a> {
        let near = NearPosition::Nowhere;
        FilterContext { depth: 0, scope, subject: Subject::Document, near, plain: false }
    }

    /// The context of a filter on array items: in `$pull`, in `arrayFilters`, and in a projection.
    pub(super) fn plain(scope: &'a Scope) -> FilterContext<'a> {
        FilterContext { plain: true, ..FilterContext::nothing(scope) }
    }

    /// The context of a whole query.
    pub(super) fn query(scope: &'a Scope) -> FilterContext<'a> {
        FilterContext { near: NearPosition::Here, ..FilterContext::nothing(scope) }
    }

    /// The context of a part of a conjunction.
    pub(super) fn conjunct(self) -> FilterContext<'a> {
        FilterContext { depth: self.depth + 1, ..self }
    }

    /// The context below another operator.
    pub(super) fn deeper(self) -> FilterContext<'a> {
        let near = match self.near {
            NearPosition::Nowhere => NearPosition::Nowhere,
            NearPosition::Here | NearPosition::Nested => NearPosition::Nested,
        };
        FilterContext { depth: self.depth + 1, near, ..self }
    }

    /// The context below an operator on array items.
    pub(super) fn inside_array(self) -> FilterContext<'a> {
        FilterContext { subject: Subject::ArrayItem, ..self.deeper() }
    }
}

/// Parses a whole filter.
pub(super) fn parse_filter(filter: RawDoc<'_>, context: FilterContext<'_>) -> Result<Expr> {
    if context.depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut parts = Conjuncts::default();
    for element in filter.iter() {
        if element.name_bytes().starts_with(b"$") {
            parse_top_level(element, context)?.into_iter().for_each(|part| parts.push(part));
        } else {
            parse_field(element, context, &mut parts)?;
        }
    }
    Ok(parts.finish())
}

/// The conditions of a filter. Most filters have one, which needs no list.
#[derive(Default)]
struct Conjuncts {
    only: Option<Expr>,
    several: Vec<Expr>,
}

impl Conjuncts {
    fn push(&mut self, part: Expr) {
        if self.only.is_none() && self.several.is_empty() {
            self.only = Some(part);
            return;
        }
        self.several.extend(self.only.take());
        self.several.push(part);
    }

    fn finish(self) -> Expr {
        self.only.unwrap_or(Expr::And(self.several))
    }
}

fn parse_top_level(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    let name = element.name();
    match op::find(name).map(|row| &row.parse) {
        Some(Parse::TopLevel(parse)) => parse(element, context),
        Some(Parse::MissingTopLevel) => Err(Error::not_implemented(name)),
        _ if name == "$not" => {
            let text = "unknown top level operator: $not. If you are trying to negate an entire \
                        expression, use $nor.";
            Err(Error::bad_value(text))
        }
        _ => Err(Error::bad_value(format!(
            "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, \
             consider using $getField or $setField."
        ))),
    }
}

fn parse_field(
    element: RawElement<'_>,
    context: FilterContext<'_>,
    parts: &mut Conjuncts,
) -> Result<()> {
    let path = FieldPath::new(element.name())?;
    match element.value() {
        RawValue::Document(operators) if is_operator_document(operators) => {
            for predicate in parse_operators(operators, path.as_str(), context)? {
                spread(&path, predicate, parts);
            }
        }
        value => {
            let predicate = parse_implicit(value, context.scope.collation())?;
            parts.push(Expr::Path { path, predicate });
        }
    }
    Ok(())
}

/// Splits a conjunction on one path into separate conditions, which the planner can use
/// individually.
fn spread(path: &FieldPath, predicate: Predicate, parts: &mut Conjuncts) {
    match predicate {
        Predicate::All(inner) => {
            inner.into_iter().for_each(|predicate| spread(path, predicate, parts));
        }
        predicate => parts.push(Expr::Path { path: path.clone(), predicate }),
    }
}

/// Parses `{field: value}`: equality, or a match of a regular expression.
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

/// Parses `{field: {$op: operand, ...}}`.
pub(super) fn parse_operators(
    operators: RawDoc<'_>,
    path: &str,
    context: FilterContext<'_>,
) -> Result<Vec<Predicate>> {
    if context.depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut predicates = Vec::new();
    for element in operators.iter() {
        let name = element.name();
        let operand = Operand { name, value: element.value(), siblings: operators, path, context };
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

//! Query filters: parsed into a tree ([`Expr`]), which the planner reads and [`Matcher::matches`]
//! evaluates.
//!
//! A predicate on a path holds when **any** value that the path reaches satisfies it; `$ne`, `$nin`
//! and `$not` negate that whole. Comparisons match only values of the operand's own canonical type,
//! except with MinKey and MaxKey. One file per family of operators, one row per operator in
//! [`op::ROWS`].

mod ast;
mod evaluate;
pub mod op;
mod parse;
mod regex;

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

pub use ast::{CmpOp, Expr, InList, Predicate, TypeSet};
pub use regex::Regex;

/// What parsing a filter may depend on besides the filter.
#[derive(Clone, Debug, Default)]
pub struct ParseContext {
    /// Wall time of the operation, in milliseconds.
    pub now_ms: i64,
}

/// A parsed filter.
#[derive(Clone, Debug)]
pub struct Matcher {
    root: Expr,
}

impl Matcher {
    /// Parses a filter; `{}` matches everything.
    pub fn parse(filter: RawDoc<'_>, _context: &ParseContext) -> Result<Matcher> {
        Ok(Matcher { root: parse::parse_filter(filter, 0)? })
    }

    /// Whether the document satisfies the filter.
    #[inline]
    pub fn matches(&self, doc: RawDoc<'_>) -> bool {
        evaluate::matches(&self.root, doc)
    }

    /// The tree, for the planner.
    pub fn root(&self) -> &Expr {
        &self.root
    }
}

/// A condition on one value instead of a document: what `$pull` and `$elemMatch` ask of array
/// items.
#[derive(Clone, Debug)]
pub struct ItemMatcher(Vec<Predicate>);

impl ItemMatcher {
    /// Parses operators such as `{$gte: 5, $lt: 9}`.
    pub fn parse_operators(operators: RawDoc<'_>, path: &str) -> Result<ItemMatcher> {
        parse::parse_operators(operators, path, 0).map(ItemMatcher)
    }

    /// Equality with a value, or the pattern where the value is a regular expression.
    pub fn parse_equality(value: RawValue<'_>) -> Result<ItemMatcher> {
        parse::parse_implicit(value).map(|predicate| ItemMatcher(vec![predicate]))
    }

    /// Whether the item satisfies every condition.
    pub fn matches(&self, item: RawValue<'_>) -> bool {
        self.0.iter().all(|predicate| evaluate::value_matches(predicate, item))
    }
}

/// Whether a document is a set of operators (its first field begins with `$`) and not a literal.
/// References (`$ref`, `$id`, `$db`) are literals.
pub fn is_operator_document(doc: RawDoc<'_>) -> bool {
    doc.iter().next().is_some_and(|first| {
        let name = first.name();
        name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db")
    })
}

#[cfg(test)]
mod tests;

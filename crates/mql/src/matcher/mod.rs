//! Query filters: parsed into a tree ([`Expr`]), which the planner reads and [`Matcher::matches`]
//! evaluates.
//!
//! A predicate on a path is true when **any** value of the path satisfies it; `$ne`, `$nin` and
//! `$not` negate the whole. Comparisons match only values of the operand's canonical type, except
//! with MinKey and MaxKey. One file per family of operators, one row per operator in [`op::ROWS`].

mod ast;
mod bits;
mod considered;
mod evaluate;
mod explain;
mod geo;
mod link;
pub mod op;
mod parse;
mod position;
mod regex;
mod schema;
mod show;
mod text;
mod whole;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{OperationTime, Scope, Scripts};
use mayfly_value::{Collation, RawDoc, RawValue};

pub use ast::{CmpOp, Expr, InList, OriginalOperator, Predicate, Reads, TypeSet};
pub use bits::{BitTest, Bits, Positions};
pub use evaluate::missing_matches;
pub use explain::explain_failure;
pub use geo::{DistanceUnit, GeoTest, NearSearch};
pub use link::is_operator_document;
pub use regex::Regex;
pub use schema::Schema;
pub use show::{condition_parts, joined};
pub use text::{BoundSearch, TextTest};
pub use whole::{Computed, DocumentTest};

use crate::FieldPath;
use parse::FilterContext;

/// The context of parsing a filter.
#[derive(Clone, Debug, Default)]
pub struct ParseContext {
    /// The time of the operation, for `$$NOW` and `$$CLUSTER_TIME`; `None` where it is not known.
    pub time: Option<OperationTime>,
    /// The collation of string comparisons.
    pub collation: Option<Arc<Collation>>,
    /// Where scripts are allowed.
    pub scripts: Scripts,
    /// Which names are stages of the aggregation language: an update refuses those that it does not
    /// take as such, and other names as unrecognized.
    pub is_stage: Option<fn(&str) -> bool>,
}

impl ParseContext {
    /// What expressions can refer to.
    fn scope(&self) -> Scope {
        let scope = self.time.map_or_else(Scope::default, Scope::at);
        scope.with_scripts(self.scripts).collated(self.collation.clone())
    }
}

/// A parsed filter.
#[derive(Clone, Debug)]
pub struct Matcher {
    root: Expr,
    /// Whether it evaluates expressions or scripts.
    computes: bool,
    /// Its `$text` operator.
    text: Option<Arc<TextTest>>,
}

impl Matcher {
    /// Parses a filter; `{}` matches everything.
    pub fn parse(filter: RawDoc<'_>, context: &ParseContext) -> Result<Matcher> {
        Matcher::parse_in(filter, &context.scope())
    }

    /// The same for the items of an array that `$pull` removes.
    pub fn parse_pulled(filter: RawDoc<'_>, context: &ParseContext) -> Result<Matcher> {
        let scope = Scope::default().collated(context.collation.clone());
        Matcher::parse_plain(filter, &scope)
    }

    /// The same for a filter on array items, which refuses `$expr` and `$jsonSchema`.
    pub fn parse_plain(filter: RawDoc<'_>, scope: &Scope) -> Result<Matcher> {
        Matcher::of(parse::parse_filter(filter, FilterContext::plain(scope))?)
    }

    /// The same with variables of a command for `$expr`.
    pub fn parse_in(filter: RawDoc<'_>, scope: &Scope) -> Result<Matcher> {
        Matcher::of(parse::parse_filter(filter, FilterContext::nothing(scope))?)
    }

    /// The same for a query, which allows a search by distance.
    pub fn parse_query(filter: RawDoc<'_>, scope: &Scope) -> Result<Matcher> {
        let root = parse::parse_filter(filter, FilterContext::query(scope))?;
        if geo::count_near(&root) > 1 {
            return Err(Error::bad_value("Too many geoNear expressions"));
        }
        let computes = whole::computes(&root);
        let text = text::only_text(&root)?;
        if text.is_some() && geo::count_near(&root) > 0 {
            return Err(Error::bad_value("text and geoNear not allowed in same query"));
        }
        Ok(Matcher { root, computes, text })
    }

    /// A filter of parsed conditions.
    ///
    /// # Errors
    /// 2 BadValue for more than one `$text`.
    pub fn of(root: Expr) -> Result<Matcher> {
        let computes = whole::computes(&root);
        let text = text::only_text(&root)?;
        Ok(Matcher { root, computes, text })
    }

    /// Whether it is a search by distance.
    pub fn seeks_by_distance(&self) -> bool {
        geo::count_near(&self.root) > 0
    }

    /// Adds a search by the distance of the geometries at this path.
    ///
    /// # Errors
    /// Errors of a path that is too long.
    pub fn by_distance(self, path: &str, near: NearSearch) -> Result<Matcher> {
        let predicate = Predicate::Geo(Arc::new(GeoTest::Near(near)), Arc::new(near.written()));
        let sought = Expr::Path { path: FieldPath::new(path)?, predicate };
        let root = Expr::and(vec![self.root.clone(), sought]);
        Ok(Matcher { root, ..self })
    }

    /// Checks that the filter can determine the item of a positional projection.
    ///
    /// # Errors
    /// 224 QueryFeatureNotAllowed for expressions and scripts.
    pub fn check_positions(&self) -> Result<()> {
        match self.computes {
            false => Ok(()),
            true => Err(Error::new(
                ErrorCode::QueryFeatureNotAllowed,
                "$expr and $where are not allowed with a positional projection",
            )),
        }
    }

    /// Whether the document satisfies the filter.
    ///
    /// # Errors
    /// Errors of the expressions in `$expr`, and 51156 for a regular expression whose evaluation
    /// exceeds its limits. Then the result is unknown: the caller must not treat the document as
    /// matching or as not matching.
    #[inline]
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool> {
        evaluate::matches(&self.root, doc)
    }

    /// For a document that satisfies the filter: the index of the array item that the last
    /// condition through an array matched, for the positional `$`. `None` when no condition went
    /// through an array.
    ///
    /// # Errors
    /// Errors of [`Matcher::matches`].
    pub fn array_position(&self, doc: RawDoc<'_>) -> Result<Option<usize>> {
        position::array_position(&self.root, doc)
    }

    /// Whether it evaluates expressions or scripts, whose time for a single document is unbounded.
    pub fn computes(&self) -> bool {
        self.computes
    }

    /// Whether it contains an `$expr`.
    pub fn has_expression(&self) -> bool {
        whole::has_expression(&self.root)
    }

    /// Its `$text` operator, which the planner must bind to an index before the filter is
    /// evaluated.
    pub fn text(&self) -> Option<&Arc<TextTest>> {
        self.text.as_ref()
    }

    /// The filter for documents found by the text index; `None` when its `$text` is part of a
    /// disjunction.
    pub fn for_found_text(&self) -> Option<Matcher> {
        let required = text::is_required(&self.root);
        required.then(|| Matcher { root: text::for_found(&self.root), ..self.clone() })
    }

    /// The expression tree, for the planner.
    pub fn root(&self) -> &Expr {
        &self.root
    }
}

/// A condition on one value instead of a document, for `$pull` of array items.
#[derive(Clone, Debug)]
pub enum ItemMatcher {
    /// Operators apply to an item as to a field: an array satisfies them also by one of its items.
    Operators(Vec<Predicate>),
    /// The item as a whole equals a value.
    Value(Predicate),
}

impl ItemMatcher {
    /// Whether a document consists of such operators, determined by its first field. All others,
    /// including those with `$or`, are filters on documents; so is one with `$not`, as in the
    /// reference.
    pub fn is_operators(condition: RawDoc<'_>) -> bool {
        let operates = |name: &str| name != "$not" && op::is_under_field(name);
        condition.iter().next().is_some_and(|first| operates(first.name()))
    }

    /// Parses operators such as `{$gte: 5, $lt: 9}`.
    pub fn parse_operators(
        operators: RawDoc<'_>,
        path: &str,
        context: &ParseContext,
    ) -> Result<ItemMatcher> {
        let scope = Scope::default().collated(context.collation.clone());
        let context = FilterContext::nothing(&scope).inside_array();
        parse::parse_operators(operators, path, context).map(ItemMatcher::Operators)
    }

    /// Equality with a value; a regular expression is matched.
    pub fn parse_equality(value: RawValue<'_>, context: &ParseContext) -> Result<ItemMatcher> {
        let predicate = parse::parse_implicit(value, context.collation.as_ref())?;
        Ok(match value {
            RawValue::Regex { .. } => ItemMatcher::Operators(vec![predicate]),
            _ => ItemMatcher::Value(predicate),
        })
    }

    /// Whether the item satisfies all conditions.
    ///
    /// # Errors
    /// Errors of regular expressions.
    pub fn matches(&self, item: RawValue<'_>) -> Result<bool> {
        match self {
            ItemMatcher::Operators(operators) => {
                evaluate::all(operators, |predicate| evaluate::matches_item(predicate, item))
            }
            ItemMatcher::Value(predicate) => evaluate::value_matches(predicate, item),
        }
    }
}

#[cfg(test)]
mod tests;

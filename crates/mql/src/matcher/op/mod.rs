//! The table of match operators, one row each. Known operators that are not implemented have a row
//! too, so that "not implemented" and "unknown operator" can be distinguished.

mod array;
mod bits;
mod comparison;
mod element;
mod evaluation;
mod geo;
mod link;
mod logical;
mod script;
mod text;
mod whole;

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue};

pub(super) use element::type_of_alias;

use super::parse::FilterContext;
use super::{Expr, OriginalOperator, Predicate};

/// An operator on a field, with its context.
pub struct Operand<'a> {
    /// The operator's name.
    pub name: &'a str,
    /// The operator's argument.
    pub value: RawValue<'a>,
    /// The document that contains it, for `$regex` with `$options`.
    pub siblings: RawDoc<'a>,
    /// The field's path, for error messages.
    pub path: &'a str,
    /// The context of the filter.
    pub context: FilterContext<'a>,
}

impl Operand<'_> {
    /// The operator with its operand, as a document.
    pub(super) fn written(&self) -> OriginalOperator {
        let mut out = DocBuilder::new();
        out.append(self.name, self.value);
        Arc::new(out.finish())
    }
}

/// How an operator is parsed, by its level. `None` means that it adds no condition.
pub enum Parse {
    /// At the top level, next to fields.
    TopLevel(fn(RawElement<'_>, FilterContext<'_>) -> Result<Option<Expr>>),
    /// Applied to a field.
    Predicate(fn(&Operand<'_>) -> Result<Option<Predicate>>),
    /// At the top level; not implemented.
    MissingTopLevel,
    /// Applied to a field; not implemented.
    MissingPredicate,
}

/// A row of the table of match operators.
pub struct OperatorRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The first version of the reference with the operator.
    pub since: &'static str,
    /// How it is parsed.
    pub parse: Parse,
}

const fn row(
    name: &'static str,
    since: &'static str,
    help: &'static str,
    parse: Parse,
) -> OperatorRow {
    OperatorRow { name, help, since, parse }
}

/// All match operators.
pub const ROWS: &[OperatorRow] = &[
    row("$eq", "3.0", "Equal to a value.", Parse::Predicate(comparison::eq)),
    row("$ne", "1.0", "Not equal to a value.", Parse::Predicate(comparison::ne)),
    row("$gt", "1.0", "Greater than a value.", Parse::Predicate(comparison::gt)),
    row("$gte", "1.0", "Greater than or equal to a value.", Parse::Predicate(comparison::gte)),
    row("$lt", "1.0", "Less than a value.", Parse::Predicate(comparison::lt)),
    row("$lte", "1.0", "Less than or equal to a value.", Parse::Predicate(comparison::lte)),
    row("$in", "1.0", "Equal to one of a list.", Parse::Predicate(comparison::in_list)),
    row("$nin", "1.0", "Equal to none of a list.", Parse::Predicate(comparison::not_in_list)),
    row("$and", "2.0", "All filters hold.", Parse::TopLevel(logical::and)),
    row("$or", "1.6", "At least one filter holds.", Parse::TopLevel(logical::or)),
    row("$nor", "1.8", "No filter holds.", Parse::TopLevel(logical::nor)),
    row("$not", "1.4", "The operators do not hold.", Parse::Predicate(logical::not)),
    row("$comment", "3.2", "A comment without effect.", Parse::TopLevel(logical::comment)),
    row("$alwaysTrue", "3.6", "Every document.", Parse::TopLevel(logical::always_true)),
    row("$alwaysFalse", "3.6", "No document.", Parse::TopLevel(logical::always_false)),
    row("$exists", "1.2", "The field exists.", Parse::Predicate(element::exists)),
    row("$type", "1.0", "The value has one of these types.", Parse::Predicate(element::types)),
    row("$mod", "1.0", "Division leaves a remainder.", Parse::Predicate(evaluation::modulo)),
    row("$regex", "1.8", "The text matches a pattern.", Parse::Predicate(evaluation::regex)),
    row("$options", "1.8", "Options of $regex.", Parse::Predicate(evaluation::options)),
    row("$all", "1.0", "The array contains all of a list.", Parse::Predicate(array::all)),
    row(
        "$elemMatch",
        "1.4",
        "One item satisfies all conditions.",
        Parse::Predicate(array::elem_match),
    ),
    row("$size", "1.0", "The array has this number of items.", Parse::Predicate(array::size)),
    row("$expr", "3.6", "An aggregation expression holds.", Parse::TopLevel(whole::expr)),
    row(
        "$jsonSchema",
        "3.6",
        "The document satisfies a schema.",
        Parse::TopLevel(whole::json_schema),
    ),
    row("$where", "1.0", "A JavaScript function holds.", Parse::TopLevel(script::filter)),
    row("$text", "2.6", "Text search.", Parse::TopLevel(text::filter)),
    row(
        "$sampleRate",
        "4.4.2",
        "A random sample of documents.",
        Parse::TopLevel(whole::sample_rate),
    ),
    row("$ref", "1.0", "The collection of a DBRef.", Parse::TopLevel(link::field)),
    row("$id", "1.0", "The _id of a DBRef.", Parse::TopLevel(link::field)),
    row("$db", "1.0", "The database of a DBRef.", Parse::TopLevel(link::field)),
    row("$bitsAllSet", "3.2", "All of these bits are 1.", Parse::Predicate(bits::all_set)),
    row("$bitsAllClear", "3.2", "All of these bits are 0.", Parse::Predicate(bits::all_clear)),
    row("$bitsAnySet", "3.2", "Any of these bits is 1.", Parse::Predicate(bits::any_set)),
    row("$bitsAnyClear", "3.2", "Any of these bits is 0.", Parse::Predicate(bits::any_clear)),
    row("$geoIntersects", "2.4", "Shapes that intersect.", Parse::Predicate(geo::intersects)),
    row("$geoWithin", "2.4", "Shapes within another.", Parse::Predicate(geo::within)),
    row("$within", "1.0", "Old name of $geoWithin.", Parse::Predicate(geo::within)),
    row("$near", "1.4", "Points by distance.", Parse::Predicate(geo::near)),
    row("$geoNear", "1.8", "Another name of $near.", Parse::Predicate(geo::near)),
    row("$nearSphere", "1.8", "Points by distance on a sphere.", Parse::Predicate(geo::near)),
    row("$maxDistance", "1.4", "The maximum distance of $near.", Parse::Predicate(geo::limit)),
    row("$minDistance", "2.6", "The minimum distance of $near.", Parse::Predicate(geo::limit)),
];

/// The row of an operator.
pub fn find(name: &str) -> Option<&'static OperatorRow> {
    ROWS.iter().find(|row| row.name == name)
}

/// Whether an operator applies to a field.
pub(super) fn is_under_field(name: &str) -> bool {
    find(name).is_some_and(|row| match row.parse {
        Parse::Predicate(_) | Parse::MissingPredicate => true,
        Parse::TopLevel(_) | Parse::MissingTopLevel => false,
    })
}

/// Whether an operator is allowed at the top level.
pub(super) fn is_top_level(name: &str) -> bool {
    find(name).is_some() && !is_under_field(name)
}

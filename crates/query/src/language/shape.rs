//! The shape of a query for the plan cache and for index filters: filter, sort, projection and
//! collation without the values that are compared. Manual: "Query Shapes", "plan cache query
//! shape".
//!
//! The shape is a hash, computed in one walk over the parsed query and without allocation, because
//! it is needed for each query whose plan may be cached. The hashes of a conjunction's parts are
//! added, so the order of conditions does not matter. The hash is the same in every process.

use std::fmt;

use mayfly_mql::SortPattern;
use mayfly_mql::matcher::{CmpOp, DocumentTest, Expr, Predicate};
use mayfly_value::paths::is_dollar_name;
use mayfly_value::{RawDoc, RawValue};

use super::CanonicalQuery;

/// A hash of everything in a query but its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanShape(u64);

impl PlanShape {
    /// The shape of a query.
    pub fn of(query: &CanonicalQuery) -> PlanShape {
        let mut hash = Hasher::new(ShapeTag::Query);
        hash.number(conjunction(query.matcher.root()));
        hash.number(query.sort.as_ref().map_or(0, order));
        hash.number(match query.natural_backward {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        });
        // A projection that needs the whole document does not affect plans.
        let mut needed = 0u64;
        if let Some(projection) = &query.projection {
            projection.visit_needed_paths(&mut |path| {
                needed = needed.wrapping_add(Hasher::new(ShapeTag::Shown).text(path).finish());
            });
        }
        hash.number(needed);
        if let Some(collation) = &query.collation {
            hash.bytes(collation.document().as_bytes());
        }
        PlanShape(hash.finish())
    }

    /// All bits of the hash.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Formats the hash as eight hexadecimal digits, as `planCacheShapeHash` shows it.
impl PlanShape {
    /// The half of the hash that is displayed.
    pub(crate) fn digits(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for PlanShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}", self.digits())
    }
}

/// Tags of the parts of a query, so that equal contents of different parts have different hashes.
#[derive(Clone, Copy)]
enum ShapeTag {
    Query = 1,
    Field,
    Shown,
    Order,
    Or,
    Nor,
    Path,
    Never,
    Computed,
    Document,
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    Exists,
    Type,
    Mod,
    Regex,
    Bits,
    Geo,
    Size,
    ItemDocument,
    ItemValue,
    Not,
    All,
    Items,
    Value,
}

/// A 64-bit hash that consumes eight bytes at a time.
#[derive(Clone, Copy)]
pub(crate) struct Hasher(u64);

impl Hasher {
    fn new(part: ShapeTag) -> Hasher {
        Hasher((part as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A hasher with this initial state.
    pub(crate) fn seeded(seed: u64) -> Hasher {
        Hasher(seed)
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: u64) -> &mut Hasher {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 29;
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Hasher {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.number(word.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.number(u64::from_le_bytes(last)).number(bytes.len() as u64)
    }

    /// Adds a string.
    pub(crate) fn text(&mut self, text: &str) -> &mut Hasher {
        self.bytes(text.as_bytes())
    }

    /// The hash of everything that was added.
    pub(crate) fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ (mixed >> 32)
    }
}

fn order(sort: &SortPattern) -> u64 {
    let mut hash = Hasher::new(ShapeTag::Order);
    for field in sort.fields() {
        hash.text(field.path.as_str()).number(u64::from(field.order.is_descending()));
        hash.text(field.metadata.unwrap_or_default());
    }
    hash.finish()
}

/// The hash of a conjunction, independent of order.
fn conjunction(expr: &Expr) -> u64 {
    let mut sum = 0;
    add_conjuncts(expr, &mut sum);
    sum
}

fn add_conjuncts(expr: &Expr, sum: &mut u64) {
    match expr {
        Expr::And(parts) => parts.iter().for_each(|part| add_conjuncts(part, sum)),
        Expr::Always(true) => {}
        Expr::Path { path, predicate: Predicate::All(parts) } => {
            for part in parts {
                *sum = sum.wrapping_add(on_path(path.as_str(), part));
            }
        }
        Expr::Path { path, predicate } => {
            *sum = sum.wrapping_add(on_path(path.as_str(), predicate));
        }
        Expr::Or(parts) => *sum = sum.wrapping_add(alternatives(ShapeTag::Or, parts)),
        Expr::Nor(parts) => *sum = sum.wrapping_add(alternatives(ShapeTag::Nor, parts)),
        Expr::Always(false) => *sum = sum.wrapping_add(Hasher::new(ShapeTag::Never).finish()),
        Expr::Document(test) => *sum = sum.wrapping_add(on_document(test)),
    }
}

/// The hash of the expressions in a filter. They determine which indexes can be used, but do not
/// belong to the shape.
pub(crate) fn expressions(expr: &Expr) -> u64 {
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => {
            parts.iter().map(expressions).fold(0, u64::wrapping_add)
        }
        Expr::Document(DocumentTest::Computed(computed)) => {
            let mut hash = Hasher::new(ShapeTag::Computed);
            add_expression(computed.written(), &mut hash);
            hash.finish()
        }
        Expr::Path { .. } | Expr::Always(_) | Expr::Document(_) => 0,
    }
}

fn alternatives(part: ShapeTag, parts: &[Expr]) -> u64 {
    let one = |part: &Expr| Hasher::new(ShapeTag::Items).number(conjunction(part)).finish();
    let sum = parts.iter().map(one).fold(0, u64::wrapping_add);
    Hasher::new(part).number(sum).finish()
}

fn on_path(path: &str, predicate: &Predicate) -> u64 {
    let mut hash = Hasher::new(ShapeTag::Path);
    hash.text(path);
    add_predicate(predicate, &mut hash);
    hash.finish()
}

fn add_predicate(predicate: &Predicate, hash: &mut Hasher) {
    let mut part = |part: ShapeTag| {
        hash.number(part as u64);
    };
    match predicate {
        Predicate::Cmp { op, .. } => part(match op {
            CmpOp::Eq => ShapeTag::Eq,
            CmpOp::Lt => ShapeTag::Lt,
            CmpOp::Lte => ShapeTag::Lte,
            CmpOp::Gt => ShapeTag::Gt,
            CmpOp::Gte => ShapeTag::Gte,
        }),
        Predicate::In(list) => match (list.values(), list.regexes()) {
            // A list with one value is hashed as an equality, as explain shows it.
            ([_], []) => part(ShapeTag::Eq),
            (_, regexes) => {
                part(ShapeTag::In);
                hash.number(u64::from(!regexes.is_empty()));
            }
        },
        Predicate::Exists => part(ShapeTag::Exists),
        Predicate::Type(..) => part(ShapeTag::Type),
        Predicate::Mod { .. } => part(ShapeTag::Mod),
        Predicate::Regex(regex) => {
            part(ShapeTag::Regex);
            hash.text(regex.options());
        }
        Predicate::Bits(_, written) | Predicate::Geo(_, written) => {
            part(if matches!(predicate, Predicate::Geo(..)) {
                ShapeTag::Geo
            } else {
                ShapeTag::Bits
            });
            add_names(written.as_doc(), hash);
        }
        Predicate::Size(_) => part(ShapeTag::Size),
        Predicate::ElemMatchDocument(inner) => {
            part(ShapeTag::ItemDocument);
            hash.number(conjunction(inner));
        }
        Predicate::ElemMatchValue(parts) => {
            part(ShapeTag::ItemValue);
            hash.number(together(parts));
        }
        Predicate::Not(inner) => {
            part(ShapeTag::Not);
            match &**inner {
                // `$nin` is hashed as a negated `$in`, whatever its values.
                Predicate::In(_) => hash.number(ShapeTag::In as u64),
                other => {
                    add_predicate(other, hash);
                    hash
                }
            };
        }
        Predicate::All(parts) => {
            part(ShapeTag::All);
            hash.number(together(parts));
        }
    }
}

/// The hash of predicates that must all hold, independent of order.
fn together(parts: &[Predicate]) -> u64 {
    parts.iter().fold(0, |sum, part| {
        let mut hash = Hasher::new(ShapeTag::Items);
        add_predicate(part, &mut hash);
        sum.wrapping_add(hash.finish())
    })
}

fn on_document(test: &DocumentTest) -> u64 {
    let mut hash = Hasher::new(ShapeTag::Document);
    hash.text(test.name());
    match test {
        DocumentTest::Schema(_, written) => {
            hash.bytes(written.as_doc().as_bytes());
        }
        // The expression does not count, as in the reference.
        DocumentTest::Computed(_)
        | DocumentTest::Script(..)
        | DocumentTest::Text(_)
        | DocumentTest::FoundText(_)
        | DocumentTest::Sample(_) => {}
    }
    hash.finish()
}

/// Adds the names of operators and of their geometry arguments.
fn add_names(written: RawDoc<'_>, hash: &mut Hasher) {
    for element in written {
        hash.text(element.name());
        if let RawValue::Document(inner) = element.value()
            && is_dollar_name(element.name())
        {
            for part in inner {
                hash.number(ShapeTag::Field as u64).text(part.name());
            }
        }
    }
}

/// Adds the operators, paths and variables of an expression.
fn add_expression(value: RawValue<'_>, hash: &mut Hasher) {
    match value {
        RawValue::String(path) if path.starts_with('$') => {
            hash.text(path);
        }
        RawValue::Document(inner) | RawValue::Array(inner) => {
            hash.number(ShapeTag::Computed as u64);
            for element in inner {
                hash.text(element.name());
                add_expression(element.value(), hash);
            }
            hash.number(ShapeTag::Items as u64);
        }
        _ => {
            hash.number(ShapeTag::Value as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::extjson::parse_document;
    use mayfly_value::{Collation, DocBuf};

    use super::*;
    use crate::language::FindOptions;

    fn doc(text: &str) -> DocBuf {
        parse_document(text).unwrap()
    }

    fn shape_of(filter: &str, sort: &str, projection: &str) -> PlanShape {
        let (filter, sort, projection) = (doc(filter), doc(sort), doc(projection));
        let options = FindOptions {
            sort: Some(sort.as_doc()),
            projection: Some(projection.as_doc()),
            ..FindOptions::default()
        };
        PlanShape::of(&CanonicalQuery::parse(filter.as_doc(), options).unwrap())
    }

    fn filter(text: &str) -> PlanShape {
        shape_of(text, "{}", "{}")
    }

    #[test]
    fn values_and_the_order_of_conditions_do_not_count() {
        let same = [
            ["{a: 1}", "{a: 'x'}"],
            ["{a: {$eq: 1}}", "{a: {$in: [7]}}"],
            ["{a: 1, b: {$gt: 2}}", "{b: {$gt: 3}, a: null}"],
            ["{a: 1, b: 2}", "{$and: [{b: 1}, {a: 1}]}"],
            ["{a: {$gt: 1, $lt: 9}}", "{$and: [{a: {$lt: 1}}, {a: {$gt: 3}}]}"],
            ["{a: {$in: [1, 2]}}", "{a: {$in: [3, 4, 5]}}"],
            ["{$or: [{a: 1}, {b: 1}]}", "{$or: [{b: 2}, {a: 2}]}"],
            ["{a: {$elemMatch: {x: 1, y: 2}}}", "{a: {$elemMatch: {y: 3, x: 4}}}"],
            ["{$expr: {$gt: ['$a', 1]}}", "{$expr: {$gt: ['$a', 2]}}"],
            ["{a: {$regex: 'x', $options: 'i'}}", "{a: {$regex: 'y', $options: 'i'}}"],
        ];
        for [left, right] in same {
            assert_eq!(filter(left), filter(right), "{left} {right}");
        }
    }

    #[test]
    fn expressions_do_not_count() {
        let one = filter("{$expr: {$gt: ['$a', 1]}}");
        assert_eq!(one, filter("{$expr: {$lt: ['$b', '$c']}}"));
        assert_ne!(one, filter("{a: 1, $expr: {$gt: ['$a', 1]}}"));
    }

    #[test]
    fn everything_else_counts() {
        let different = [
            "{}",
            "{a: 1}",
            "{b: 1}",
            "{'a.b': 1}",
            "{a: {$gt: 1}}",
            "{a: {$gte: 1}}",
            "{a: {$lt: 1}}",
            "{a: {$lte: 1}}",
            "{a: {$ne: 1}}",
            "{a: {$in: [1, 2]}}",
            "{a: {$in: [1, {$regularExpression: {pattern: 'x', options: ''}}]}}",
            "{a: {$nin: [1, 2]}}",
            "{a: {$exists: true}}",
            "{a: {$exists: false}}",
            "{a: {$type: 'int'}}",
            "{a: {$mod: [2, 0]}}",
            "{a: {$size: 1}}",
            "{a: {$regex: 'x'}}",
            "{a: {$regex: 'x', $options: 'i'}}",
            "{a: {$bitsAllSet: 1}}",
            "{a: {$bitsAnySet: 1}}",
            "{a: {$elemMatch: {$gt: 1}}}",
            "{a: {$elemMatch: {b: {$gt: 1}}}}",
            "{a: {$geoWithin: {$box: [[0, 0], [1, 1]]}}}",
            "{a: {$geoWithin: {$center: [[0, 0], 1]}}}",
            "{a: 1, b: 1}",
            "{a: 1, $nor: [{b: 1}]}",
            "{$or: [{a: 1}, {b: 1}]}",
            "{$nor: [{a: 1}, {b: 1}]}",
            "{$or: [{a: 1, b: 1}, {c: 1}]}",
            "{$or: [{a: 1}, {b: 1}, {c: 1}]}",
            "{$expr: {$gt: ['$a', 1]}}",
            "{$text: {$search: 'x'}}",
        ];
        for (at, left) in different.iter().enumerate() {
            for right in &different[..at] {
                assert_ne!(filter(left), filter(right), "{left} {right}");
            }
        }
    }

    #[test]
    fn order_projection_and_collation_count() {
        let plain = shape_of("{a: 1}", "{}", "{}");
        let ascending = shape_of("{a: 1}", "{b: 1}", "{}");
        assert_ne!(plain, ascending);
        assert_ne!(ascending, shape_of("{a: 1}", "{b: -1}", "{}"));
        assert_ne!(ascending, shape_of("{a: 1}", "{b: 1, c: 1}", "{}"));
        assert_ne!(plain, shape_of("{a: 1}", "{$natural: -1}", "{}"));
        let shown = shape_of("{a: 1}", "{}", "{a: 1, b: 1}");
        assert_ne!(plain, shown);
        assert_eq!(shown, shape_of("{a: 1}", "{}", "{b: 1, a: true}"));
        assert_ne!(shown, shape_of("{a: 1}", "{}", "{b: 1, a: 1, _id: 0}"));
        // Both need the whole document.
        assert_eq!(plain, shape_of("{a: 1}", "{}", "{b: 0}"));
        let collation = doc("{locale: 'en', strength: 2}");
        let collation = Collation::parse(collation.as_doc(), "collation").unwrap();
        let options = FindOptions { collation, ..FindOptions::default() };
        let collated = CanonicalQuery::parse(doc("{a: 1}").as_doc(), options).unwrap();
        assert_ne!(plain, PlanShape::of(&collated));
    }

    #[test]
    fn it_is_the_same_in_every_process() {
        assert_eq!(filter("{a: 1, b: {$gt: 2}}").to_string(), "EB5CA8D7");
    }
}

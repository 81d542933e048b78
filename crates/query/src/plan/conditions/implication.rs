//! Decides whether a query implies the filter of a partial index, so that the index contains all
//! matching documents.
//!
//! The test is conservative: it may answer no where the query implies the filter, but never yes
//! where it does not. A predicate holds if any value that the path reaches satisfies it. Therefore
//! one predicate implies another on the same path if it does so for every single value and a
//! missing field alone does not satisfy it.

use mayfly_mql::matcher::{CmpOp, Expr, InList, Predicate, TypeSet, missing_matches};
use mayfly_value::{RawValue, canonical_type, compare_values_in, same_collation, ty};

use super::operators::is_nan;

/// Whether every document that satisfies the query satisfies the filter. Recursion is bounded
/// because the parser limits the depth of both.
pub(crate) fn implies(query: &Expr, filter: &Expr) -> bool {
    match (query, filter) {
        (_, Expr::And(parts)) => parts.iter().all(|part| implies(query, part)),
        (Expr::Or(parts), _) => !parts.is_empty() && parts.iter().all(|part| implies(part, filter)),
        (_, Expr::Or(parts)) => parts.iter().any(|part| implies(query, part)),
        (Expr::And(parts), _) => parts.iter().any(|part| implies(part, filter)),
        (Expr::Path { path, predicate }, Expr::Path { path: filtered, predicate: implied }) => {
            path.as_str() == filtered.as_str() && predicate_implies(predicate, implied)
        }
        _ => false,
    }
}

fn predicate_implies(has: &Predicate, implied: &Predicate) -> bool {
    match (has, implied) {
        (Predicate::All(parts), _) => parts.iter().any(|part| predicate_implies(part, implied)),
        (_, Predicate::All(parts)) => parts.iter().all(|part| predicate_implies(has, part)),
        (_, Predicate::Exists) => needs_a_value(has),
        (Predicate::Type(has, _), Predicate::Type(implied, _)) => has.is_within(*implied),
        (Predicate::Cmp { value, .. }, Predicate::Type(implied, _)) => {
            of_types(value.as_raw(), *implied)
        }
        (Predicate::In(list), Predicate::Type(implied, _)) => {
            each(list, |value| of_types(value, *implied))
        }
        (Predicate::Cmp { .. }, Predicate::Cmp { .. }) => comparison_implies(has, implied),
        (Predicate::In(list), Predicate::Cmp { collation, .. }) => {
            same_collation(list.collation(), collation.as_ref())
                && each(list, |value| {
                    comparison_implies(
                        &Predicate::cmp(CmpOp::Eq, value, collation.as_ref()),
                        implied,
                    )
                })
        }
        (Predicate::Cmp { op: CmpOp::Eq, value, collation }, Predicate::In(list)) => {
            same_collation(collation.as_ref(), list.collation()) && has_value(list, value.as_raw())
        }
        (Predicate::In(has), Predicate::In(implied)) => {
            same_collation(has.collation(), implied.collation())
                && each(has, |value| has_value(implied, value))
        }
        _ => false,
    }
}

/// Whether a list contains only values, and each of them passes.
fn each(list: &InList, passes: impl Fn(RawValue<'_>) -> bool) -> bool {
    list.regexes().is_empty() && list.values().iter().all(|value| passes(value.as_raw()))
}

/// Whether a list contains this value.
fn has_value(list: &InList, value: RawValue<'_>) -> bool {
    let strings = list.collation().map(AsRef::as_ref);
    let equals = |have: RawValue<'_>| compare_values_in(have, value, strings).is_eq();
    list.values().iter().any(|have| equals(have.as_raw()))
}

/// Whether the predicate holds only if there is a value at the path. A negation also holds if an
/// array on the path has no items.
fn needs_a_value(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::All(parts) => parts.iter().any(needs_a_value),
        Predicate::Not(_) => false,
        positive => !missing_matches(positive),
    }
}

/// Whether the value is not null, undefined, MinKey or MaxKey.
fn is_ordinary(value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Null | RawValue::Undefined | RawValue::MinKey | RawValue::MaxKey)
}

/// Whether all values that compare with this one have one of the types.
fn of_types(value: RawValue<'_>, types: TypeSet) -> bool {
    let alike: &[u8] = match value {
        RawValue::MinKey | RawValue::Undefined | RawValue::Null | RawValue::MaxKey => return false,
        RawValue::Double(_) | RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Decimal128(_) => {
            &[ty::DOUBLE, ty::INT32, ty::INT64, ty::DECIMAL]
        }
        RawValue::String(_) | RawValue::Symbol(_) => &[ty::STRING, ty::SYMBOL],
        RawValue::Document(_)
        | RawValue::Array(_)
        | RawValue::Binary { .. }
        | RawValue::ObjectId(_)
        | RawValue::Bool(_)
        | RawValue::Date(_)
        | RawValue::Timestamp(_)
        | RawValue::Regex { .. }
        | RawValue::DbPointer { .. }
        | RawValue::Code(_)
        | RawValue::CodeWithScope { .. } => return types.contains(value.type_byte()),
    };
    alike.iter().all(|type_byte| types.contains(*type_byte))
}

fn comparison_implies(has: &Predicate, implied: &Predicate) -> bool {
    let (
        Predicate::Cmp { op: has_op, value: has_value, collation: has_collation },
        Predicate::Cmp { op, value, collation },
    ) = (has, implied)
    else {
        return false;
    };
    if !same_collation(has_collation.as_ref(), collation.as_ref()) {
        return false;
    }
    if has_op == op && has_value == value {
        return true;
    }
    let (has_value, value) = (has_value.as_raw(), value.as_raw());
    let comparable = is_ordinary(has_value)
        && is_ordinary(value)
        && !is_nan(has_value)
        && !is_nan(value)
        && canonical_type(has_value.type_byte()) == canonical_type(value.type_byte());
    if !comparable {
        return false;
    }
    let order = compare_values_in(has_value, value, collation.as_deref());
    match (has_op, op) {
        (CmpOp::Eq, CmpOp::Eq) => order.is_eq(),
        (CmpOp::Eq | CmpOp::Gte, CmpOp::Gt) => order.is_gt(),
        (CmpOp::Eq | CmpOp::Gt | CmpOp::Gte, CmpOp::Gte) | (CmpOp::Gt, CmpOp::Gt) => order.is_ge(),
        (CmpOp::Eq | CmpOp::Lte, CmpOp::Lt) => order.is_lt(),
        (CmpOp::Eq | CmpOp::Lt | CmpOp::Lte, CmpOp::Lte) | (CmpOp::Lt, CmpOp::Lt) => order.is_le(),
        (CmpOp::Lt | CmpOp::Lte, CmpOp::Gt | CmpOp::Gte | CmpOp::Eq)
        | (CmpOp::Gt | CmpOp::Gte, CmpOp::Lt | CmpOp::Lte | CmpOp::Eq) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_mql::{Matcher, ParseContext};
    use mayfly_value::extjson::parse_document;

    fn check(query: &str, filter: &str, expected: bool) {
        let parse = |text: &str| {
            let document = parse_document(text).expect(text);
            Matcher::parse(document.as_doc(), &ParseContext::default()).expect(text)
        };
        let (implied, asked) = (parse(filter), parse(query));
        assert_eq!(implies(asked.root(), implied.root()), expected, "{query} => {filter}");
    }

    #[test]
    fn narrower_queries_imply_filters() {
        for (query, filter) in [
            (r#"{"a": 1}"#, r#"{}"#),
            (r#"{"a": 1}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$in": [1, "x"]}}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$type": "string"}}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": 5}"#, r#"{"a": {"$gt": 4}}"#),
            (r#"{"a": {"$gt": 4}}"#, r#"{"a": {"$gt": 4}}"#),
            (r#"{"a": {"$gt": 4}}"#, r#"{"a": {"$gte": 4}}"#),
            (r#"{"a": {"$gte": 4.5}}"#, r#"{"a": {"$gt": 4}}"#),
            (r#"{"a": {"$lt": 4}}"#, r#"{"a": {"$lte": 4}}"#),
            (r#"{"a": {"$lte": 3}, "b": 1}"#, r#"{"a": {"$lt": 4}}"#),
            (r#"{"a": {"$in": [5, 6]}}"#, r#"{"a": {"$gte": 5}}"#),
            (r#"{"a": {"$in": [1, 2]}}"#, r#"{"a": {"$in": [1, 2, 3]}}"#),
            (r#"{"a": 2}"#, r#"{"a": {"$in": [1, 2, 3]}}"#),
            (r#"{"a": "x"}"#, r#"{"a": {"$type": ["string", "symbol"]}}"#),
            (r#"{"a": 1}"#, r#"{"a": {"$type": "number"}}"#),
            (r#"{"a": null}"#, r#"{"a": null}"#),
            (r#"{"a": 1, "b": 2, "c": 3}"#, r#"{"$and": [{"a": 1}, {"b": {"$gt": 1}}]}"#),
            (r#"{"a": 1}"#, r#"{"$or": [{"b": 1}, {"a": 1}]}"#),
            (r#"{"$or": [{"a": 6}, {"a": {"$gt": 7}}]}"#, r#"{"a": {"$gt": 5}}"#),
        ] {
            check(query, filter, true);
        }
    }

    #[test]
    fn others_do_not() {
        for (query, filter) in [
            (r#"{}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"b": 1}"#, r#"{"a": 1}"#),
            (r#"{"a": null}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$in": [1, null]}}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$ne": 1}}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$gt": {"$minKey": 1}}}"#, r#"{"a": {"$exists": true}}"#),
            (r#"{"a": {"$lte": null}}"#, r#"{"a": {"$gte": null}}"#),
            (r#"{"a": {"$gte": 4}}"#, r#"{"a": {"$gt": 4}}"#),
            (r#"{"a": {"$gt": 4}}"#, r#"{"a": {"$gt": 5}}"#),
            (r#"{"a": {"$gt": 4}}"#, r#"{"a": 5}"#),
            (r#"{"a": {"$gt": 4}}"#, r#"{"a": {"$lt": 9}}"#),
            (r#"{"a": "x"}"#, r#"{"a": {"$gt": 4}}"#),
            (r#"{"a": 1}"#, r#"{"a": {"$type": "int"}}"#),
            (r#"{"a": {"$in": [5, "x"]}}"#, r#"{"a": {"$gte": 5}}"#),
            (r#"{"$or": [{"a": 6}, {"b": 1}]}"#, r#"{"a": {"$gt": 5}}"#),
            (r#"{"$nor": [{"a": 1}]}"#, r#"{"a": 1}"#),
            (r#"{"a": {"$numberDouble": "NaN"}}"#, r#"{"a": {"$lt": 4}}"#),
        ] {
            check(query, filter, false);
        }
    }
}

//! What a filter says about single fields, as intervals of ordered keys.
//!
//! Only conditions that stand in the outermost conjunction count. An interval is given for both directions of an index field;
//! it covers at least the keys of every document that can match.

use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_storage::{IndexField, KeyRange};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, Number, RawValue, canonical_type, ty};

/// One path and a condition on it.
pub(super) type Condition<'q> = (&'q str, &'q Predicate);

/// What is known about one path.
#[derive(Clone)]
pub(super) struct FieldBounds<'q> {
    pub(super) path: &'q str,
    /// One list of intervals per usable condition.
    pub(super) conditions: Vec<Intervals>,
    /// All conditions, for kinds of indexes that are not in the order of the values.
    pub(super) predicates: Vec<&'q Predicate>,
}

/// Intervals for an ascending and for a descending field, each ascending and disjoint.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    pub(super) ascending: Vec<KeyRange>,
    pub(super) descending: Vec<KeyRange>,
    /// Every interval is one value: further fields of the key can be bounded behind it.
    pub(super) points: bool,
    /// Whether a document without the field can match.
    pub(super) includes_missing: bool,
    /// Whether strings are among the values: the bounds are for keys of the query's collation only.
    pub(super) strings: bool,
    /// Whether documents with fields are among the values.
    pub(super) documents: bool,
}

/// Collects the conditions of the outermost conjunction; false when it can hold for no document.
pub(super) fn conjuncts<'q>(expr: &'q Expr, out: &mut Vec<Condition<'q>>) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| conjuncts(part, out)),
        Expr::Path { path, predicate } => {
            out.push((path.as_str(), predicate));
            true
        }
        Expr::Always(holds) => *holds,
        Expr::Document(test) => {
            out.extend(test.implied().iter().map(|(path, implied)| (path.as_str(), implied)));
            true
        }
        Expr::Or(_) | Expr::Nor(_) => true,
    }
}

/// Groups conditions by path, in the order of the filter.
pub(super) fn field_bounds<'q>(conditions: &[Condition<'q>]) -> Vec<FieldBounds<'q>> {
    let mut fields: Vec<FieldBounds<'q>> = Vec::new();
    for (path, predicate) in conditions {
        let mut found = Vec::new();
        intervals(predicate, &mut found);
        match fields.iter_mut().find(|field| field.path == *path) {
            Some(field) => {
                field.conditions.extend(found);
                field.predicates.push(predicate);
            }
            None => {
                let predicates = vec![*predicate];
                fields.push(FieldBounds { path, conditions: found, predicates });
            }
        }
    }
    fields
}

/// Whether the intervals of these fields say all that the filter says of a document with one key.
pub(super) fn conjunction_is_exact(expr: &Expr, fields: &[IndexField]) -> bool {
    let mut leaves = Vec::new();
    if !leaves_of(expr, &mut leaves) {
        return false;
    }
    // NaN is below all numbers as a key, and below none in a comparison: only a lower bound keeps it out.
    let bounded_below = |wanted: &str| {
        leaves.iter().any(|(path, predicate)| {
            *path == wanted
                && matches!(predicate, Predicate::Cmp { op: CmpOp::Eq | CmpOp::Gt | CmpOp::Gte, value, .. }
                    if value.as_raw().is_number())
        })
    };
    leaves.iter().all(|(path, predicate)| {
        let value_is_exact = match predicate {
            Predicate::Cmp { op: CmpOp::Lt | CmpOp::Lte, value, .. }
                if value.as_raw().is_number() =>
            {
                has_own_key(value.as_raw()) && bounded_below(path)
            }
            Predicate::Cmp { value, .. } => has_own_key(value.as_raw()),
            Predicate::In(list) => {
                let all = list.values().iter().all(|value| has_own_key(value.as_raw()));
                all && list.regexes().is_empty()
            }
            Predicate::Exists
            | Predicate::Type(..)
            | Predicate::Mod { .. }
            | Predicate::Bits(..)
            | Predicate::Geo(..)
            | Predicate::Regex(_)
            | Predicate::Size(_)
            | Predicate::ElemMatchDocument(_)
            | Predicate::ElemMatchValue(_)
            | Predicate::Not(_)
            | Predicate::All(_) => false,
        };
        value_is_exact && fields.iter().any(|field| field.path == *path)
    })
}

/// The single conditions of a conjunction; false when it has other parts, or none.
fn leaves_of<'q>(expr: &'q Expr, out: &mut Vec<Condition<'q>>) -> bool {
    match expr {
        Expr::And(parts) => !parts.is_empty() && parts.iter().all(|part| leaves_of(part, out)),
        Expr::Path { path, predicate: Predicate::All(parts) } => {
            out.extend(parts.iter().map(|part| (path.as_str(), part)));
            true
        }
        Expr::Path { path, predicate } => {
            out.push((path.as_str(), predicate));
            true
        }
        Expr::Or(_) | Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => false,
    }
}

pub(super) fn is_nan(value: RawValue<'_>) -> bool {
    Number::from_value(value).is_some_and(Number::is_nan)
}

/// Types whose values no other value, and no missing field, shares its key with.
fn has_own_key(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(number) => !number.is_nan(),
        RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::String(_)
        | RawValue::ObjectId(_)
        | RawValue::Bool(_)
        | RawValue::Date(_) => true,
        _ => false,
    }
}

fn intervals(predicate: &Predicate, out: &mut Vec<Intervals>) {
    match predicate {
        Predicate::Cmp { op, value, collation } => {
            out.extend(comparison(*op, value.as_raw(), collation.as_deref()));
        }
        Predicate::In(list) if list.regexes().is_empty() => {
            let values: Vec<RawValue<'_>> = list.values().iter().map(|v| v.as_raw()).collect();
            out.extend(points(&values, list.collation().map(|collation| &**collation)));
        }
        Predicate::All(parts) => parts.iter().for_each(|part| intervals(part, out)),
        Predicate::Not(inner) => out.extend(outside(inner)),
        Predicate::In(_)
        | Predicate::Exists
        | Predicate::Type(..)
        | Predicate::Mod { .. }
        | Predicate::Bits(..)
        | Predicate::Geo(..)
        | Predicate::Regex(_)
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_) => {}
    }
}

/// Where a value may be that is not in the order asked for: outside of that, of any type, or missing.
fn outside(inner: &Predicate) -> Option<Intervals> {
    let (op, value, collation) = match inner {
        Predicate::Cmp { op: CmpOp::Eq, .. } => return None,
        Predicate::Cmp { op, value, collation } => (*op, value.as_raw(), collation.as_deref()),
        Predicate::All(parts) => match parts.as_slice() {
            [only] => return outside(only),
            _ => return None,
        },
        _ => return None,
    };
    let mut inside = comparison(op, value, collation)?;
    if value.is_number() {
        // NaN is below all numbers as a key, and not less than any in a comparison.
        let nan = |descending| {
            KeyRange::prefix(&encoded(RawValue::Double(f64::NAN), descending, collation))
        };
        for range in &mut inside.ascending {
            range.start = nan(false).end.max(std::mem::take(&mut range.start));
        }
        for range in &mut inside.descending {
            range.end = nan(true).start.min(std::mem::take(&mut range.end));
        }
    }
    let around = |ranges: &[KeyRange]| {
        let mut out = Vec::new();
        let mut start = vec![keys::MIN];
        for range in ranges {
            out.push(KeyRange { start, end: range.start.clone() });
            start = range.end.clone();
        }
        out.push(KeyRange { start, end: vec![keys::MAX] });
        out.retain(|range| range.start < range.end);
        out
    };
    Some(Intervals {
        ascending: around(&inside.ascending),
        descending: around(&inside.descending),
        points: false,
        includes_missing: true,
        strings: inside.strings,
        documents: true,
    })
}

pub(super) fn encoded(
    value: RawValue<'_>,
    descending: bool,
    collation: Option<&Collation>,
) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    keys::append_value_in(&mut key, &mut TypeBits::default(), value, descending, collation);
    key
}

/// Whether the value can only be found under its own key. An array is also found under those of its elements.
pub(super) fn indexable(value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Array(_) | RawValue::Undefined | RawValue::Regex { .. })
}

fn points(values: &[RawValue<'_>], collation: Option<&Collation>) -> Option<Intervals> {
    if !values.iter().copied().all(indexable) {
        return None;
    }
    let mut all = values.to_vec();
    let includes_missing = values.iter().any(|value| value.type_byte() == ty::NULL);
    if includes_missing {
        // An empty array is kept as undefined, and a path below it counts as null.
        all.push(RawValue::Undefined);
    }
    let ranges = |descending| {
        let point =
            |value: &RawValue<'_>| KeyRange::prefix(&encoded(*value, descending, collation));
        let mut ranges: Vec<KeyRange> = all.iter().map(point).collect();
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        ranges.dedup();
        ranges
    };
    Some(Intervals {
        ascending: ranges(false),
        descending: ranges(true),
        points: true,
        includes_missing,
        documents: values
            .iter()
            .any(|value| matches!(value, RawValue::Document(inner) if !inner.is_empty())),
        strings: values.iter().copied().any(Collation::concerns),
    })
}

fn comparison(op: CmpOp, value: RawValue<'_>, collation: Option<&Collation>) -> Option<Intervals> {
    if op == CmpOp::Eq {
        return points(&[value], collation);
    }
    let ranged = match value {
        RawValue::MinKey | RawValue::MaxKey | RawValue::Null => false,
        RawValue::Document(_) => false,
        other => indexable(other),
    };
    // What NaN compares with is no range of numbers.
    if !ranged || is_nan(value) {
        return None;
    }
    Some(Intervals {
        ascending: vec![ascending(op, value, collation)],
        descending: vec![descending(op, value, collation)],
        points: false,
        includes_missing: false,
        documents: false,
        strings: Collation::concerns(value),
    })
}

fn bracket(value: RawValue<'_>) -> (Vec<u8>, Vec<u8>) {
    let canonical = canonical_type(value.type_byte());
    let (mut start, mut end) = (Vec::new(), Vec::new());
    keys::bracket_start(canonical, &mut start);
    keys::bracket_end(canonical, &mut end);
    (start, end)
}

fn ascending(op: CmpOp, value: RawValue<'_>, collation: Option<&Collation>) -> KeyRange {
    let (low, high) = bracket(value);
    let at = KeyRange::prefix(&encoded(value, false, collation));
    match op {
        CmpOp::Lt => KeyRange { start: low, end: at.start },
        CmpOp::Lte => KeyRange { start: low, end: at.end },
        CmpOp::Gt => KeyRange { start: at.end, end: high },
        CmpOp::Gte => KeyRange { start: at.start, end: high },
        CmpOp::Eq => at,
    }
}

fn descending(op: CmpOp, value: RawValue<'_>, collation: Option<&Collation>) -> KeyRange {
    let (mut high, mut low) = bracket(value);
    // The bracket [s, e) of first bytes becomes [!(e - 1), !s + 1).
    keys::invert(&mut low);
    low.iter_mut().for_each(|byte| *byte = byte.saturating_add(1));
    keys::invert(&mut high);
    high.iter_mut().for_each(|byte| *byte = byte.saturating_add(1));
    let at = KeyRange::prefix(&encoded(value, true, collation));
    match op {
        CmpOp::Lt => KeyRange { start: at.end, end: high },
        CmpOp::Lte => KeyRange { start: at.start, end: high },
        CmpOp::Gt => KeyRange { start: low, end: at.start },
        CmpOp::Gte => KeyRange { start: low, end: at.end },
        CmpOp::Eq => at,
    }
}

/// The intersection of two lists of disjoint ascending ranges. Both may be as long as a client's `$in`.
pub(super) fn intersect(a: &[KeyRange], b: &[KeyRange]) -> Vec<KeyRange> {
    let mut out = Vec::new();
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some(x), Some(y)) = (rest_a.first(), rest_b.first()) {
        let (start, end) = ((&x.start).max(&y.start), (&x.end).min(&y.end));
        if start < end {
            out.push(KeyRange { start: start.clone(), end: end.clone() });
        }
        // What ends first meets nothing that comes later in the other list.
        if x.end <= y.end {
            rest_a = &rest_a[1..];
        } else {
            rest_b = &rest_b[1..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intersection_has_what_is_in_both() {
        // Ranges between the bits of a number: bit n is the range [n, n + 1).
        let ranges = |bits: u16| -> Vec<KeyRange> {
            let mut ranges: Vec<KeyRange> = Vec::new();
            for n in (0..8_u8).filter(|n| bits & (1 << n) != 0) {
                match ranges.last_mut() {
                    Some(last) if last.end == [n] && bits & 0x100 == 0 => last.end = vec![n + 1],
                    _ => ranges.push(KeyRange { start: vec![n], end: vec![n + 1] }),
                }
            }
            ranges
        };
        let bits = |ranges: &[KeyRange]| -> u16 {
            let inside = |n: u8| ranges.iter().any(|r| r.start[0] <= n && n < r.end[0]);
            (0..8).filter(|n| inside(*n)).map(|n| 1 << n).sum()
        };
        for a in 0..0x200_u16 {
            for b in (0..0x200_u16).step_by(3) {
                let both = intersect(&ranges(a), &ranges(b));
                assert_eq!(bits(&both), a & b & 0xFF);
                assert!(both.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}

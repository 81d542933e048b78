//! The bounds that one condition gives: which interval of values an operator stands for.

use mayfly_mql::matcher::{CmpOp, Predicate, Regex};
use mayfly_value::{Collation, Number, RawDoc, RawValue, ty};

use crate::plan::types::bounds::Bounds;
use crate::plan::types::interval::{End, Interval, complement, union};

pub(crate) fn is_nan(value: RawValue<'_>) -> bool {
    Number::from_value(value).is_some_and(Number::is_nan)
}

/// Whether a value is found under its own key, and under that key nothing is found that does not
/// equal it.
fn has_own_key(value: RawValue<'_>) -> bool {
    !matches!(
        value,
        RawValue::Null
            | RawValue::Undefined
            | RawValue::Array(_)
            | RawValue::Regex { .. }
            | RawValue::MinKey
            | RawValue::MaxKey
    ) && !is_nan(value)
}

fn has_fields(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Document(inner) if !inner.is_empty())
}

/// The values that a condition requires equality with, if it is an equality.
pub(crate) fn required_values(predicate: &Predicate) -> Option<Vec<RawValue<'_>>> {
    match predicate {
        Predicate::Cmp { op: CmpOp::Eq, value, .. } => Some(vec![value.as_raw()]),
        Predicate::In(list) if list.regexes().is_empty() => {
            Some(list.values().iter().map(|value| value.as_raw()).collect())
        }
        Predicate::All(parts) => parts.iter().find_map(required_values),
        _ => None,
    }
}

/// Bounds for a predicate on the values of a path; `None` if the predicate gives none.
pub(crate) fn bounds_of(predicate: &Predicate, collation: Option<&Collation>) -> Option<Bounds> {
    match predicate {
        Predicate::Cmp { op: CmpOp::Eq, value, .. } => equal(&[value.as_raw()], collation),
        Predicate::Cmp { op, value, .. } => compared(*op, value.as_raw()),
        Predicate::In(list) => {
            let values: Vec<RawValue<'_>> = list.values().iter().map(|v| v.as_raw()).collect();
            let mut bounds = match values.is_empty() && !list.regexes().is_empty() {
                true => Bounds { exact: true, ..Bounds::new(Vec::new()) },
                false => equal(&values, collation)?,
            };
            for regex in list.regexes() {
                let matching = matching(regex);
                bounds.intervals.extend(matching.intervals);
                bounds.exact &= matching.exact;
                bounds.plain = true;
            }
            if bounds.plain {
                let strings = collation.filter(|_| bounds.collated);
                bounds.intervals = union(bounds.intervals, strings);
            }
            Some(bounds)
        }
        Predicate::Regex(regex) => Some(matching(regex)),
        Predicate::Exists => Some(Bounds::new(vec![Interval::all()])),
        Predicate::Type(types, _) => of_types(|byte| types.contains(byte)),
        Predicate::Mod { .. } => Some(Bounds::new(vec![Interval::of_type(RawValue::Int32(0))?])),
        // An empty array is stored as undefined. A wildcard index does not store it.
        Predicate::Size(0) => {
            let empty = Bounds::new(vec![Interval::point(RawValue::Undefined)]);
            Some(Bounds { documents: true, ..empty })
        }
        Predicate::Not(inner) => outside(inner, collation),
        Predicate::Bits(..)
        | Predicate::Geo(..)
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_)
        | Predicate::All(_) => None,
    }
}

/// Bounds for equality with one of these values.
fn equal(values: &[RawValue<'_>], collation: Option<&Collation>) -> Option<Bounds> {
    let mut intervals = Vec::with_capacity(values.len());
    for value in values {
        match value {
            // Stored as themselves in arrays only; in a filter they mean something else.
            RawValue::Undefined | RawValue::Regex { .. } => return None,
            // An empty array is stored as undefined, and a path below it counts as null.
            RawValue::Null => {
                intervals.extend([RawValue::Undefined, RawValue::Null].map(Interval::point));
            }
            // The keys are those of the array's items, unless the array is itself an item of an
            // array.
            RawValue::Array(items) => {
                let first = items.iter().next().map_or(RawValue::Undefined, |item| item.value());
                // The items of a nested array have no keys, so the array has a key of its own.
                intervals.push(Interval::point(first));
                intervals.push(Interval::point(*value));
            }
            value => intervals.push(Interval::point(*value)),
        }
    }
    Some(Bounds {
        exact: values.iter().all(|value| has_own_key(*value)),
        includes_missing: values.iter().any(|value| value.type_byte() == ty::NULL),
        collated: values.iter().any(|value| Collation::concerns(*value)),
        documents: values
            .iter()
            .any(|value| has_fields(*value) || matches!(value, RawValue::Array(_))),
        ..Bounds::new(union(intervals, collation))
    })
}

/// Bounds for an order comparison.
fn compared(op: CmpOp, value: RawValue<'_>) -> Option<Bounds> {
    let Interval { low, high } = match (op, value) {
        // `$lte: null` and `$gte: null` match null and missing fields only.
        (CmpOp::Lte | CmpOp::Gte, RawValue::Null) => return equal(&[value], None),
        (_, RawValue::MinKey | RawValue::MaxKey) => {
            let all = Interval::all();
            let interval = match op {
                CmpOp::Lt => Interval::new(all.low, End::excluded(value)),
                CmpOp::Lte => Interval::new(all.low, End::included(value)),
                CmpOp::Gt => Interval::new(End::excluded(value), all.high),
                CmpOp::Gte | CmpOp::Eq => Interval::new(End::included(value), all.high),
            };
            let all = Bounds::new(vec![interval]);
            return Some(Bounds { includes_missing: true, documents: true, ..all });
        }
        // The values that compare with NaN are not an interval. The keys of an array are those of
        // its items.
        (_, value) if is_nan(value) || matches!(value, RawValue::Array(_)) => return None,
        (_, value) => Interval::of_type(value)?,
    };
    let interval = match op {
        CmpOp::Lt => Interval::new(low, End::excluded(value)),
        CmpOp::Lte => Interval::new(low, End::included(value)),
        CmpOp::Gt => Interval::new(End::excluded(value), high),
        CmpOp::Gte => Interval::new(End::included(value), high),
        CmpOp::Eq => Interval::new(End::included(value), End::included(value)),
    };
    Some(Bounds {
        exact: has_own_key(value),
        collated: Collation::concerns(value),
        documents: matches!(value, RawValue::Document(_)),
        ..Bounds::new(vec![interval])
    })
}

/// Bounds for a regular expression: strings with its literal prefix, and the expression itself as a
/// value.
fn matching(regex: &Regex) -> Bounds {
    let strings = Interval::of_type(RawValue::String(""));
    let prefix = regex.literal_prefix();
    let begins = |prefix: &str| {
        let next = RawValue::Document(RawDoc::EMPTY);
        let successor = successor_of_prefix(prefix);
        let next = successor.as_deref().map_or(next, RawValue::String);
        Interval::new(End::included(RawValue::String(prefix)), End::excluded(next))
    };
    let strings = prefix.map(begins).or(strings);
    let pattern = RawValue::Regex { pattern: regex.pattern(), options: regex.options() };
    let intervals = strings.into_iter().chain([Interval::point(pattern)]).collect();
    let exact = prefix.is_some_and(|prefix| regex.pattern().len() == prefix.len() + 1);
    Bounds { exact, plain: true, ..Bounds::new(intervals) }
}

/// The smallest string after all strings with this prefix.
fn successor_of_prefix(prefix: &str) -> Option<String> {
    let mut next = prefix.to_owned();
    while let Some(last) = next.pop() {
        let after = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(after) = after {
            next.push(after);
            return Some(next);
        }
    }
    None
}

/// Bounds for values of the types that `has` accepts.
fn of_types(has: impl Fn(u8) -> bool) -> Option<Bounds> {
    // An array is stored as its items, which may have any type.
    if has(ty::ARRAY) {
        return Some(Bounds::new(vec![Interval::all()]));
    }
    let representatives: &[(&[u8], RawValue<'static>)] = &[
        (&[ty::STRING, ty::SYMBOL], RawValue::String("")),
        (&[ty::DOCUMENT], RawValue::Document(RawDoc::EMPTY)),
        (&[ty::BINARY], RawValue::Binary { subtype: 0, bytes: &[] }),
        (&[ty::OBJECT_ID], RawValue::ObjectId([0; 12])),
        (&[ty::BOOL], RawValue::Bool(false)),
        (&[ty::DATE], RawValue::Date(0)),
        (&[ty::TIMESTAMP], RawValue::Timestamp(0)),
    ];
    let singles = [
        (ty::MIN_KEY, RawValue::MinKey),
        (ty::UNDEFINED, RawValue::Undefined),
        (ty::NULL, RawValue::Null),
        (ty::MAX_KEY, RawValue::MaxKey),
    ];
    let others = [ty::REGEX, ty::DB_POINTER, ty::CODE, ty::CODE_W_SCOPE];
    if others.into_iter().any(&has) {
        return None;
    }
    let numbers = [ty::INT32, ty::INT64, ty::DOUBLE, ty::DECIMAL].into_iter().any(&has);
    let numbers = numbers.then(|| {
        let end = |number| End::included(RawValue::Double(number));
        Interval::new(end(f64::NAN), end(f64::INFINITY))
    });
    let known = representatives.iter().filter(|(bytes, _)| bytes.iter().any(|byte| has(*byte)));
    let known = known.filter_map(|(_, value)| Interval::of_type(*value));
    let singles = singles.into_iter().filter(|(byte, _)| has(*byte));
    let singles = singles.map(|(_, value)| Interval::point(value));
    let intervals = union(numbers.into_iter().chain(known).chain(singles).collect(), None);
    let documents = has(ty::DOCUMENT);
    (!intervals.is_empty()).then(|| Bounds { documents, ..Bounds::new(intervals) })
}

/// Bounds for a negated predicate: values outside of its intervals, of any type, or a missing
/// field.
pub(crate) fn outside(inner: &Predicate, collation: Option<&Collation>) -> Option<Bounds> {
    let inside = match inner {
        Predicate::All(parts) => match parts.as_slice() {
            [only] => return outside(only, collation),
            _ => return None,
        },
        // A missing field and null share a key; a path below an empty array has the key of
        // undefined.
        Predicate::Exists => {
            let none = [RawValue::Undefined, RawValue::Null].map(Interval::point);
            let bounds = Bounds::new(none.to_vec());
            return Some(Bounds { includes_missing: true, negated: true, ..bounds });
        }
        Predicate::Cmp { op, value, .. } if *op != CmpOp::Eq => {
            let inside = compared(*op, value.as_raw())?;
            if inside.includes_missing {
                return None;
            }
            inside
        }
        equality => excluded(&required_values(equality)?, collation),
    };
    let is_null = |interval: &Interval| interval.low.value.type_byte() == ty::NULL;
    let null = inside.intervals.iter().any(is_null);
    let around = complement(&inside.intervals, collation);
    if around.is_empty() {
        return None;
    }
    Some(Bounds {
        includes_missing: !null,
        collated: inside.collated,
        negated: true,
        documents: true,
        // The key of null may stand for a missing field and for other values.
        exact: inside.exact && !null,
        ..Bounds::new(around)
    })
}

/// Values that a matching document cannot have under a key if it has none of these.
fn excluded(values: &[RawValue<'_>], collation: Option<&Collation>) -> Bounds {
    // An array is stored as its items, which other arrays may contain too.
    let kept = values.iter().filter(|value| {
        !matches!(value, RawValue::Array(_) | RawValue::Undefined | RawValue::Regex { .. })
    });
    let intervals = kept.clone().map(|value| Interval::point(*value)).collect();
    Bounds {
        exact: values.iter().all(|value| has_own_key(*value)),
        collated: kept.clone().any(|value| Collation::concerns(*value)),
        ..Bounds::new(union(intervals, collation))
    }
}

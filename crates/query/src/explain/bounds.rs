//! The bounds of an index scan as text: `["[1, 1]"]`, `["(5, inf.0]"]`, `["[MinKey, MaxKey]"]`.
//!
//! The planner keeps bounds as bytes; the text is made again from the conditions, for as many fields as the planner bounds.

use std::cmp::Ordering;

use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::hashed::hash_in;
use mayfly_storage::{Index, IndexField, KeyRange};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values, keys};

use super::filter::parts;
use crate::plan::value_ranges;

/// One end of an interval.
#[derive(Clone)]
struct End {
    value: ValueBuf,
    inclusive: bool,
}

#[derive(Clone)]
struct Interval {
    low: End,
    high: End,
}

/// What is known of the fields of a scan.
pub(super) struct ScanBounds {
    /// Per field of the key.
    pub(super) text: DocBuf,
    /// Conditions that the bounds do not fully say.
    pub(super) rest: Vec<DocBuf>,
}

/// How a scan goes through the keys.
pub(super) struct Scan<'a> {
    /// The index, unless it is the clustered order.
    pub(super) index: Option<&'a Index>,
    pub(super) fields: &'a [IndexField],
    pub(super) multikey: u32,
    pub(super) ranges: &'a [KeyRange],
    pub(super) backward: bool,
}

/// The bounds of a scan under these conditions.
pub(super) fn scan_bounds(scan: &Scan<'_>, conditions: &[DocBuf]) -> ScanBounds {
    let bounded = scan.ranges.first().map_or(0, |range| bounded_fields(scan.fields, &range.start));
    let mut used = vec![false; conditions.len()];
    let mut text = DocBuilder::new();
    for (at, field) in scan.fields.iter().enumerate() {
        let multikey = scan.multikey & (1 << at) != 0;
        let found = match at < bounded {
            true if matches!(field.kind, FieldKind::Sphere | FieldKind::Plane) => {
                places(scan.index, &field.path, conditions)
            }
            true => bounds_of(scan.fields, at, multikey, conditions, &mut used),
            false => None,
        };
        text.start_array(&field.path);
        let reversed = field.descending != scan.backward;
        match found {
            None if reversed => {
                text.push("[MaxKey, MinKey]");
            }
            None => {
                text.push("[MinKey, MaxKey]");
            }
            Some(mut intervals) => {
                if reversed {
                    intervals.reverse();
                }
                for interval in &intervals {
                    text.push(shown(interval, reversed).as_str());
                }
            }
        }
        text.end();
    }
    let rest = conditions.iter().zip(&used).filter(|(_, used)| !**used);
    ScanBounds { text: text.finish(), rest: rest.map(|(c, _)| c.clone()).collect() }
}

/// The cells that the first area on a path is covered by; the filter decides about what is found there.
fn places(index: Option<&Index>, path: &str, conditions: &[DocBuf]) -> Option<Vec<Interval>> {
    let area_of = |condition: &DocBuf| {
        let (known, ..) = parts(condition.as_doc())?;
        let matcher = Matcher::parse(condition.as_doc(), &ParseContext::default()).ok()?;
        match matcher.root() {
            Expr::Path { predicate: Predicate::Geo(test, _), .. } if known == path => {
                value_ranges(index?, test.area()?)
            }
            _ => None,
        }
    };
    let end = |value| End { value: RawValue::Int64(value).to_owned(), inclusive: true };
    let interval = |(first, last)| Interval { low: end(first), high: end(last) };
    Some(conditions.iter().find_map(area_of)?.into_iter().map(interval).collect())
}

/// The intervals of one field of an entry.
fn bounds_of(
    fields: &[IndexField],
    at: usize,
    multikey: bool,
    conditions: &[DocBuf],
    used: &mut [bool],
) -> Option<Vec<Interval>> {
    let field = &fields[at];
    match field.kind {
        FieldKind::Path => {
            let path = &fields.get(at + 1)?.path;
            let mut intervals = points(RawValue::String(path))?;
            let below = |end: char| End {
                value: RawValue::String(&format!("{path}{end}")).to_owned(),
                inclusive: end == '.',
            };
            let by_value = fields.len() > at + 1
                && field_intervals(path, multikey, conditions, &mut vec![false; used.len()])
                    .is_some();
            if !by_value {
                intervals.push(Interval { low: below('.'), high: below('/') });
            }
            Some(intervals)
        }
        FieldKind::Hashed => {
            // The filter decides: different values may have one hash.
            let unused = &mut vec![false; used.len()];
            let found = field_intervals(&field.path, true, conditions, unused)?;
            let hashed = found.iter().filter(|interval| interval.low.value == interval.high.value);
            let hash = |interval: &Interval| {
                points(RawValue::Int64(hash_in(interval.low.value.as_raw(), None)))
            };
            Some(hashed.filter_map(hash).flatten().collect())
        }
        _ => field_intervals(&field.path, multikey, conditions, used),
    }
}

/// How many fields a range's beginning says something about.
fn bounded_fields(fields: &[IndexField], start: &[u8]) -> usize {
    let (mut rest, mut count) = (start, 0);
    for field in fields {
        if rest.is_empty() {
            break;
        }
        count += 1;
        match keys::skip_value(rest, field.descending) {
            Some(len) => rest = &rest[len.min(rest.len())..],
            None => break,
        }
    }
    count
}

fn field_intervals(
    path: &str,
    multikey: bool,
    conditions: &[DocBuf],
    used: &mut [bool],
) -> Option<Vec<Interval>> {
    let mut found: Vec<(usize, bool, Vec<Interval>)> = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        let Some((known, operator, value)) = parts(condition.as_doc()) else { continue };
        if known == path
            && let Some(intervals) = condition_intervals(operator, value)
        {
            found.push((at, matches!(operator, "$eq" | "$in"), intervals));
        }
    }
    if multikey && found.len() > 1 {
        // Conditions may hold for different elements: only one of them bounds the keys.
        let chosen = found.iter().position(|(_, points, _)| *points).unwrap_or(0);
        found = vec![found.swap_remove(chosen)];
    }
    let mut all: Option<Vec<Interval>> = None;
    for (at, _, intervals) in found {
        used[at] = is_exact(conditions[at].as_doc());
        all = Some(match all {
            None => intervals,
            Some(all) => intersect(&all, &intervals),
        });
    }
    all
}

/// Whether the bounds of a condition let nothing through that it would not.
fn is_exact(condition: RawDoc<'_>) -> bool {
    let plain = |value: RawValue<'_>| {
        !matches!(value, RawValue::Null | RawValue::Array(_) | RawValue::Document(_))
    };
    match parts(condition) {
        Some((_, "$in", RawValue::Array(list))) => list.iter().all(|item| plain(item.value())),
        Some((_, _, value)) => plain(value),
        None => false,
    }
}

fn condition_intervals(operator: &str, value: RawValue<'_>) -> Option<Vec<Interval>> {
    match (operator, value) {
        ("$eq", value) => points(value),
        ("$in", RawValue::Array(list)) => {
            let mut out = Vec::new();
            for item in list.iter() {
                out.extend(points(item.value())?);
            }
            Some(out)
        }
        ("$lt" | "$lte" | "$gt" | "$gte", value) => Some(vec![ranged(operator, value)?]),
        _ => None,
    }
}

fn points(value: RawValue<'_>) -> Option<Vec<Interval>> {
    let point = |value: RawValue<'_>| {
        let end = End { value: value.to_owned(), inclusive: true };
        Interval { low: end.clone(), high: end }
    };
    match value {
        RawValue::Array(_) | RawValue::Undefined | RawValue::Regex { .. } => None,
        RawValue::Null => Some(vec![point(RawValue::Undefined), point(RawValue::Null)]),
        value => Some(vec![point(value)]),
    }
}

fn ranged(operator: &str, value: RawValue<'_>) -> Option<Interval> {
    let (low, high) = type_ends(value)?;
    let end = |inclusive| End { value: value.to_owned(), inclusive };
    Some(match operator {
        "$lt" => Interval { low, high: end(false) },
        "$lte" => Interval { low, high: end(true) },
        "$gt" => Interval { low: end(false), high },
        _ => Interval { low: end(true), high },
    })
}

/// The ends of all values of the operand's own type.
fn type_ends(value: RawValue<'_>) -> Option<(End, End)> {
    let end = |value: RawValue<'_>, inclusive| End { value: value.to_owned(), inclusive };
    let closed = |low, high| Some((end(low, true), end(high, true)));
    let open = |low, high| Some((end(low, true), end(high, false)));
    let no_bytes = RawValue::Binary { subtype: 0, bytes: &[] };
    match value {
        number if number.is_number() => {
            closed(RawValue::Double(f64::NEG_INFINITY), RawValue::Double(f64::INFINITY))
        }
        RawValue::String(_) | RawValue::Symbol(_) => {
            open(RawValue::String(""), RawValue::Document(RawDoc::EMPTY))
        }
        RawValue::Binary { .. } => open(no_bytes, RawValue::ObjectId([0; 12])),
        RawValue::ObjectId(_) => closed(RawValue::ObjectId([0; 12]), RawValue::ObjectId([255; 12])),
        RawValue::Bool(_) => closed(RawValue::Bool(false), RawValue::Bool(true)),
        RawValue::Date(_) => closed(RawValue::Date(i64::MIN), RawValue::Date(i64::MAX)),
        RawValue::Timestamp(_) => closed(RawValue::Timestamp(0), RawValue::Timestamp(u64::MAX)),
        _ => None,
    }
}

fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::new();
    for x in a {
        for y in b {
            let order = compare_values(x.low.value.as_raw(), y.low.value.as_raw());
            let low = match order.then(y.low.inclusive.cmp(&x.low.inclusive)) {
                Ordering::Less => &y.low,
                Ordering::Equal | Ordering::Greater => &x.low,
            };
            let order = compare_values(x.high.value.as_raw(), y.high.value.as_raw());
            let high = match order.then(x.high.inclusive.cmp(&y.high.inclusive)) {
                Ordering::Greater => &y.high,
                Ordering::Equal | Ordering::Less => &x.high,
            };
            let both = low.inclusive && high.inclusive;
            match compare_values(low.value.as_raw(), high.value.as_raw()) {
                Ordering::Less => {}
                Ordering::Equal if both => {}
                Ordering::Equal | Ordering::Greater => continue,
            }
            out.push(Interval { low: low.clone(), high: high.clone() });
        }
    }
    out
}

fn shown(interval: &Interval, reversed: bool) -> String {
    let (first, last) = match reversed {
        false => (&interval.low, &interval.high),
        true => (&interval.high, &interval.low),
    };
    let opening = if first.inclusive { '[' } else { '(' };
    let closing = if last.inclusive { ']' } else { ')' };
    format!("{opening}{}, {}{closing}", value_text(&first.value), value_text(&last.value))
}

fn value_text(value: &ValueBuf) -> String {
    match value.as_raw() {
        RawValue::Double(number) if !number.is_finite() => {
            let text = if number.is_nan() { "nan" } else { "inf" };
            let sign = if number < 0.0 { "-" } else { "" };
            format!("{sign}{text}.0")
        }
        value => ShellValue(value).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_mql::{Matcher, ParseContext};
    use mayfly_value::bson::{Document, doc};

    fn text(filter: &Document, multikey: bool, reversed: bool) -> Vec<String> {
        let filter = DocBuf::from_bson(filter);
        let filter = Matcher::parse(filter.as_doc(), &ParseContext::default()).unwrap();
        let conditions = filter.root().conditions();
        let mut used = vec![false; conditions.len()];
        let found = field_intervals("a", multikey, &conditions, &mut used).unwrap();
        found.iter().map(|interval| shown(interval, reversed)).collect()
    }

    #[test]
    fn conditions_become_intervals() {
        assert_eq!(text(&doc! {"a": 1}, false, false), ["[1, 1]"]);
        assert_eq!(text(&doc! {"a": {"$gt": 5}}, false, false), ["(5, inf.0]"]);
        assert_eq!(text(&doc! {"a": {"$lte": 5.5}}, false, true), ["[5.5, -inf.0]"]);
        assert_eq!(text(&doc! {"a": {"$gte": 1, "$lt": 9}}, false, false), ["[1, 9)"]);
        assert_eq!(text(&doc! {"a": {"$gte": 1, "$lt": 9}}, true, false), ["[-inf.0, 9)"]);
        assert_eq!(text(&doc! {"a": {"$gt": "x"}}, false, false), ["(\"x\", {})"]);
        let both = doc! {"a": {"$in": [3, 1, 7], "$gt": 1}};
        assert_eq!(text(&both, false, false), ["[3, 3]", "[7, 7]"]);
        let null = ["[undefined, undefined]", "[null, null]"];
        assert_eq!(text(&doc! {"a": null}, false, false), null);
    }
}

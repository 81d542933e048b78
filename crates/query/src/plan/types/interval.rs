//! Intervals of values: the bounds of an index field, convertible to key ranges and to text for
//! explain.

use std::cmp::Ordering;

use mayfly_storage::KeyRange;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Collation, RawDoc, RawValue, SortOrder, ValueBuf, compare_values_in};

/// One end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) value: ValueBuf,
    pub(crate) inclusive: bool,
}

/// The values between two ends, in comparison order.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) low: End,
    pub(crate) high: End,
}

impl End {
    /// The end of an interval that contains this value.
    pub(crate) fn included(value: RawValue<'_>) -> End {
        End { value: value.to_owned(), inclusive: true }
    }

    /// The end of an interval whose values all come before, or all come after this value.
    pub(crate) fn excluded(value: RawValue<'_>) -> End {
        End { value: value.to_owned(), inclusive: false }
    }
}

/// The ordered key of a value.
pub(crate) fn encoded(
    value: RawValue<'_>,
    order: SortOrder,
    collation: Option<&Collation>,
) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    keys::append_value_in(&mut key, &mut TypeBits::default(), value, order, collation);
    key
}

impl Interval {
    pub(crate) fn new(low: End, high: End) -> Interval {
        Interval { low, high }
    }

    /// The interval of a single value.
    pub(crate) fn point(value: RawValue<'_>) -> Interval {
        Interval { low: End::included(value), high: End::included(value) }
    }

    /// Whether a value is in the interval.
    pub(crate) fn contains(&self, value: RawValue<'_>, collation: Option<&Collation>) -> bool {
        let low = compare_values_in(self.low.value.as_raw(), value, collation);
        let high = compare_values_in(value, self.high.value.as_raw(), collation);
        let inside = |order: Ordering, end: &End| order.is_lt() || (end.inclusive && order.is_eq());
        inside(low, &self.low) && inside(high, &self.high)
    }

    /// The interval of all values.
    pub(crate) fn all() -> Interval {
        Interval { low: End::included(RawValue::MinKey), high: End::included(RawValue::MaxKey) }
    }

    /// All values that compare with this one by order; `None` for types whose values are
    /// interleaved with others.
    pub(crate) fn of_type(value: RawValue<'_>) -> Option<Interval> {
        let closed = |low, high| Some(Interval::new(End::included(low), End::included(high)));
        let open = |low, high| Some(Interval::new(End::included(low), End::excluded(high)));
        let no_bytes = RawValue::Binary { subtype: 0, bytes: &[] };
        match value {
            number if number.is_number() => {
                closed(RawValue::Double(f64::NEG_INFINITY), RawValue::Double(f64::INFINITY))
            }
            RawValue::String(_) | RawValue::Symbol(_) => {
                open(RawValue::String(""), RawValue::Document(RawDoc::EMPTY))
            }
            RawValue::Document(_) => {
                open(RawValue::Document(RawDoc::EMPTY), RawValue::Array(RawDoc::EMPTY))
            }
            RawValue::Binary { .. } => open(no_bytes, RawValue::ObjectId([0; 12])),
            RawValue::ObjectId(_) => {
                closed(RawValue::ObjectId([0; 12]), RawValue::ObjectId([255; 12]))
            }
            RawValue::Bool(_) => closed(RawValue::Bool(false), RawValue::Bool(true)),
            RawValue::Date(_) => closed(RawValue::Date(i64::MIN), RawValue::Date(i64::MAX)),
            RawValue::Timestamp(_) => closed(RawValue::Timestamp(0), RawValue::Timestamp(u64::MAX)),
            _ => None,
        }
    }

    /// Whether the interval contains a single value.
    pub(crate) fn is_point(&self, collation: Option<&Collation>) -> bool {
        let (low, high) = (self.low.value.as_raw(), self.high.value.as_raw());
        self.low.inclusive && self.high.inclusive && compare_values_in(low, high, collation).is_eq()
    }

    /// The key range of the interval in an index field of this order.
    fn range(&self, order: SortOrder, collation: Option<&Collation>) -> KeyRange {
        let at = |end: &End| KeyRange::prefix(&encoded(end.value.as_raw(), order, collation));
        let (first, last) = match order {
            SortOrder::Ascending => (&self.low, &self.high),
            SortOrder::Descending => (&self.high, &self.low),
        };
        let (start, end) = (at(first), at(last));
        KeyRange {
            start: if first.inclusive { start.start } else { start.end },
            end: if last.inclusive { end.end } else { end.start },
        }
    }

    /// The interval as explain shows it: `[1, 5)`.
    fn text(&self, order: SortOrder) -> String {
        let (first, last) = match order {
            SortOrder::Ascending => (&self.low, &self.high),
            SortOrder::Descending => (&self.high, &self.low),
        };
        let opening = if first.inclusive { '[' } else { '(' };
        let closing = if last.inclusive { ']' } else { ')' };
        format!("{opening}{}, {}{closing}", value_text(&first.value), value_text(&last.value))
    }
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

/// The key ranges of intervals in an index field of this order, in the order of the index.
pub(crate) fn ranges(
    intervals: &[Interval],
    order: SortOrder,
    collation: Option<&Collation>,
) -> Vec<KeyRange> {
    let mut ranges: Vec<KeyRange> =
        intervals.iter().map(|interval| interval.range(order, collation)).collect();
    if order.is_descending() {
        ranges.reverse();
    }
    ranges.retain(|range| range.end.is_empty() || range.start < range.end);
    ranges
}

/// The intervals as explain shows them, in the order in which a scan reads values.
pub(crate) fn texts(intervals: &[Interval], order: SortOrder) -> Vec<String> {
    let mut texts: Vec<String> = intervals.iter().map(|interval| interval.text(order)).collect();
    if order.is_descending() {
        texts.reverse();
    }
    texts
}

fn by_low(a: &End, b: &End, collation: Option<&Collation>) -> Ordering {
    let order = compare_values_in(a.value.as_raw(), b.value.as_raw(), collation);
    order.then(b.inclusive.cmp(&a.inclusive))
}

fn by_high(a: &End, b: &End, collation: Option<&Collation>) -> Ordering {
    let order = compare_values_in(a.value.as_raw(), b.value.as_raw(), collation);
    order.then(a.inclusive.cmp(&b.inclusive))
}

/// Whether the interval between these ends is empty.
fn is_empty(low: &End, high: &End, collation: Option<&Collation>) -> bool {
    match compare_values_in(low.value.as_raw(), high.value.as_raw(), collation) {
        Ordering::Less => false,
        Ordering::Equal => !(low.inclusive && high.inclusive),
        Ordering::Greater => true,
    }
}

/// The intersection of two lists, each ascending and disjoint. It is linear, because both may be as
/// long as a client's `$in`.
pub(crate) fn intersect(
    a: &[Interval],
    b: &[Interval],
    collation: Option<&Collation>,
) -> Vec<Interval> {
    let mut out = Vec::new();
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some(x), Some(y)) = (rest_a.first(), rest_b.first()) {
        let low = if by_low(&x.low, &y.low, collation).is_ge() { &x.low } else { &y.low };
        let first_ends = by_high(&x.high, &y.high, collation).is_le();
        let high = if first_ends { &x.high } else { &y.high };
        if !is_empty(low, high, collation) {
            out.push(Interval { low: low.clone(), high: high.clone() });
        }
        // The interval that ends first cannot meet later intervals of the other list.
        if first_ends {
            rest_a = &rest_a[1..];
        } else {
            rest_b = &rest_b[1..];
        }
    }
    out
}

/// The union of intervals, ascending and disjoint.
pub(crate) fn union(mut all: Vec<Interval>, collation: Option<&Collation>) -> Vec<Interval> {
    all.sort_by(|a, b| by_low(&a.low, &b.low, collation));
    let mut out: Vec<Interval> = Vec::with_capacity(all.len());
    for next in all {
        match out.last_mut() {
            Some(last) if touches(&last.high, &next.low, collation) => {
                if by_high(&last.high, &next.high, collation).is_lt() {
                    last.high = next.high;
                }
            }
            _ => out.push(next),
        }
    }
    out
}

/// Whether an interval that starts at `low` overlaps or adjoins one that ends at `high`.
fn touches(high: &End, low: &End, collation: Option<&Collation>) -> bool {
    match compare_values_in(low.value.as_raw(), high.value.as_raw(), collation) {
        Ordering::Less => true,
        Ordering::Equal => high.inclusive || low.inclusive,
        Ordering::Greater => false,
    }
}

/// The complement of intervals, which are ascending and disjoint.
pub(crate) fn complement(intervals: &[Interval], collation: Option<&Collation>) -> Vec<Interval> {
    let Interval { mut low, high } = Interval::all();
    let mut out = Vec::with_capacity(intervals.len() + 1);
    let outside = |end: &End| End { value: end.value.clone(), inclusive: !end.inclusive };
    for interval in intervals {
        let before = outside(&interval.low);
        if !is_empty(&low, &before, collation) {
            out.push(Interval { low, high: before });
        }
        low = outside(&interval.high);
    }
    if !is_empty(&low, &high, collation) {
        out.push(Interval { low, high });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of intervals with ends from 0 to 4, chosen by `seed`.
    fn chosen(mut seed: usize) -> Vec<Interval> {
        let mut all = Vec::new();
        for _ in 0..2 {
            let end = |at: usize| End {
                value: RawValue::Int32((at / 2) as i32).to_owned(),
                inclusive: at.is_multiple_of(2),
            };
            let (low, high) = (end(seed % 10), end(seed / 10 % 10));
            seed /= 100;
            if !is_empty(&low, &high, None) {
                all.push(Interval { low, high });
            }
        }
        union(all, None)
    }

    fn has(intervals: &[Interval], quarter: i32) -> bool {
        let value = RawValue::Double(f64::from(quarter) / 4.0);
        let point = Interval::point(value);
        intersect(intervals, &[point], None).len() == 1
    }

    #[test]
    fn sets_of_intervals_are_sets_of_values() {
        let key =
            |quarter: i32, order| encoded(RawValue::Double(f64::from(quarter) / 4.0), order, None);
        for seed in (0..10_000).step_by(7) {
            let (a, b) = (chosen(seed), chosen(seed * 31 % 10_000));
            let both = intersect(&a, &b, None);
            let any = union(a.iter().chain(&b).cloned().collect(), None);
            let none = complement(&a, None);
            for quarter in -1..18 {
                let (in_a, in_b) = (has(&a, quarter), has(&b, quarter));
                assert_eq!(has(&both, quarter), in_a && in_b);
                assert_eq!(has(&any, quarter), in_a || in_b);
                assert_eq!(has(&none, quarter), !in_a);
                for order in [SortOrder::Ascending, SortOrder::Descending] {
                    let key = key(quarter, order);
                    let ranges = ranges(&a, order, None);
                    let inside = |range: &KeyRange| range.start <= key && key < range.end;
                    assert_eq!(ranges.iter().any(inside), in_a, "{a:?} {quarter}");
                    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
                }
            }
        }
    }
}

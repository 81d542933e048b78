//! Bounds: the intervals that a filter gives for a path.
//!
//! The intervals contain at least the values under which an index stores every document that can
//! match: bounds may be wider than the filter, never narrower. A condition is *covered* if its
//! bounds are as narrow as the condition itself; it need not be evaluated again on keys.

use std::borrow::Cow;

use mayfly_mql::matcher::Predicate;
use mayfly_value::{Collation, RawValue};

use super::interval::{Interval, intersect};

/// A path and a predicate on it.
pub(crate) type Condition<'q> = (&'q str, &'q Predicate);

/// All bounds that the filter gives for one path.
#[derive(Clone)]
pub(crate) struct FieldBounds<'q> {
    pub(crate) path: Cow<'q, str>,
    /// One entry for each condition that gives bounds.
    pub(crate) conditions: Vec<Bounds>,
    /// The predicates on the path itself, for index kinds whose keys are not in the order of the
    /// values.
    pub(crate) predicates: Vec<&'q Predicate>,
}

/// The bounds that one condition gives.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Intervals, ascending and disjoint.
    pub(crate) intervals: Vec<Interval>,
    /// Whether the intervals are equivalent to the condition: every value in them satisfies it, and
    /// a missing field does not.
    pub(crate) exact: bool,
    /// Whether a document without the field can match.
    pub(crate) includes_missing: bool,
    /// Whether the intervals contain strings that are compared under the query's collation.
    pub(crate) collated: bool,
    /// Whether the intervals contain strings that are compared by their bytes, whatever the
    /// collation.
    pub(crate) plain: bool,
    /// Whether the condition excludes a value. An array that has an allowed value may contain the
    /// excluded one as well.
    pub(crate) negated: bool,
    /// Whether the intervals contain non-empty documents.
    pub(crate) documents: bool,
    /// Numbers of the enclosing `$elemMatch` conditions. Conditions with equal lists apply to the
    /// same array item.
    pub(crate) items: Vec<usize>,
    /// The number of the top-level conjunct that these bounds are equivalent to, if they are.
    pub(crate) whole: Option<usize>,
}

impl Bounds {
    pub(crate) fn new(intervals: Vec<Interval>) -> Bounds {
        Bounds {
            intervals,
            exact: false,
            includes_missing: false,
            collated: false,
            plain: false,
            negated: false,
            documents: false,
            items: Vec::new(),
            whole: None,
        }
    }

    /// Whether every interval is a single value, so that later fields of the key can be bounded as
    /// well.
    pub(crate) fn points(&self) -> bool {
        // Under a collation, different values may compare equal. An interval with one value at both
        // ends is still a point.
        self.intervals.iter().all(|interval| interval.is_point(None))
    }

    /// Whether the condition excludes null. Below an array of scalars, the key is null although no
    /// value is null.
    pub(crate) fn excludes_null(&self) -> bool {
        self.negated && !self.includes_missing
    }

    /// Includes MinKey and MaxKey at open ends: an array of nothing but MinKey or MaxKey values is
    /// neither itself.
    pub(crate) fn with_extremes(mut self) -> Bounds {
        for Interval { low, high } in &mut self.intervals {
            low.inclusive |= matches!(low.value.as_raw(), RawValue::MinKey);
            high.inclusive |= matches!(high.value.as_raw(), RawValue::MaxKey);
        }
        self
    }

    /// Whether the bounds contain all values.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(&self.intervals[..], [Interval { low, high }]
            if matches!(low.value.as_raw(), RawValue::MinKey) && low.inclusive
            && matches!(high.value.as_raw(), RawValue::MaxKey) && high.inclusive)
    }

    /// Whether the bounds can be used on a wildcard field. Its index has no entry for a missing
    /// field, for a whole document, and for positions in arrays.
    pub(crate) fn fit_wildcard(&self) -> bool {
        !self.includes_missing
            && !self.excludes_null()
            && !self.documents
            && !self.is_everything()
            && self.items.is_empty()
    }

    /// Bounds for a value that satisfies all of these conditions; `None` without any.
    ///
    /// They are joined in pairs, and the results in pairs again. One after the other, n conditions
    /// with two intervals each, as of `$ne`, would take n² steps.
    pub(crate) fn all<'b>(
        conditions: impl Iterator<Item = &'b Bounds>,
        collation: Option<&Collation>,
    ) -> Option<Bounds> {
        let mut conditions = conditions.map(Cow::Borrowed);
        let first = conditions.next()?;
        let Some(second) = conditions.next() else { return Some(first.into_owned()) };
        let mut all: Vec<Cow<'b, Bounds>> = [first, second].into_iter().chain(conditions).collect();
        while all.len() > 1 {
            let joined = all.chunks(2).map(|pair| match pair {
                [a, b] => Cow::Owned(a.and(b, collation)),
                _ => pair[0].clone(),
            });
            all = joined.collect();
        }
        all.pop().map(Cow::into_owned)
    }

    /// Bounds for a value that satisfies both conditions.
    fn and(&self, other: &Bounds, collation: Option<&Collation>) -> Bounds {
        Bounds {
            intervals: intersect(&self.intervals, &other.intervals, collation),
            exact: self.exact && other.exact,
            includes_missing: self.includes_missing && other.includes_missing,
            collated: self.collated || other.collated,
            plain: self.plain || other.plain,
            negated: self.negated || other.negated,
            documents: self.documents || other.documents,
            items: self.items.clone(),
            whole: None,
        }
    }
}

//! Reads a filter as intervals of values for each field.
//!
//! The intervals contain at least the values under which an index stores every document that can
//! match: bounds may be wider than the filter, never narrower. A condition is *covered* if its
//! bounds are as narrow as the condition itself; it need not be evaluated again on keys.

use std::borrow::Cow;
use std::collections::HashMap;

use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_value::{Collation, RawValue};

use super::conditions::{bounds_of, outside};
use super::interval::{Interval, intersect, union};

/// A path and a predicate on it.
pub(super) type Condition<'q> = (&'q str, &'q Predicate);

/// Nesting depth of `$or` and `$elemMatch` up to which conditions are read. Deeper ones give no
/// bounds.
const MAX_DEPTH: usize = 16;

/// All bounds that the filter gives for one path.
#[derive(Clone)]
pub(super) struct FieldBounds<'q> {
    pub(super) path: Cow<'q, str>,
    /// One entry for each condition that gives bounds.
    pub(super) conditions: Vec<Bounds>,
    /// The predicates on the path itself, for index kinds whose keys are not in the order of the
    /// values.
    pub(super) predicates: Vec<&'q Predicate>,
}

/// The bounds that one condition gives.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Intervals, ascending and disjoint.
    pub(super) intervals: Vec<Interval>,
    /// Whether the intervals are equivalent to the condition: every value in them satisfies it, and
    /// a missing field does not.
    pub(super) exact: bool,
    /// Whether a document without the field can match.
    pub(super) includes_missing: bool,
    /// Whether the intervals contain strings that are compared under the query's collation.
    pub(super) collated: bool,
    /// Whether the intervals contain strings that are compared by their bytes, whatever the
    /// collation.
    pub(super) plain: bool,
    /// Whether the condition excludes a value. An array that has an allowed value may contain the
    /// excluded one as well.
    pub(super) negated: bool,
    /// Whether the intervals contain non-empty documents.
    pub(super) documents: bool,
    /// Numbers of the enclosing `$elemMatch` conditions. Conditions with equal lists apply to the
    /// same array item.
    pub(super) items: Vec<usize>,
    /// The number of the top-level conjunct that these bounds are equivalent to, if they are.
    pub(super) whole: Option<usize>,
}

impl Bounds {
    pub(super) fn new(intervals: Vec<Interval>) -> Bounds {
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
    pub(super) fn points(&self) -> bool {
        // Under a collation, different values may compare equal. An interval with one value at both
        // ends is still a point.
        self.intervals.iter().all(|interval| interval.is_point(None))
    }

    /// Whether the condition excludes null. Below an array of scalars, the key is null although no
    /// value is null.
    pub(super) fn excludes_null(&self) -> bool {
        self.negated && !self.includes_missing
    }

    /// Includes MinKey and MaxKey at open ends: an array of nothing but MinKey or MaxKey values is
    /// neither itself.
    pub(super) fn with_extremes(mut self) -> Bounds {
        for Interval { low, high } in &mut self.intervals {
            low.inclusive |= matches!(low.value.as_raw(), RawValue::MinKey);
            high.inclusive |= matches!(high.value.as_raw(), RawValue::MaxKey);
        }
        self
    }

    /// Whether the bounds contain all values.
    pub(super) fn is_everything(&self) -> bool {
        matches!(&self.intervals[..], [Interval { low, high }]
            if matches!(low.value.as_raw(), RawValue::MinKey) && low.inclusive
            && matches!(high.value.as_raw(), RawValue::MaxKey) && high.inclusive)
    }

    /// Bounds for a value that satisfies both conditions.
    pub(super) fn and(&self, other: &Bounds, collation: Option<&Collation>) -> Bounds {
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

/// Collects the predicates of the top-level conjunction. Returns false if no document can satisfy
/// it.
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

/// Reads the bounds for each field of a filter, in the order in which the filter names the fields.
pub(super) fn field_bounds<'q>(
    filter: &'q Expr,
    collation: Option<&Collation>,
) -> Vec<FieldBounds<'q>> {
    let mut reader = Reader { fields: Vec::new(), places: HashMap::new(), collation, items: 0 };
    for (at, conjunct) in filter.conjuncts().into_iter().enumerate() {
        reader.read(conjunct, Some(at), &ConditionScope::default());
    }
    reader.fields
}

/// The context of a condition: the `$elemMatch` conditions around it, and its depth.
#[derive(Clone, Default)]
struct ConditionScope {
    /// Path of the array whose items the condition applies to, with a trailing dot.
    prefix: String,
    items: Vec<usize>,
    depth: usize,
}

/// Up to this number of fields, the reader searches linearly; beyond it, it builds a map.
const FEW_FIELDS: usize = 16;

struct Reader<'q, 'c> {
    fields: Vec<FieldBounds<'q>>,
    /// Index in `fields` by path, filled only when there are many fields.
    places: HashMap<Cow<'q, str>, usize>,
    collation: Option<&'c Collation>,
    /// How many `$elemMatch` conditions were read so far.
    items: usize,
}

impl<'q> Reader<'q, '_> {
    fn field(&mut self, path: Cow<'q, str>) -> &mut FieldBounds<'q> {
        let known = match self.fields.len() {
            ..=FEW_FIELDS => self.fields.iter().position(|field| field.path == path),
            _ => self.places.get(&path).copied(),
        };
        let at = known.unwrap_or_else(|| {
            let at = self.fields.len();
            if at == FEW_FIELDS {
                let places = self.fields.iter().enumerate();
                self.places = places.map(|(at, field)| (field.path.clone(), at)).collect();
            }
            if at >= FEW_FIELDS {
                self.places.insert(path.clone(), at);
            }
            let (conditions, predicates) = (Vec::new(), Vec::new());
            self.fields.push(FieldBounds { path, conditions, predicates });
            at
        });
        &mut self.fields[at]
    }

    fn add(
        &mut self,
        path: Cow<'q, str>,
        bounds: Bounds,
        place: &ConditionScope,
        whole: Option<usize>,
    ) {
        let whole = whole.filter(|_| bounds.exact && place.items.is_empty());
        let bounds = Bounds { items: place.items.clone(), whole, ..bounds };
        self.field(path).conditions.push(bounds);
    }

    fn read(&mut self, expr: &'q Expr, whole: Option<usize>, place: &ConditionScope) {
        if place.depth > MAX_DEPTH {
            return;
        }
        match expr {
            Expr::And(parts) => parts.iter().for_each(|part| self.read(part, None, place)),
            Expr::Path { path, predicate } => {
                let path = match place.prefix.is_empty() {
                    true => Cow::Borrowed(path.as_str()),
                    false => Cow::Owned(format!("{}{path}", place.prefix)),
                };
                if place.items.is_empty() {
                    self.field(path.clone()).predicates.push(predicate);
                }
                self.predicate(path, predicate, whole, place);
            }
            Expr::Document(test) if place.items.is_empty() => {
                for (path, implied) in test.implied() {
                    self.field(Cow::Borrowed(path.as_str())).predicates.push(implied);
                    self.predicate(Cow::Borrowed(path.as_str()), implied, None, place);
                }
            }
            Expr::Or(parts) => self.alternatives(parts, whole, place),
            Expr::Nor(parts) => {
                let only = whole.filter(|_| parts.len() == 1);
                for part in parts {
                    if let Expr::Path { path, predicate } = part
                        && let Some(bounds) = outside(predicate, self.collation)
                    {
                        let path = format!("{}{path}", place.prefix);
                        self.add(Cow::Owned(path), bounds, place, only);
                    }
                }
            }
            Expr::Document(_) | Expr::Always(_) => {}
        }
    }

    fn predicate(
        &mut self,
        path: Cow<'q, str>,
        predicate: &'q Predicate,
        whole: Option<usize>,
        place: &ConditionScope,
    ) {
        match predicate {
            Predicate::All(parts) => {
                let only = whole.filter(|_| parts.len() == 1);
                parts.iter().for_each(|part| self.predicate(path.clone(), part, only, place));
            }
            Predicate::ElemMatchValue(parts) => {
                let place = self.inside(place, String::new());
                parts.iter().for_each(|part| self.predicate(path.clone(), part, None, &place));
            }
            Predicate::ElemMatchDocument(inner) => {
                let place = self.inside(place, format!("{path}."));
                self.read(inner, None, &place);
            }
            other => {
                if let Some(bounds) = bounds_of(other, self.collation) {
                    self.add(path, bounds, place, whole);
                }
            }
        }
    }

    /// The context inside one more `$elemMatch`.
    fn inside(&mut self, place: &ConditionScope, prefix: String) -> ConditionScope {
        self.items += 1;
        let mut items = place.items.clone();
        items.push(self.items);
        ConditionScope { prefix, items, depth: place.depth + 1 }
    }

    /// Reads a disjunction: a path gets bounds if every alternative bounds it.
    fn alternatives(&mut self, parts: &'q [Expr], whole: Option<usize>, place: &ConditionScope) {
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            let mut reader = Reader {
                fields: Vec::new(),
                places: HashMap::new(),
                collation: self.collation,
                items: self.items,
            };
            let inner =
                ConditionScope { depth: place.depth + 1, items: Vec::new(), ..place.clone() };
            let conjuncts = part.conjuncts();
            let only = whole.filter(|_| conjuncts.len() == 1);
            conjuncts.into_iter().for_each(|part| reader.read(part, only, &inner));
            self.items = reader.items;
            all.push(reader.fields);
        }
        let Some((first, others)) = all.split_first() else { return };
        for field in first {
            let same = |fields: &'_ Vec<FieldBounds<'q>>| {
                let known = fields.iter().find(|known| known.path == field.path)?;
                known.conditions.first().cloned()
            };
            let others: Option<Vec<Bounds>> = others.iter().map(same).collect();
            let (Some(first), Some(others)) = (field.conditions.first(), others) else { continue };
            let exact = first.whole.is_some() && others.iter().all(|other| other.whole.is_some());
            let mut any = first.clone();
            for other in others {
                any.intervals.extend(other.intervals);
                any.includes_missing |= other.includes_missing;
                any.collated |= other.collated;
                any.plain |= other.plain;
                any.negated |= other.negated;
                any.documents |= other.documents;
            }
            any.intervals = union(any.intervals, self.collation.filter(|_| any.collated));
            any.exact = exact;
            self.add(field.path.clone(), any, place, whole);
        }
    }
}

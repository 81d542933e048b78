//! What a filter says about single fields, as intervals of values.
//!
//! Intervals have at least the values under which an index has every document that can match: bounds may be wider than the filter,
//! never narrower. Where they say no less than a condition does, the condition is covered by them.

use std::borrow::Cow;
use std::collections::HashMap;

use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_value::{Collation, RawValue};

use super::conditions::{bounds_of, outside};
use super::interval::{Interval, intersect, union};

/// One path and a condition on it.
pub(super) type Condition<'q> = (&'q str, &'q Predicate);

/// Alternatives and conditions on items of arrays are looked into so deep.
const MAX_DEPTH: usize = 16;

/// What is known about one path.
#[derive(Clone)]
pub(super) struct FieldBounds<'q> {
    pub(super) path: Cow<'q, str>,
    /// One for each usable condition.
    pub(super) conditions: Vec<Bounds>,
    /// The conditions on the path itself, for kinds of indexes that are not in the order of the values.
    pub(super) predicates: Vec<&'q Predicate>,
}

/// What one condition says.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Ascending and disjoint.
    pub(super) intervals: Vec<Interval>,
    /// They say all that the condition says of a value: it holds for all of them, and for no missing field.
    pub(super) exact: bool,
    /// Whether a document without the field can match.
    pub(super) includes_missing: bool,
    /// Strings are among the values that compare under the query's collation.
    pub(super) collated: bool,
    /// Strings are among the values that are matched as they are written, whatever the collation.
    pub(super) plain: bool,
    /// Some value is asked not to be there: of an array another one may be, too.
    pub(super) negated: bool,
    /// Whether documents with fields are among the values.
    pub(super) documents: bool,
    /// The conditions on items of arrays that it stands in: what stands in the same is about the same item.
    pub(super) items: Vec<usize>,
    /// Which of the filter's outermost conditions it is, if it is all of it.
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

    /// Whether every interval is one value: further fields of the key can be bounded behind it.
    pub(super) fn points(&self) -> bool {
        // Values compared under a collation may be equal without being the same: then they come from one value.
        self.intervals.iter().all(|interval| interval.is_point(None))
    }

    /// Whether null is asked not to be there. Below an array whose items are no documents nothing is null, although the key is.
    pub(super) fn excludes_null(&self) -> bool {
        self.negated && !self.includes_missing
    }

    /// The same with the least and the greatest of all values: an array of nothing else is neither.
    pub(super) fn with_extremes(mut self) -> Bounds {
        for Interval { low, high } in &mut self.intervals {
            low.inclusive |= matches!(low.value.as_raw(), RawValue::MinKey);
            high.inclusive |= matches!(high.value.as_raw(), RawValue::MaxKey);
        }
        self
    }

    /// Whether they bound nothing.
    pub(super) fn is_everything(&self) -> bool {
        matches!(&self.intervals[..], [Interval { low, high }]
            if matches!(low.value.as_raw(), RawValue::MinKey) && low.inclusive
            && matches!(high.value.as_raw(), RawValue::MaxKey) && high.inclusive)
    }

    /// What both say of one value.
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

/// What a filter says about fields, in the order in which it does.
pub(super) fn field_bounds<'q>(
    filter: &'q Expr,
    collation: Option<&Collation>,
) -> Vec<FieldBounds<'q>> {
    let mut reader = Reader { fields: Vec::new(), places: HashMap::new(), collation, items: 0 };
    for (at, conjunct) in filter.conjuncts().into_iter().enumerate() {
        reader.read(conjunct, Some(at), &Place::default());
    }
    reader.fields
}

/// Where a condition stands.
#[derive(Clone, Default)]
struct Place {
    /// The path of the array that it is about items of, with a dot behind it.
    prefix: String,
    items: Vec<usize>,
    depth: usize,
}

/// So many fields are looked through; more get an index.
const FEW_FIELDS: usize = 16;

struct Reader<'q, 'c> {
    fields: Vec<FieldBounds<'q>>,
    /// Where the paths stand, when there are many.
    places: HashMap<Cow<'q, str>, usize>,
    collation: Option<&'c Collation>,
    /// How many conditions on items of arrays there were.
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

    fn add(&mut self, path: Cow<'q, str>, bounds: Bounds, place: &Place, whole: Option<usize>) {
        let whole = whole.filter(|_| bounds.exact && place.items.is_empty());
        let bounds = Bounds { items: place.items.clone(), whole, ..bounds };
        self.field(path).conditions.push(bounds);
    }

    fn read(&mut self, expr: &'q Expr, whole: Option<usize>, place: &Place) {
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
        place: &Place,
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

    /// Inside one more condition on the items of an array.
    fn inside(&mut self, place: &Place, prefix: String) -> Place {
        self.items += 1;
        let mut items = place.items.clone();
        items.push(self.items);
        Place { prefix, items, depth: place.depth + 1 }
    }

    /// One of several holds: a path is bounded when each of them bounds it.
    fn alternatives(&mut self, parts: &'q [Expr], whole: Option<usize>, place: &Place) {
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            let mut reader = Reader {
                fields: Vec::new(),
                places: HashMap::new(),
                collation: self.collation,
                items: self.items,
            };
            let inner = Place { depth: place.depth + 1, items: Vec::new(), ..place.clone() };
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

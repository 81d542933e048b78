//! What a filter says about single fields, as intervals of values.
//!
//! Intervals have at least the values under which an index has every document that can match: bounds may be wider than the filter,
//! never narrower. Where they say no less than a condition does, the condition is covered by them.

use std::borrow::Cow;

use mayfly_mql::matcher::{CmpOp, Expr, Predicate, Regex};
use mayfly_value::{Collation, Number, RawDoc, RawValue, ty};

use super::interval::{End, Interval, complement, intersect, union};

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
    let mut reader = Reader { fields: Vec::new(), collation, items: 0 };
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

struct Reader<'q, 'c> {
    fields: Vec<FieldBounds<'q>>,
    collation: Option<&'c Collation>,
    /// How many conditions on items of arrays there were.
    items: usize,
}

impl<'q> Reader<'q, '_> {
    fn field(&mut self, path: Cow<'q, str>) -> &mut FieldBounds<'q> {
        let at = match self.fields.iter().position(|field| field.path == path) {
            Some(at) => at,
            None => {
                let (conditions, predicates) = (Vec::new(), Vec::new());
                self.fields.push(FieldBounds { path, conditions, predicates });
                self.fields.len() - 1
            }
        };
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
            let mut reader =
                Reader { fields: Vec::new(), collation: self.collation, items: self.items };
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

pub(super) fn is_nan(value: RawValue<'_>) -> bool {
    Number::from_value(value).is_some_and(Number::is_nan)
}

/// Whether a value is found under its own key, and nothing else is that does not equal it.
fn has_own_key(value: RawValue<'_>) -> bool {
    !matches!(
        value,
        RawValue::Null
            | RawValue::Undefined
            | RawValue::Array(_)
            | RawValue::Document(_)
            | RawValue::Regex { .. }
            | RawValue::MinKey
            | RawValue::MaxKey
    ) && !is_nan(value)
}

fn has_fields(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Document(inner) if !inner.is_empty())
}

/// What a condition on the values of a path says.
fn bounds_of(predicate: &Predicate, collation: Option<&Collation>) -> Option<Bounds> {
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
        // As what it is, an empty array, a wildcard does not keep it.
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

/// Equality with one of these values.
fn equal(values: &[RawValue<'_>], collation: Option<&Collation>) -> Option<Bounds> {
    let mut intervals = Vec::with_capacity(values.len());
    for value in values {
        match value {
            // Kept as they are in arrays only; as a condition they mean something else.
            RawValue::Undefined | RawValue::Regex { .. } => return None,
            // An empty array is kept as undefined, and a path below it counts as null.
            RawValue::Null => {
                intervals.extend([RawValue::Undefined, RawValue::Null].map(Interval::point));
            }
            // Its items have the keys, unless it is an item itself.
            RawValue::Array(items) => {
                let first = items.iter().next().map_or(RawValue::Undefined, |item| item.value());
                // Of an array inside of the array the items have no keys.
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

/// An order comparison.
fn compared(op: CmpOp, value: RawValue<'_>) -> Option<Bounds> {
    let end = |inclusive| End::new(value, inclusive);
    let Interval { low, high } = match (op, value) {
        // Equal to nothing but itself, and to what is missing.
        (CmpOp::Lte | CmpOp::Gte, RawValue::Null) => return equal(&[value], None),
        (_, RawValue::MinKey | RawValue::MaxKey) => {
            let all = Interval::all();
            let interval = match op {
                CmpOp::Lt => Interval::new(all.low, end(false)),
                CmpOp::Lte => Interval::new(all.low, end(true)),
                CmpOp::Gt => Interval::new(end(false), all.high),
                CmpOp::Gte | CmpOp::Eq => Interval::new(end(true), all.high),
            };
            let all = Bounds::new(vec![interval]);
            return Some(Bounds { includes_missing: true, documents: true, ..all });
        }
        // What NaN compares with is no range of numbers, and the items of an array have the keys.
        (_, value) if is_nan(value) || matches!(value, RawValue::Array(_)) => return None,
        (_, value) => Interval::of_type(value)?,
    };
    let interval = match op {
        CmpOp::Lt => Interval::new(low, end(false)),
        CmpOp::Lte => Interval::new(low, end(true)),
        CmpOp::Gt => Interval::new(end(false), high),
        CmpOp::Gte => Interval::new(end(true), high),
        CmpOp::Eq => Interval::new(end(true), end(true)),
    };
    Some(Bounds {
        exact: has_own_key(value),
        collated: Collation::concerns(value),
        documents: matches!(value, RawValue::Document(_)),
        ..Bounds::new(vec![interval])
    })
}

/// A pattern: the strings that begin as it does, and the pattern itself as a value.
fn matching(regex: &Regex) -> Bounds {
    let strings = Interval::of_type(RawValue::String(""));
    let prefix = regex.literal_prefix();
    let begins = |prefix: &str| {
        let next = RawValue::Document(RawDoc::EMPTY);
        let behind = behind(prefix);
        let next = behind.as_deref().map_or(next, RawValue::String);
        Interval::new(End::new(RawValue::String(prefix), true), End::new(next, false))
    };
    let strings = prefix.map(begins).or(strings);
    let pattern = RawValue::Regex { pattern: regex.pattern(), options: regex.options() };
    let intervals = strings.into_iter().chain([Interval::point(pattern)]).collect();
    let exact = prefix.is_some_and(|prefix| regex.pattern().len() == prefix.len() + 1);
    Bounds { exact, plain: true, ..Bounds::new(intervals) }
}

/// The least string behind all that begin so.
fn behind(prefix: &str) -> Option<String> {
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

/// Values of these types.
fn of_types(has: impl Fn(u8) -> bool) -> Option<Bounds> {
    // What an array is kept as its items say, and those may be anything.
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
        let end = |number| End::new(RawValue::Double(number), true);
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

/// What a condition says that does not hold: a value may be outside of what it asks for, of any type, or missing.
fn outside(inner: &Predicate, collation: Option<&Collation>) -> Option<Bounds> {
    let inside = match inner {
        Predicate::All(parts) => match parts.as_slice() {
            [only] => return outside(only, collation),
            _ => return None,
        },
        // Missing or null: both have the key of null, and so does what lies below an empty array.
        Predicate::Exists => {
            let none = [RawValue::Undefined, RawValue::Null].map(Interval::point);
            let bounds = Bounds::new(none.to_vec());
            return Some(Bounds { includes_missing: true, negated: true, ..bounds });
        }
        Predicate::Cmp { op: CmpOp::Eq, value, .. } => excluded(&[value.as_raw()], collation),
        Predicate::Cmp { op, value, .. } => {
            let inside = compared(*op, value.as_raw())?;
            if inside.includes_missing {
                return None;
            }
            inside
        }
        Predicate::In(list) if list.regexes().is_empty() => {
            let all: Vec<RawValue<'_>> = list.values().iter().map(|v| v.as_raw()).collect();
            excluded(&all, collation)
        }
        _ => return None,
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
        // A null may be a missing field, and more.
        exact: inside.exact && !null,
        ..Bounds::new(around)
    })
}

/// The values that a document cannot have under a key when it has none of these.
fn excluded(values: &[RawValue<'_>], collation: Option<&Collation>) -> Bounds {
    // An array is kept as its items, which others may have, too.
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

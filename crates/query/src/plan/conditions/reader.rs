//! Reads a filter as bounds for each path: which conditions there are, and how they combine.

use std::borrow::Cow;
use std::collections::HashMap;

use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_value::Collation;
use mayfly_value::paths::array_index;

use super::operators::{bounds_of, outside};
use crate::plan::types::bounds::{Bounds, Condition, FieldBounds};
use crate::plan::types::interval::union;

/// Nesting depth of `$or` and `$elemMatch` up to which conditions are read. Deeper ones give no
/// bounds.
const MAX_DEPTH: usize = 16;

/// Collects the predicates of the top-level conjunction. Returns false if no document can satisfy
/// it.
pub(crate) fn conjuncts<'q>(expr: &'q Expr, out: &mut Vec<Condition<'q>>) -> bool {
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

/// Whether a path goes through a position of an array.
fn has_position(path: &str) -> bool {
    path.split('.').skip(1).any(|part| array_index(part).is_some())
}

/// Reads the bounds for each field of a filter, in the order in which the filter names the fields.
pub(crate) fn field_bounds<'q>(
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
            // The key of an item at a position is the item as it is, also an array.
            Predicate::ElemMatchValue(_) | Predicate::Size(_) if has_position(&path) => {}
            Predicate::ElemMatchValue(parts) => {
                let place = self.inside(place, String::new());
                parts.iter().for_each(|part| self.predicate(path.clone(), part, None, &place));
            }
            Predicate::ElemMatchDocument(inner) => {
                let place = self.inside(place, format!("{path}."));
                self.read(inner, None, &place);
            }
            other => match bounds_of(other, self.collation) {
                // An array's document without a field of the position's name counts as missing in
                // a filter, but has no key of its own.
                Some(bounds) if has_position(&path) && bounds.includes_missing => {}
                Some(bounds) if has_position(&path) => {
                    self.add(path, Bounds { exact: false, ..bounds }, place, whole);
                }
                Some(bounds) => self.add(path, bounds, place, whole),
                None => {}
            },
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

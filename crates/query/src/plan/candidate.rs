//! A candidate: an index together with what it can do for a query, which documents it contains and
//! which of its fields the filter bounds.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::hashed::HashedIndex;
use mayfly_storage::kinds::wildcard::Wildcard;
use mayfly_storage::{Index, IndexField, KeyRange};
use mayfly_value::{Collation, same_collation};

use super::bounds::{Bounds, FieldBounds};
use super::implication::implies;
use super::interval::ranges;
use super::{geo, hashed, wildcards};
use crate::language::CanonicalQuery;
use crate::language::partial::filter_of;

/// Whether the index contains all documents that the query can match. A partial index lacks those
/// outside its filter.
pub(super) fn has_all_of(index: &Index, query: &CanonicalQuery) -> bool {
    match index.filter() {
        None => true,
        Some(filter) => {
            filter_of(filter).is_some_and(|filter| implies(query.matcher.root(), filter))
        }
    }
}

/// An index as a plan may use it. A wildcard index gives one candidate for each path of the filter.
pub(super) struct Candidate<'a> {
    pub(super) index: &'a Arc<Index>,
    /// The fields of its entries, with a path of the filter in place of a wildcard.
    pub(super) fields: Cow<'a, [IndexField]>,
    /// Whether one document may have several entries in the scan even without arrays.
    pub(super) repeats: bool,
    /// Bit set of the fields that contain arrays, read once: the index may become multikey while
    /// the query is planned.
    pub(super) multikey: u32,
}

/// The candidates that an index gives for these bounds.
pub(super) fn candidates<'a>(
    index: &'a Arc<Index>,
    bounds: &[FieldBounds<'_>],
) -> Vec<Candidate<'a>> {
    let as_it_is = || Candidate::of(index, Cow::Borrowed(index.spec.fields()));
    let kind = index.spec.kind();
    if let Some(wildcard) = kind.get::<Wildcard>() {
        return wildcards::candidates(index, wildcard, bounds);
    }
    // Indexes of other kinds serve only their own operators.
    match kind.is_ordered() || kind.is::<HashedIndex>() || geo::serves(index, bounds) {
        true => vec![as_it_is()],
        false => Vec::new(),
    }
}

impl<'a> Candidate<'a> {
    /// An index with these fields.
    pub(super) fn of(index: &'a Arc<Index>, fields: Cow<'a, [IndexField]>) -> Candidate<'a> {
        Candidate { index, fields, repeats: false, multikey: index.multikey_mask() }
    }
}

impl Candidate<'_> {
    /// Whether the index contains all documents that the conditions can match. A sparse index lacks
    /// documents without its fields.
    pub(super) fn has_all_of_paths(&self, bounds: &[FieldBounds<'_>]) -> bool {
        // A geo index is a candidate only if its documents are all that can match.
        !self.index.spec.sparse()
            || geo::is_geo(self.index)
            || self.fields.iter().any(|field| {
                bounds.iter().any(|known| {
                    known.path == field.path
                        && known.conditions.iter().any(|known| {
                            let scalars = known.excludes_null() && field.parts.len() > 1;
                            !known.includes_missing && !scalars
                        })
                })
            })
    }

    /// Bounds for the field at index `at` of an entry; `None` if no condition can be used there.
    pub(super) fn bounds_of(
        &self,
        at: usize,
        bounds: &[FieldBounds<'_>],
        comparison: Comparison,
    ) -> Option<Bounded> {
        let field = &self.fields[at];
        let known = |path: &str| bounds.iter().find(|known| known.path == path);
        let inexact = |bounds| Bounded { bounds, covered: Vec::new() };
        match field.kind {
            FieldKind::Ordered | FieldKind::Wildcard => {
                self.together(at, bounds, known(&field.path)?, comparison)
            }
            FieldKind::Path => {
                let wildcard = self.fields.get(at + 1)?;
                Some(inexact(wildcards::path_bounds(&wildcard.path, known(&wildcard.path)?)))
            }
            FieldKind::Hashed => {
                let collation = self.index.spec.collation().map(|collation| &**collation);
                hashed::bounds(known(&field.path)?, collation, comparison).map(inexact)
            }
            FieldKind::Sphere | FieldKind::Plane => {
                geo::bounds(self.index, known(&field.path)?).map(inexact)
            }
            FieldKind::Text => None,
        }
    }

    /// Combines all conditions that one value of a document must satisfy at once.
    fn together(
        &self,
        at: usize,
        bounds: &[FieldBounds<'_>],
        known: &FieldBounds<'_>,
        comparison: Comparison,
    ) -> Option<Bounded> {
        let field = &self.fields[at];
        let collation = self.index.spec.collation().map(|collation| &**collation);
        let multikey = self.multikey & (1 << at) != 0;
        let below_array = multikey && field.parts.len() > 1;
        let usable = |condition: &&Bounds| {
            (comparison.is_same() || !condition.collated)
                && !(below_array && condition.excludes_null())
                && (collation.is_none() || !condition.plain)
                && (field.kind == FieldKind::Ordered || wildcards::serves(condition))
        };
        let usable = || known.conditions.iter().filter(usable);
        if !multikey {
            let covered = usable().filter_map(|condition| condition.whole).collect();
            let all = usable().cloned().reduce(|all, next| all.and(&next, collation))?;
            return Some(Bounded { bounds: all, covered });
        }
        // A key combines values of one array item. Different conditions may hold for different
        // items, unless they are in the same `$elemMatch`.
        let sharing = self.fields[..at].iter().position(|it| it.parts[0] == field.parts[0]);
        let items = match sharing {
            None => None,
            Some(before) => {
                let before = self.bounds_of(before, bounds, comparison)?.bounds.items;
                if before.is_empty() {
                    return None;
                }
                Some(before)
            }
        };
        let fits = |condition: &&Bounds| items.as_ref().is_none_or(|it| *it == condition.items);
        let points = usable().filter(fits).find(|condition| condition.points());
        let narrow = || usable().filter(fits).find(|condition| !condition.is_everything());
        let chosen = points.or_else(narrow).or_else(|| usable().find(fits))?;
        if chosen.items.is_empty() {
            let covered = chosen.whole.filter(|_| !chosen.negated).into_iter().collect();
            return Some(Bounded { bounds: chosen.clone().with_extremes(), covered });
        }
        let same = usable().filter(|condition| condition.items == chosen.items);
        let bounds = same.cloned().reduce(|all, next| all.and(&next, collation))?;
        Some(Bounded { bounds: bounds.with_extremes(), covered: Vec::new() })
    }
}

/// Whether an index compares strings as the query does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Both have the same collation, or none.
    Same,
    /// The collations differ, so the index serves only conditions that no collation affects.
    Other,
}

impl Comparison {
    /// The comparison of an index, or of clustered records, with this collation.
    pub(super) fn of(own: Option<&Arc<Collation>>, query: &CanonicalQuery) -> Comparison {
        match same_collation(own, query.collation.as_ref()) {
            true => Comparison::Same,
            false => Comparison::Other,
        }
    }

    pub(super) fn is_same(self) -> bool {
        self == Comparison::Same
    }
}

/// Bounds for a field of an index.
pub(super) struct Bounded {
    pub(super) bounds: Bounds,
    /// The top-level conjuncts that the bounds are equivalent to.
    pub(super) covered: Vec<usize>,
}

impl Bounded {
    /// The bounds as key ranges of an index field.
    pub(super) fn ranges(&self, field: &IndexField, index: &Index) -> Vec<KeyRange> {
        // Hashes, paths and cells are stored without the collation.
        let collation = index.spec.collation().filter(|_| field.kind.holds_values());
        ranges(&self.bounds.intervals, field.order, collation.map(|collation| &**collation))
    }
}

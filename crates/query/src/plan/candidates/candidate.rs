//! Which indexes contain all documents that a query can match, and which bounds the filter gives
//! for their fields.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_storage::Index;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::hashed::HashedIndex;
use mayfly_storage::kinds::wildcard::Wildcard;

use super::{geo, hashed, wildcards};
use crate::plan::types::bounds::{Bounds, FieldBounds};
use crate::plan::types::candidate::{Bounded, Candidate, CollationMatch};

/// The candidates that an index gives for these bounds.
pub(crate) fn candidates<'a>(
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

impl Candidate<'_> {
    /// Whether the index contains all documents that the conditions can match. A sparse index lacks
    /// documents without its fields.
    pub(crate) fn has_all_of_paths(&self, bounds: &[FieldBounds<'_>]) -> bool {
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
    pub(crate) fn bounds_of(
        &self,
        at: usize,
        bounds: &[FieldBounds<'_>],
        collations: CollationMatch,
    ) -> Option<Bounded> {
        let field = &self.fields[at];
        let known = |path: &str| bounds.iter().find(|known| known.path == path);
        let inexact = |bounds| Bounded { bounds, covered: Vec::new() };
        match field.kind {
            FieldKind::Ordered | FieldKind::Wildcard => {
                self.together(at, bounds, known(&field.path)?, collations)
            }
            FieldKind::Path => {
                let wildcard = self.fields.get(at + 1)?;
                Some(inexact(wildcards::path_bounds(&wildcard.path, known(&wildcard.path)?)))
            }
            FieldKind::Hashed => {
                let collation = self.index.spec.collation().map(|collation| &**collation);
                hashed::bounds(known(&field.path)?, collation, collations).map(inexact)
            }
            FieldKind::Sphere | FieldKind::Plane => {
                geo::bounds(self.index, known(&field.path)?).map(inexact)
            }
            FieldKind::Text | FieldKind::LogFed => None,
        }
    }

    /// Combines all conditions that one value of a document must satisfy at once.
    fn together(
        &self,
        at: usize,
        bounds: &[FieldBounds<'_>],
        known: &FieldBounds<'_>,
        collations: CollationMatch,
    ) -> Option<Bounded> {
        let field = &self.fields[at];
        let collation = self.index.spec.collation().map(|collation| &**collation);
        let multikey = self.multikey & (1 << at) != 0;
        let below_array = multikey && field.parts.len() > 1;
        let usable = |condition: &&Bounds| {
            (collations.is_same() || !condition.collated)
                && !(below_array && condition.excludes_null())
                && (collation.is_none() || !condition.plain)
                && (field.kind == FieldKind::Ordered || condition.fit_wildcard())
        };
        let usable = || known.conditions.iter().filter(usable);
        if !multikey {
            let covered = usable().filter_map(|condition| condition.whole).collect();
            let all = Bounds::all(usable(), collation)?;
            return Some(Bounded { bounds: all, covered });
        }
        // A key combines values of one array item. Different conditions may hold for different
        // items, unless they are in the same `$elemMatch`.
        let sharing = self.fields[..at].iter().position(|it| it.parts[0] == field.parts[0]);
        let items = match sharing {
            None => None,
            Some(before) => {
                let before = self.bounds_of(before, bounds, collations)?.bounds.items;
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
        let bounds = Bounds::all(same, collation)?;
        Some(Bounded { bounds: bounds.with_extremes(), covered: Vec::new() })
    }
}

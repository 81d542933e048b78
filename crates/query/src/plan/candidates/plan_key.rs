//! The key of the plan cache: the shape of a query, its expressions, the indexes that it may use,
//! and for each index whether its values allow the index. Queries of one shape can differ in the
//! last: `{a: 1}` may use a partial index over `{a: {$gt: 0}}`, `{a: -1}` may not; `{a: null}`
//! needs documents that a sparse index lacks; a string cannot be looked up under another
//! collation.

use mayfly_mql::matcher::{Expr, InList, Predicate};
use mayfly_storage::{Collection, Index};
use mayfly_value::{Collation, RawValue, same_collation};

use super::restriction::{allows, has_all_of, restricted};
use crate::language::CanonicalQuery;
use crate::language::shape::{Hasher, PlanShape, expressions};
use crate::plan::types::plan_key::PlanKey;

impl PlanKey {
    /// The key for a query of this shape. Without a collection only the shape counts.
    pub fn of(shape: PlanShape, query: &CanonicalQuery, collection: Option<&Collection>) -> Self {
        let mut hash = Hasher::seeded(shape.bits());
        hash.number(expressions(query.matcher.root()));
        let Some(collection) = collection else { return PlanKey(hash.finish()) };
        let query = &*restricted(collection, query);
        let mut types = false;
        for index in collection.plannable_indexes(query.indexes) {
            if index.spec.hidden() || !allows(query, &index) {
                continue;
            }
            hash.number(index.id()).number(u64::from(has_all_of(&index, query)));
            types |= asks_for_types(&index, query);
        }
        if types {
            hash.number(types_in(query.matcher.root()));
        }
        PlanKey(hash.finish())
    }
}

/// Whether the types of values decide if the index can be used.
fn asks_for_types(index: &Index, query: &CanonicalQuery) -> bool {
    let spec = &index.spec;
    spec.sparse()
        || !spec.kind().is_ordered()
        || !same_collation(spec.collation(), query.collation.as_ref())
}

/// Hashes which conditions compare with values of special types, independently of the order of
/// conditions.
fn types_in(expr: &Expr) -> u64 {
    match expr {
        Expr::And(parts) => parts.iter().map(types_in).fold(0, u64::wrapping_add),
        Expr::Or(parts) | Expr::Nor(parts) => {
            let one = |part: &Expr| Hasher::seeded(1).number(types_in(part)).finish();
            parts.iter().map(one).fold(0, u64::wrapping_add)
        }
        Expr::Path { path, predicate } => match types_of(predicate) {
            0 => 0,
            types => Hasher::seeded(u64::from(types)).text(path.as_str()).finish(),
        },
        Expr::Document(_) | Expr::Always(_) => 0,
    }
}

const MISSING: u8 = 1;

const COLLATED: u8 = 2;

const ARRAY: u8 = 4;

const EXTREME: u8 = 8;

fn types_of(predicate: &Predicate) -> u8 {
    match predicate {
        Predicate::Cmp { value, .. } => type_of(value.as_raw()),
        Predicate::In(list) => types_of_list(list),
        Predicate::ElemMatchValue(parts) | Predicate::All(parts) => {
            parts.iter().fold(0, |types, part| types | types_of(part))
        }
        Predicate::Not(inner) => types_of(inner),
        Predicate::ElemMatchDocument(inner) => match types_in(inner) {
            0 => 0,
            _ => MISSING | COLLATED,
        },
        Predicate::Exists
        | Predicate::Type(..)
        | Predicate::Mod { .. }
        | Predicate::Regex(_)
        | Predicate::Bits(..)
        | Predicate::Geo(..)
        | Predicate::Size(_) => 0,
    }
}

fn types_of_list(list: &InList) -> u8 {
    list.values().iter().fold(0, |types, value| types | type_of(value.as_raw()))
}

fn type_of(value: RawValue<'_>) -> u8 {
    let collated = if Collation::concerns(value) { COLLATED } else { 0 };
    collated
        | match value {
            RawValue::Null | RawValue::Undefined => MISSING,
            RawValue::Array(_) | RawValue::Document(_) => ARRAY,
            RawValue::MinKey | RawValue::MaxKey => EXTREME,
            _ => 0,
        }
}

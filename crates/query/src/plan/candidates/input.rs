//! What the planner reads of a query before it decides: bounds, the search by distance, and the
//! indexes that can serve the query. Each is read once.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_mql::matcher::{GeoTest, NearSearch, Predicate};
use mayfly_storage::{Collection, Index};

use super::restriction::{allows_id, usable_indexes};
use crate::language::CanonicalQuery;
use crate::plan::conditions::reader::{conjuncts, field_bounds};
use crate::plan::types::bounds::FieldBounds;

/// A query as the planner reads it.
pub(crate) struct PlanInput<'q> {
    pub(crate) collection: &'q Arc<Collection>,
    pub(crate) query: &'q CanonicalQuery,
    /// Bounds for each path of the filter.
    pub(crate) bounds: Vec<FieldBounds<'q>>,
    /// The search by distance among the conditions, and its path.
    pub(crate) near: Option<(&'q str, NearSearch)>,
    /// Whether any document can match the filter.
    pub(crate) satisfiable: bool,
    /// The indexes that the query may use and that contain all documents that it can match.
    pub(crate) indexes: Vec<Arc<Index>>,
    /// The path whose order the records have, if the query may use this order.
    pub(crate) clustered_by: Option<Cow<'static, str>>,
}

impl<'q> PlanInput<'q> {
    /// Reads a query.
    pub(crate) fn of(collection: &'q Arc<Collection>, query: &'q CanonicalQuery) -> PlanInput<'q> {
        let filter = query.matcher.root();
        let mut predicates = Vec::new();
        let satisfiable = conjuncts(filter, &mut predicates);
        let near = predicates.into_iter().find_map(|(path, predicate)| match predicate {
            Predicate::Geo(test, _) => match &**test {
                GeoTest::Near(near) => Some((path, *near)),
                GeoTest::Within(_) | GeoTest::Intersects(_) => None,
            },
            _ => None,
        });
        PlanInput {
            collection,
            query,
            bounds: field_bounds(filter, query.collation.as_deref()),
            near,
            satisfiable,
            indexes: usable_indexes(collection, query),
            clustered_by: collection.clustered_by().filter(|_| allows_id(collection, query)),
        }
    }
}

//! Tests of plan cache keys over collections with indexes.

use std::sync::Arc;

use mayfly_base::Namespace;
use mayfly_storage::Collection;
use mayfly_value::extjson::parse_document;

use crate::fixture::Fixture;
use crate::language::{CanonicalQuery, FindOptions, Hint, PlanShape};
use crate::plan::types::index_filters::{IndexFilter, IndexFilters};
use crate::plan::types::plan_key::PlanKey;
use crate::{AllowedBy, AllowedIndexes};

fn query(filter: &str) -> CanonicalQuery {
    let filter = parse_document(filter).unwrap();
    CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap()
}

fn key(collection: &Collection, filter: &str) -> PlanKey {
    let query = query(filter);
    PlanKey::of(PlanShape::of(&query), &query, Some(collection))
}

fn with_index(definition: &str) -> (Fixture, Arc<Collection>) {
    let fixture = Fixture::new();
    fixture.insert("c", &[parse_document("{_id: 1}").unwrap()]);
    fixture.index("c", parse_document(definition).unwrap().as_doc());
    let collection = fixture.collection(&Namespace::new("test", "c").unwrap());
    (fixture, collection)
}

#[test]
fn values_count_where_an_index_asks_for_them() {
    let (_fixture, plain) = with_index("{key: {a: 1}, name: 'a_1'}");
    assert_eq!(key(&plain, "{a: 1}"), key(&plain, "{a: null}"));
    assert_eq!(key(&plain, "{a: 1}"), key(&plain, "{a: 'x'}"));
    let (_fixture, sparse) = with_index("{key: {a: 1}, name: 'a_1', sparse: true}");
    assert_eq!(key(&sparse, "{a: 1}"), key(&sparse, "{a: 2}"));
    assert_ne!(key(&sparse, "{a: 1}"), key(&sparse, "{a: null}"));
    assert_ne!(key(&sparse, "{a: {$in: [1, 2]}}"), key(&sparse, "{a: {$in: [1, null]}}"));
    let (_fixture, partial) =
        with_index("{key: {a: 1}, name: 'a_1', partialFilterExpression: {a: {$gt: 5}}}");
    assert_eq!(key(&partial, "{a: 6}"), key(&partial, "{a: 7}"));
    assert_ne!(key(&partial, "{a: 6}"), key(&partial, "{a: 1}"));
    let (_fixture, collated) = with_index("{key: {a: 1}, name: 'a_1', collation: {locale: 'en'}}");
    assert_ne!(key(&collated, "{a: 1}"), key(&collated, "{a: 'x'}"));
}

/// Expressions belong to no shape, but they decide which indexes serve a query.
#[test]
fn expressions_count() {
    let (_fixture, plain) = with_index("{key: {a: 1}, name: 'a_1'}");
    let [one, other] = ["{$expr: {$eq: ['$a', 1]}}", "{$expr: {$eq: ['$b', 1]}}"];
    assert_ne!(key(&plain, one), key(&plain, other));
    assert_eq!(PlanShape::of(&query(one)), PlanShape::of(&query(other)));
}

#[test]
fn indexes_count() {
    let (fixture, collection) = with_index("{key: {a: 1}, name: 'a_1'}");
    let before = key(&collection, "{a: 1}");
    fixture.index("c", parse_document("{key: {b: 1}, name: 'b_1'}").unwrap().as_doc());
    let two = key(&collection, "{a: 1}");
    assert_ne!(before, two);
    let mut allowed = AllowedIndexes::none(AllowedBy::IndexFilter);
    allowed.allow(Hint::Name("b_1".to_owned()));
    let filter = IndexFilter {
        query: parse_document("{a: 9}").unwrap(),
        sort: mayfly_value::DocBuf::empty(),
        projection: mayfly_value::DocBuf::empty(),
        collation: mayfly_value::DocBuf::empty(),
        allowed: Arc::new(allowed),
    };
    IndexFilters::set(&collection, PlanShape::of(&query("{a: 9}")), filter).unwrap();
    assert_ne!(two, key(&collection, "{a: 1}"));
    assert_eq!(key(&collection, "{b: 1}"), key(&collection, "{b: 2}"));
    IndexFilters::clear(&collection);
    assert_eq!(two, key(&collection, "{a: 1}"));
}

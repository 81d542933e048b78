//! Queries that are refused. The texts of required, wrong and unknown fields are the reference's;
//! the bounds are those of the manual's page "$vectorSearch".

use mayfly_base::ErrorCode;
use mayfly_value::DocBuf;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};
use proptest::prelude::*;

use super::*;
use crate::IndexKind;

fn definition() -> Definition {
    let document = doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine"},
        {"type": "vector", "path": "w", "numDimensions": 8, "similarity": "euclidean"},
        {"type": "filter", "path": "a"}, {"type": "filter", "path": "b.c"},
    ]};
    Definition::parse(DocBuf::from_bson(&document).as_doc(), IndexKind::VectorSearch).unwrap()
}

fn stage(changes: Document) -> Document {
    let mut stage = doc! {"index": "x", "path": "v", "queryVector": [1, 2.5], "limit": 3,
    "numCandidates": 10};
    for (name, value) in changes {
        match value {
            Bson::Undefined => stage.remove(name),
            value => stage.insert(name, value),
        };
    }
    stage
}

fn parse(changes: Document) -> Result<Query> {
    Query::parse_vector_search(DocBuf::from_bson(&stage(changes)).as_doc(), &definition())
}

fn candidates(query: &Query) -> Option<usize> {
    match &query.kind {
        Kind::Vector(vector) => vector.candidates,
        Kind::Search(_) => None,
    }
}

#[track_caller]
fn refuses(changes: Document, text: &str) {
    let error = parse(changes).expect_err(text);
    assert_eq!((error.code(), error.message()), (ErrorCode::UnknownError, text));
}

#[test]
fn unknown_fields_are_ignored() {
    let query = parse(doc! {"extra": 1, "filter": {}, "searchNodePreference": "zone",
    "explainOptions": {"traceDocumentIds": [1]}})
    .unwrap();
    assert_eq!((query.limit(), query.returns_stored_source()), (Some(3), false));
    assert_eq!(query.index_name(), Some("x"));
    assert_eq!(candidates(&query), Some(10));
    let exact =
        parse(doc! {"exact": true, "numCandidates": Bson::Undefined, "limit": 3.0}).unwrap();
    assert_eq!(candidates(&exact), None);
}

#[test]
fn bad_options_are_refused() {
    refuses(doc! {"path": Bson::Undefined}, "\"path\" is required");
    refuses(doc! {"path": 1}, "\"path\" must be a string");
    refuses(doc! {"path": "z"}, "z is not indexed as vector");
    refuses(doc! {"path": "a"}, "a is not indexed as vector");
    refuses(doc! {"index": ""}, "\"index\" cannot be empty");
    refuses(doc! {"limit": Bson::Undefined}, "\"limit\" is required");
    refuses(doc! {"limit": 0}, "\"limit\" must be positive");
    refuses(doc! {"limit": 11}, "limit should be less than or equal to numCandidates");
    refuses(doc! {"limit": 1.5}, "\"limit\" must be an integer");
    refuses(doc! {"numCandidates": 10_001}, "\"numCandidates\" must be within bounds [1..10000]");
    refuses(
        doc! {"numCandidates": Bson::Undefined},
        "numCandidates is required for approximate vector search",
    );
    refuses(doc! {"exact": true}, "numCandidates must be omitted for exact vector search");
    refuses(doc! {"exact": 1}, "\"exact\" must be a boolean");
    refuses(
        doc! {"query": "text"},
        "\"query\" a query that is embedded automatically is not supported by this server",
    );
    refuses(
        doc! {"parentFilter": {"a": 1}},
        "\"parentFilter\" a filter of parent documents is not supported by this server",
    );
    refuses(doc! {"returnStoredSource": true}, "storedSource is not configured for this index");
    refuses(doc! {"explainOptions": {"x": 1}}, "\"explainOptions\" unrecognized field \"x\"");
}

#[test]
fn bad_vectors_are_refused() {
    refuses(
        doc! {"queryVector": Bson::Undefined},
        "Exactly one and only one of query and queryVector can be present",
    );
    refuses(
        doc! {"queryVector": "x"},
        "\"queryVector\" must be an array of numbers or a BinData vector",
    );
    refuses(doc! {"queryVector": []}, "\"queryVector\" cannot be empty");
    refuses(doc! {"queryVector": [1, "x"]}, "\"queryVector[1]\" must be a number, not string");
    refuses(doc! {"queryVector": [1, f64::INFINITY]}, "\"queryVector[1]\" non-finite value");
    refuses(
        doc! {"queryVector": [1, 2, 3]},
        "vector field is indexed with 2 dimensions but queried with 3",
    );
    refuses(doc! {"queryVector": vec![1.0; 8193]}, "\"queryVector\" has more than 8192 dimensions");
    refuses(
        doc! {"queryVector": [0, -0.0]},
        "Cosine similarity cannot be calculated against a zero vector.",
    );
    let vector = |bytes: &[u8]| Binary { subtype: BinarySubtype::Vector, bytes: bytes.to_vec() };
    refuses(
        doc! {"queryVector": vector(&[9, 0, 1])},
        "\"queryVector\" must be a BinData vector of float32, int8 or packed bit without padding",
    );
    assert!(parse(doc! {"path": "w", "queryVector": vector(&[0x10, 0, 7])}).is_ok());
}

#[test]
fn bad_filters_are_refused() {
    let refuses = |filter: Document, text| refuses(doc! {"filter": filter}, text);
    refuses(doc! {"z": 1}, "Path 'z' needs to be indexed as filter");
    refuses(doc! {"$where": 1}, "\"filter\" unrecognized operator \"$where\"");
    refuses(doc! {"$and": []}, "\"filter.$and\" cannot be empty");
    refuses(doc! {"$or": [1]}, "\"filter.$or[0]\" must be a document");
    refuses(doc! {"a": {"$in": []}}, "\"filter.a.$in\" cannot be empty");
    refuses(doc! {"a": {"$in": 1}}, "\"filter.a.$in\" must be an array");
    refuses(doc! {"a": {"$exists": 1}}, "\"filter.a.$exists\" must be a boolean");
    refuses(
        doc! {"a": {"$gt": Bson::Null}},
        "\"filter.a.$gt\" must be a boolean, date, number, objectId, string or UUID",
    );
    refuses(
        doc! {"b.c": {"$in": [1, [2]]}},
        "\"filter.b.c.$in[1]\" must be a boolean, date, number, objectId, string, UUID or null",
    );
    refuses(
        doc! {"a": {"$not": {"$size": 1}}},
        "\"filter.a.$not.$size\" is not one of the operators \
         [$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $not]",
    );
    refuses(
        doc! {"a": {"$not": {}}},
        "\"filter.a.$not\" at least one of \
         [$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $not] must be present",
    );
    let many: Vec<i32> = (0..2_000).collect();
    refuses(doc! {"a": {"$in": many}}, "\"filter.a.$in\" is one of more than 1024 clauses");
    let mut deep = doc! {"a": 1};
    for _ in 0..90 {
        deep = doc! {"$and": [deep]};
    }
    let error = parse(doc! {"filter": deep}).unwrap_err();
    assert!(error.message().ends_with("is nested more than 64 levels deep"), "{error:?}");
}

proptest! {
    #[test]
    fn no_stage_makes_the_parser_panic(document in mayfly_value::arbitrary::any_document()) {
        let _ = Query::parse_vector_search(document.as_doc(), &definition());
        let stage = DocBuf::from_bson(&stage(doc! {"filter": Bson::Undefined}));
        let mut builder = mayfly_value::DocBuilder::new();
        builder.append_all(stage.as_doc()).append("filter", document.as_doc());
        let _ = Query::parse_vector_search(builder.finish().as_doc(), &definition());
    }
}

//! Definitions that are accepted, and the texts of those that are not. The names, defaults and
//! bounds are those of the manual's pages "Define Index Mappings" and "Index Fields for Vector
//! Search".

use mayfly_base::ErrorCode;
use mayfly_value::DocBuf;
use mayfly_value::bson::{Bson, Document, doc};
use proptest::prelude::*;

use super::*;

fn parse(document: &Document, kind: IndexKind) -> Result<Definition> {
    Definition::parse(DocBuf::from_bson(document).as_doc(), kind)
}

#[track_caller]
fn refuses(kind: IndexKind, document: Document, text: &str) {
    let error = parse(&document, kind).expect_err(text);
    assert_eq!((error.code(), error.message()), (ErrorCode::UnknownError, text), "{document}");
}

fn vector(field: Document) -> Document {
    doc! {"fields": [field]}
}

fn string(field: Document) -> Document {
    doc! {"mappings": {"fields": {"a": field}}}
}

#[test]
fn a_vector_index_has_vectors_and_filters() {
    let document = doc! {"fields": [
        {"type": "vector", "path": "a.v", "numDimensions": 3.0, "similarity": "cosine"},
        {"type": "filter", "path": "tag"},
        {"type": "vector", "path": "w", "numDimensions": 8192_i64, "similarity": "dotProduct",
            "quantization": "scalar", "indexingMethod": "hnsw",
            "hnswOptions": {"maxEdges": 32, "numEdgeCandidates": 200}},
    ], "storedSource": {"include": ["a", "b.c"]}};
    let definition = parse(&document, IndexKind::VectorSearch).unwrap();
    assert_eq!(definition.filters, ["tag"]);
    let first = definition.vector("a.v").unwrap();
    assert_eq!((first.dimensions, first.similarity), (3, Similarity::Cosine));
    assert_eq!((first.quantization, first.method), (Quantization::None, IndexingMethod::Hnsw));
    assert_eq!((first.max_edges, first.edge_candidates), (16, 100));
    let second = definition.vector("w").unwrap();
    assert_eq!((second.quantization, second.max_edges), (Quantization::Scalar, 32));
    let kept = StoredSource::Include(vec!["a".into(), "b.c".into()]);
    assert_eq!(definition.stored_source, kept);
}

#[test]
fn a_vector_index_refuses() {
    let refuses = |document, text| refuses(IndexKind::VectorSearch, document, text);
    refuses(doc! {}, "\"fields\" is required");
    refuses(doc! {"fields": Bson::Null}, "\"fields\" is required");
    refuses(doc! {"fields": 1}, "\"fields\" must be an array");
    refuses(doc! {"fields": []}, "\"fields\" cannot be empty");
    refuses(doc! {"fields": [1]}, "\"fields[0]\" must be a document");
    refuses(vector(doc! {}), "\"fields[0].type\" is required");
    refuses(
        vector(doc! {"type": "x"}),
        "\"fields[0].type\" must be one of [autoEmbed, filter, text, vector]",
    );
    refuses(vector(doc! {"type": "filter"}), "\"fields[0].path\" is required");
    refuses(vector(doc! {"type": "filter", "path": ""}), "\"fields[0].path\" cannot be empty");
    refuses(
        vector(doc! {"type": "filter", "path": "a..b"}),
        "\"fields[0].path\" must be a path without empty parts",
    );
    refuses(
        vector(doc! {"type": "filter", "path": "a"}),
        "\"fields\" must contain a field of type vector",
    );
    refuses(
        vector(doc! {"type": "autoEmbed", "path": "a"}),
        "\"fields[0].type\" automatic embedding is not supported by this server",
    );
    let with = |extra: Document| {
        let mut field = doc! {"type": "vector", "path": "v", "numDimensions": 2,
        "similarity": "euclidean"};
        field.extend(extra);
        vector(field)
    };
    for number in [Bson::Int32(0), Bson::Int64(8193), Bson::Double(9000.0)] {
        refuses(
            with(doc! {"numDimensions": number}),
            "\"fields[0].numDimensions\" must be within bounds [1..8192]",
        );
    }
    refuses(with(doc! {"numDimensions": 1.5}), "\"fields[0].numDimensions\" must be an integer");
    let decimal: mayfly_value::bson::Decimal128 = "2".parse().unwrap();
    refuses(
        with(doc! {"numDimensions": decimal}),
        "\"fields[0].numDimensions\" must be an integer",
    );
    refuses(
        with(doc! {"numDimensions": i64::MAX}),
        "\"fields[0].numDimensions\" overflowed, must fit in a 32-bit integer",
    );
    refuses(
        with(doc! {"similarity": "l2"}),
        "\"fields[0].similarity\" must be one of [cosine, dotProduct, euclidean]",
    );
    refuses(
        with(doc! {"quantization": "binary"}),
        "\"fields[0].quantization\" binary quantization is not supported by this server",
    );
    refuses(
        with(doc! {"hnswOptions": {"maxEdges": 8}}),
        "\"fields[0].hnswOptions.maxEdges\" must be within bounds [16..64]",
    );
    refuses(
        with(doc! {"indexingMethod": "flat", "hnswOptions": {}}),
        "\"fields[0]\" hnswOptions is only supported with \"indexingMethod: hnsw\".",
    );
    refuses(with(doc! {"extra": 1}), "\"fields[0]\" unrecognized field \"extra\"");
    let mut twice = with(doc! {});
    let field = twice.get_array("fields").unwrap()[0].clone();
    twice.get_array_mut("fields").unwrap().push(field);
    refuses(twice, "Vector and filter fields should have distinct paths");
    let mut stored = with(doc! {});
    stored.insert("storedSource", true);
    refuses(stored.clone(), "storedSource true not allowed for vector indexes");
    stored.insert("storedSource", doc! {"include": ["a"], "exclude": ["b"]});
    refuses(stored.clone(), "\"storedSource\" only one of [include, exclude] may be present");
    stored.insert("storedSource", false);
    stored.insert("nestedRoot", "a");
    refuses(stored, "\"nestedRoot\" a nested root is not supported by this server");
}

#[test]
fn a_search_index_has_mappings() {
    let document = doc! {
        "analyzer": "lucene.english",
        "typeSets": [{"name": "t", "types": [{"type": "token", "normalizer": "lowercase"}]}],
        "mappings": {"dynamic": {"typeSet": "t"}, "fields": {
            "title": [
                {"type": "string", "multi": {"k": {"type": "string", "analyzer": "lucene.keyword"}}},
                {"type": "autocomplete", "maxGrams": 7},
            ],
            "sub": {"type": "document", "dynamic": true, "fields": {
                "v": {"type": "knnVector", "dimensions": 4, "similarity": "euclidean"}}},
        }},
        "storedSource": true,
    };
    let definition = parse(&document, IndexKind::Search).unwrap();
    assert_eq!(definition.analyzer.as_str(), "lucene.english");
    assert_eq!(definition.mappings.dynamic.types.len(), 1);
    assert_eq!(definition.mappings.fields["title"].types.len(), 2);
    assert_eq!(definition.vector("sub.v").unwrap().dimensions, 4);
    let sub = definition.mappings.fields["sub"].document.as_ref().unwrap();
    assert_eq!(sub.dynamic.types.len(), 6);
}

#[test]
fn a_search_index_refuses() {
    let refuses = |document, text| refuses(IndexKind::Search, document, text);
    refuses(doc! {}, "\"mappings\" is required");
    refuses(doc! {"mappings": 1}, "\"mappings\" must be a document");
    refuses(
        doc! {"mappings": {"dynamic": 1}},
        "\"mappings.dynamic\" must be a boolean or document",
    );
    refuses(
        doc! {"mappings": {"dynamic": {"typeSet": "x"}}},
        "\"mappings.dynamic.typeSet\" references the undefined type set \"x\"",
    );
    refuses(string(doc! {}), "\"mappings.fields.a.type\" is required");
    refuses(
        string(doc! {"type": "geo"}),
        "\"mappings.fields.a.type\" the type \"geo\" is not supported by this server",
    );
    refuses(
        string(doc! {"type": "embeddedDocuments"}),
        "\"mappings.fields.a.type\" the type \"embeddedDocuments\" is not supported by this server",
    );
    refuses(
        string(doc! {"type": "string", "analyzer": "mine"}),
        "\"mappings.fields.a.analyzer\" references the unknown analyzer \"mine\"",
    );
    refuses(
        string(doc! {"type": "string", "analyzer": "lucene.kuromoji"}),
        "\"mappings.fields.a.analyzer\" the analyzer \"lucene.kuromoji\" is not supported by this server",
    );
    refuses(
        string(doc! {"type": "string", "ignoreAbove": 0}),
        "\"mappings.fields.a.ignoreAbove\" must be positive",
    );
    refuses(
        string(doc! {"type": "string", "multi": {"b": {"type": "string", "multi": {}}}}),
        "\"mappings.fields.a.multi.b\" multi definition cannot contain nested multi definition",
    );
    refuses(
        string(doc! {"type": "autocomplete", "minGrams": 20}),
        "\"mappings.fields.a\" minGrams must be less than or equal to the default maxGrams value of 15",
    );
    refuses(
        string(doc! {"type": "number", "indexIntegers": false, "indexDoubles": false}),
        "\"mappings.fields.a\" must index at least one of integers and doubles",
    );
    refuses(
        string(doc! {"type": "date", "x": 1, "y": 2}),
        "\"mappings.fields.a\" unrecognized fields [\"x\", \"y\"]",
    );
    refuses(
        doc! {"mappings": {"fields": {"a": [{"type": "date"}, {"type": "date"}]}}},
        "\"mappings.fields.a[1]\" repeats a type of the field",
    );
    refuses(
        doc! {"mappings": {}, "synonyms": [{"name": "s"}]},
        "\"synonyms\" a synonym mapping is not supported by this server",
    );
    refuses(
        doc! {"mappings": {}, "analyzers": [{"name": "s"}]},
        "\"analyzers\" a custom analyzer is not supported by this server",
    );
    refuses(
        doc! {"mappings": {}, "numPartitions": 2},
        "\"numPartitions\" more than one partition is not supported by this server",
    );
    refuses(doc! {"mappings": {}, "fields": []}, "unrecognized field \"fields\"");
    let mut deep = doc! {"type": "document", "dynamic": true};
    for _ in 0..80 {
        deep = doc! {"type": "document", "fields": {"a": deep}};
    }
    let error = parse(&string(deep), IndexKind::Search).unwrap_err();
    assert!(error.message().ends_with("is nested more than 64 levels deep"), "{error:?}");
}

proptest! {
    #[test]
    fn no_document_makes_the_parser_panic(
        document in mayfly_value::arbitrary::any_document(), kind in 0..2,
    ) {
        let kind = [IndexKind::Search, IndexKind::VectorSearch][kind as usize];
        let _ = Definition::parse(document.as_doc(), kind);
        let mut builder = mayfly_value::DocBuilder::new();
        let name = if kind == IndexKind::Search { "mappings" } else { "fields" };
        builder.append(name, document.as_doc());
        let _ = Definition::parse(builder.finish().as_doc(), kind);
    }
}

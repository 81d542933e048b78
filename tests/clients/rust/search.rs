//! The Rust driver's helpers for search indexes, and searches over them; what is expected is listed
//! in ../README.md.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Collection, SearchIndexModel, SearchIndexType};

type Tested = Result<(), Box<dyn std::error::Error>>;

fn text() -> Document {
    let fields = doc! {"title": {"type": "string"}, "kind": {"type": "stringFacet"}};
    doc! {"mappings": {"dynamic": false, "fields": fields}}
}

fn vectors() -> Document {
    let vector =
        doc! {"type": "vector", "path": "v", "numDimensions": 3, "similarity": "euclidean"};
    doc! {"fields": [vector, {"type": "filter", "path": "kind"}]}
}

fn model(
    name: Option<&str>,
    kind: Option<SearchIndexType>,
    definition: Document,
) -> SearchIndexModel {
    let mut model = SearchIndexModel::default();
    model.name = name.map(str::to_owned);
    model.index_type = kind;
    model.definition = definition;
    model
}

/// A vector of 32-bit numbers, as drivers store it.
fn binary(numbers: [f32; 3]) -> Binary {
    let mut bytes = vec![0x27, 0];
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    Binary { subtype: BinarySubtype::Vector, bytes }
}

/// A collection of three documents, and its search indexes, which are ready.
async fn searchable(name: &str) -> Result<Collection<Document>, Box<dyn std::error::Error>> {
    let uri = std::env::var("MONGODB_URI").expect("MONGODB_URI names the server");
    let coll = Client::with_uri_str(uri).await?.database("clients_rust_search").collection(name);
    coll.drop().await?;
    coll.insert_many([
        doc! {"_id": 1, "title": "a red pen", "kind": "thing", "v": [1, 0, 0]},
        doc! {"_id": 2, "title": "blue ink", "kind": "stuff", "v": binary([0.0, 1.0, 0.0])},
        doc! {"_id": 3, "title": "a pen and another pen", "kind": "thing", "v": [0.0, 0.0, 1.0]},
    ])
    .await?;
    let models = [
        model(Some("words"), None, text()),
        model(Some("near"), Some(SearchIndexType::VectorSearch), vectors()),
    ];
    assert_eq!(coll.create_search_indexes(models).await?, ["words", "near"]);
    ready(&coll, &["words", "near"]).await?;
    Ok(coll)
}

/// Waits until the indexes of these names, and no others, are ready.
async fn ready(coll: &Collection<Document>, names: &[&str]) -> Result<Vec<Document>, Error> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let indexes: Vec<Document> = coll.list_search_indexes().await?.try_collect().await?;
        let found: Vec<&str> = indexes.iter().filter_map(|it| it.get_str("name").ok()).collect();
        assert_eq!(found, names);
        let is_ready = |index: &Document| {
            index.get_bool("queryable") == Ok(true) && index.get_str("status") == Ok("READY")
        };
        if indexes.iter().all(is_ready) {
            return Ok(indexes);
        }
        assert!(Instant::now() < deadline, "not ready: {indexes:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn found(coll: &Collection<Document>, stage: Document) -> Result<Vec<i32>, Error> {
    let documents: Vec<Document> = coll.aggregate([stage]).await?.try_collect().await?;
    Ok(documents.iter().map(|document| document.get_i32("_id").expect("an id")).collect())
}

fn words(query: &str) -> Document {
    doc! {"$search": {"index": "words", "text": {"path": "title", "query": query}}}
}

#[track_caller]
fn is_missing<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("there is no such index");
    match error.kind.as_ref() {
        ErrorKind::Command(command) => assert_eq!(command.code, 27, "{error}"),
        _ => panic!("another kind of error: {error}"),
    }
}

#[tokio::test]
async fn indexes_are_made_listed_updated_and_dropped() -> Tested {
    let coll = searchable("indexes").await?;
    let near: Vec<Document> = coll.list_search_indexes().name("near").await?.try_collect().await?;
    assert_eq!(near.len(), 1);
    assert_eq!(near[0].get_str("type")?, "vectorSearch");
    assert!(found(&coll, words("pens")).await?.is_empty());
    let mut english = text();
    english.insert("analyzer", "lucene.english");
    coll.update_search_index("words", english.clone()).await?;
    let updated = ready(&coll, &["words", "near"]).await?;
    assert_eq!(updated[0].get_document("latestDefinition")?, &english);
    assert_eq!(found(&coll, words("pens")).await?, [3, 1]);
    coll.drop_search_index("words").await?;
    ready(&coll, &["near"]).await?;
    assert!(found(&coll, words("pen")).await?.is_empty());
    is_missing(coll.drop_search_index("words").await);
    is_missing(coll.update_search_index("words", text()).await);
    assert_eq!(coll.create_search_index(model(None, None, text())).await?, "default");
    ready(&coll, &["near", "default"]).await?;
    Ok(())
}

#[tokio::test]
async fn texts_vectors_and_counts() -> Tested {
    let coll = searchable("stages").await?;
    assert_eq!(found(&coll, words("pen")).await?, [3, 1]);
    coll.insert_one(doc! {"_id": 4, "title": "a pencil", "kind": "stuff", "v": [1, 1, 1]}).await?;
    assert_eq!(found(&coll, words("pencil")).await?, [4]);
    coll.delete_one(doc! {"_id": 4}).await?;
    assert!(found(&coll, words("pencil")).await?.is_empty());
    let meta = doc! {"$searchMeta": {"index": "words", "exists": {"path": "title"},
    "count": {"type": "total"}}};
    let counted: Vec<Document> = coll.aggregate([meta]).await?.try_collect().await?;
    assert_eq!(counted, [doc! {"count": {"total": 3_i64}}]);
    let near = |more: Document| {
        let mut stage = doc! {"index": "near", "path": "v", "limit": 3};
        stage.insert("queryVector", binary([0.0, 1.0, 0.5]));
        stage.extend(more);
        doc! {"$vectorSearch": stage}
    };
    assert_eq!(found(&coll, near(doc! {"numCandidates": 10})).await?, [2, 3, 1]);
    let things = doc! {"exact": true, "filter": {"kind": "thing"}};
    assert_eq!(found(&coll, near(things)).await?, [3, 1]);
    Ok(())
}

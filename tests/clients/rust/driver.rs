//! The Rust driver against a running server; what is expected is listed in ../README.md.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ClientOptions, Compressor, IndexOptions};
use mongodb::{Client, Collection, IndexModel};

type Tested = Result<(), Box<dyn std::error::Error>>;

const DATABASE: &str = "clients_rust";

fn uri() -> String {
    std::env::var("MONGODB_URI").expect("MONGODB_URI names the server")
}

async fn client() -> Client {
    Client::with_uri_str(uri()).await.expect("a client")
}

/// An empty collection of that name.
async fn fresh(name: &str) -> Collection<Document> {
    let coll = client().await.database(DATABASE).collection(name);
    coll.drop().await.expect("drop");
    coll
}

fn numbers(count: i32, more: impl Fn(i32) -> Document) -> Vec<Document> {
    let with_id = |i| {
        let mut document = doc! {"_id": i};
        document.extend(more(i));
        document
    };
    (0..count).map(with_id).collect()
}

#[track_caller]
fn fails<T>(result: Result<T, Error>, code: i32, code_name: &str, text: &str) {
    let error = result.err().unwrap_or_else(|| panic!("no error {code}"));
    assert!(error.to_string().contains(text), "{error}");
    match error.kind.as_ref() {
        ErrorKind::Command(command) => {
            assert_eq!((command.code, command.code_name.as_str()), (code, code_name), "{error}");
        }
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            assert_eq!(write.code, code, "{error}")
        }
        _ => panic!("another kind of error: {error}"),
    }
}

#[tokio::test]
async fn ping_and_build_info() -> Tested {
    let admin = client().await.database("admin");
    assert_eq!(admin.run_command(doc! {"ping": 1}).await?.get_f64("ok")?, 1.0);
    let info = admin.run_command(doc! {"buildInfo": 1}).await?;
    assert!(info.get_str("version")?.starts_with("8."), "{info}");
    Ok(())
}

#[tokio::test]
async fn compression() -> Tested {
    let compressors =
        [Compressor::Zlib { level: None }, Compressor::Snappy, Compressor::Zstd { level: None }];
    for compressor in compressors {
        let coll = fresh("compression").await;
        let mut options = ClientOptions::parse(uri()).await?;
        options.compressors = Some(vec![compressor]);
        let same =
            Client::with_options(options)?.database(DATABASE).collection::<Document>(coll.name());
        let text = "mayfly ".repeat(5000);
        same.insert_many(numbers(20, |_| doc! {"text": &text})).await?;
        let found: Vec<Document> = same.find(doc! {}).await?.try_collect().await?;
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|document| document.get_str("text") == Ok(&text)));
    }
    Ok(())
}

#[tokio::test]
async fn insert() -> Tested {
    let coll = fresh("insert").await;
    let id = coll.insert_one(doc! {"name": "ann"}).await?.inserted_id;
    assert_eq!(coll.find_one(doc! {"_id": &id}).await?, Some(doc! {"_id": id, "name": "ann"}));
    assert_eq!(coll.insert_many(numbers(10, |_| doc! {})).await?.inserted_ids.len(), 10);
    assert_eq!(coll.count_documents(doc! {}).await?, 11);
    Ok(())
}

#[tokio::test]
async fn unordered_bulk_reports_the_duplicate() -> Tested {
    let coll = fresh("bulk").await;
    let documents = [doc! {"_id": 1}, doc! {"_id": 1}, doc! {"_id": 2}];
    let error = coll.insert_many(documents).ordered(false).await.expect_err("a duplicate");
    let ErrorKind::InsertMany(failure) = error.kind.as_ref() else { panic!("{error}") };
    let errors = failure.write_errors.as_deref().unwrap_or_default();
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].index, errors[0].code), (1, 11000));
    assert!(errors[0].message.contains("dup key: { _id: 1 }"), "{}", errors[0].message);
    assert_eq!(coll.count_documents(doc! {}).await?, 2);
    Ok(())
}

#[tokio::test]
async fn find() -> Tested {
    let coll = fresh("find").await;
    coll.insert_many(numbers(20, |i| doc! {"even": i % 2 == 0, "n": i * 10})).await?;
    let found =
        coll.find(doc! {"even": true, "n": {"$gte": 40}}).projection(doc! {"_id": 0, "n": 1});
    let found = found.sort(doc! {"n": -1}).skip(1).limit(3).await?;
    let found: Vec<Document> = found.try_collect().await?;
    assert_eq!(found, [doc! {"n": 160}, doc! {"n": 140}, doc! {"n": 120}]);
    assert_eq!(coll.find_one(doc! {"_id": 99}).await?, None);
    Ok(())
}

#[tokio::test]
async fn update() -> Tested {
    let coll = fresh("update").await;
    coll.insert_many(numbers(5, |i| doc! {"n": i, "old": 1, "tags": ["a"]})).await?;
    let change = doc! {
        "$set": {"name": "three"}, "$inc": {"n": 10}, "$unset": {"old": ""}, "$push": {"tags": "b"},
    };
    let result = coll.update_one(doc! {"_id": 3}, change).await?;
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    let expected = doc! {"_id": 3, "n": 13, "tags": ["a", "b"], "name": "three"};
    assert_eq!(coll.find_one(doc! {"_id": 3}).await?, Some(expected));
    let result = coll.update_many(doc! {"n": {"$lt": 3}}, doc! {"$inc": {"n": 1}}).await?;
    assert_eq!((result.matched_count, result.modified_count), (3, 3));
    let result = coll.update_many(doc! {}, doc! {"$set": {"n": 2}}).await?;
    assert_eq!((result.matched_count, result.modified_count), (5, 4));
    Ok(())
}

#[tokio::test]
async fn replace_and_upsert() -> Tested {
    let coll = fresh("upsert").await;
    coll.insert_one(doc! {"_id": 1, "a": 1}).await?;
    assert_eq!(coll.replace_one(doc! {"_id": 1}, doc! {"c": 3}).await?.modified_count, 1);
    assert_eq!(coll.find_one(doc! {}).await?, Some(doc! {"_id": 1, "c": 3}));
    let set = |v| doc! {"$set": {"v": v}};
    let id = coll.update_one(doc! {"key": "k"}, set(1)).upsert(true).await?.upserted_id;
    let id = id.expect("an upserted id");
    let expected = doc! {"_id": &id, "key": "k", "v": 1};
    assert_eq!(coll.find_one(doc! {"_id": id}).await?, Some(expected));
    assert_eq!(coll.update_one(doc! {"key": "k"}, set(2)).upsert(true).await?.upserted_id, None);
    Ok(())
}

#[tokio::test]
async fn delete() -> Tested {
    let coll = fresh("delete").await;
    coll.insert_many(numbers(10, |i| doc! {"even": i % 2 == 0})).await?;
    assert_eq!(coll.delete_one(doc! {"even": true}).await?.deleted_count, 1);
    assert_eq!(coll.delete_many(doc! {"even": true}).await?.deleted_count, 4);
    assert_eq!(coll.count_documents(doc! {}).await?, 5);
    Ok(())
}

#[tokio::test]
async fn small_batches() -> Tested {
    let coll = fresh("small_batches").await;
    let expected = numbers(1000, |_| doc! {});
    coll.insert_many(&expected).await?;
    let found = coll.find(doc! {}).batch_size(7).sort(doc! {"_id": 1}).await?;
    assert_eq!(found.try_collect::<Vec<_>>().await?, expected);
    let mut abandoned = coll.find(doc! {}).batch_size(7).await?;
    assert!(abandoned.advance().await?);
    drop(abandoned);
    Ok(())
}

#[tokio::test]
async fn default_batches() -> Tested {
    let coll = fresh("default_batches").await;
    coll.insert_many(numbers(20000, |_| doc! {"text": "x".repeat(20)})).await?;
    let found: Vec<Document> = coll.find(doc! {}).await?.try_collect().await?;
    assert_eq!(found.len(), 20000);
    Ok(())
}

#[tokio::test]
async fn counts() -> Tested {
    let coll = fresh("counts").await;
    coll.insert_many(numbers(30, |i| doc! {"mod": i % 3})).await?;
    assert_eq!(coll.count_documents(doc! {"mod": 1}).await?, 10);
    assert_eq!(coll.estimated_document_count().await?, 30);
    Ok(())
}

#[tokio::test]
async fn aggregate() -> Tested {
    let coll = fresh("aggregate").await;
    let kinds = ["a", "b", "c"];
    coll.insert_many(numbers(30, |i| doc! {"kind": kinds[i as usize % 3], "n": i})).await?;
    let pipeline = [
        doc! {"$match": {"n": {"$lt": 20}}},
        doc! {"$group": {"_id": "$kind", "total": {"$sum": "$n"}}},
        doc! {"$sort": {"total": -1}},
        doc! {"$limit": 2},
    ];
    let found: Vec<Document> = coll.aggregate(pipeline).await?.try_collect().await?;
    assert_eq!(found, [doc! {"_id": "b", "total": 70}, doc! {"_id": "a", "total": 63}]);
    Ok(())
}

#[tokio::test]
async fn catalog() -> Tested {
    let coll = fresh("catalog").await;
    coll.insert_one(doc! {}).await?;
    let client = client().await;
    assert!(client.list_database_names().await?.iter().any(|name| name == DATABASE));
    let database = client.database(DATABASE);
    assert!(database.list_collection_names().await?.iter().any(|name| name == "catalog"));
    coll.drop().await?;
    assert!(!database.list_collection_names().await?.iter().any(|name| name == "catalog"));
    Ok(())
}

fn expire_after(field: &str, seconds: u64) -> IndexModel {
    let options = IndexOptions::builder().expire_after(Duration::from_secs(seconds)).build();
    IndexModel::builder().keys(doc! {field: 1}).options(options).build()
}

#[tokio::test]
async fn ttl_index() -> Tested {
    let coll = fresh("ttl_index").await;
    assert_eq!(coll.create_index(expire_after("at", 3600)).await?.index_name, "at_1");
    let indexes: Vec<IndexModel> = coll.list_indexes().await?.try_collect().await?;
    let options = indexes[1].options.as_ref().expect("options");
    assert_eq!(options.expire_after, Some(Duration::from_secs(3600)));
    let database = client().await.database(DATABASE);
    let reply = database.run_command(doc! {"listIndexes": "ttl_index"}).await?;
    let listed = reply.get_document("cursor")?.get_array("firstBatch")?;
    let listed = listed[1].as_document().expect("an index");
    assert_eq!(listed.get("expireAfterSeconds"), Some(&Bson::Int32(3600)));
    Ok(())
}

async fn ttl_metric(client: &Client, name: &str) -> i64 {
    let status = client.database("admin").run_command(doc! {"serverStatus": 1}).await;
    let status = status.expect("serverStatus");
    let ttl = status.get_document("metrics").and_then(|metrics| metrics.get_document("ttl"));
    ttl.and_then(|ttl| ttl.get_i64(name)).expect(name)
}

async fn wait_for_passes(client: &Client, more: i64) {
    let target = ttl_metric(client, "passes").await + more;
    let deadline = Instant::now() + Duration::from_secs(30);
    while ttl_metric(client, "passes").await < target {
        assert!(Instant::now() < deadline, "no {more} passes in 30 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn ttl_deletion() -> Tested {
    let coll = fresh("ttl_deletion").await;
    let client = client().await;
    coll.create_index(expire_after("at", 60)).await?;
    let faster = doc! {"setParameter": 1, "ttlMonitorSleepSecs": 1};
    client.database("admin").run_command(faster).await?;
    wait_for_passes(&client, 1).await;
    let before = ttl_metric(&client, "deletedDocuments").await;
    let now = DateTime::now().timestamp_millis();
    let at = |seconds: i64| DateTime::from_millis(now + seconds * 1000);
    let due = |i: i64| doc! {"_id": format!("due{i}"), "at": at(-61 - i)};
    let kept = [
        doc! {"_id": "fresh", "at": at(0)},
        doc! {"_id": "future", "at": at(3600)},
        doc! {"_id": "missing"},
        doc! {"_id": "null", "at": null},
        doc! {"_id": "number", "at": 0},
        doc! {"_id": "text", "at": "2001-01-01"},
    ];
    coll.insert_many((0..25).map(due).chain(kept.iter().cloned())).await?;
    wait_for_passes(&client, 2).await;
    let left = coll.find(doc! {}).sort(doc! {"_id": 1}).await?;
    assert_eq!(left.try_collect::<Vec<_>>().await?, kept);
    assert_eq!(ttl_metric(&client, "deletedDocuments").await - before, 25);
    Ok(())
}

#[tokio::test]
async fn duplicate_key() -> Tested {
    let coll = fresh("duplicate_key").await;
    let unique = IndexOptions::builder().unique(true).build();
    let unique = |keys| IndexModel::builder().keys(keys).options(unique.clone()).build();
    coll.create_index(unique(doc! {"email": 1})).await?;
    coll.insert_one(doc! {"_id": 1, "email": "a@b"}).await?;
    let again = coll.insert_one(doc! {"_id": 2, "email": "a@b"}).await;
    fails(again, 11000, "DuplicateKey", "E11000 duplicate key error");
    coll.insert_many(numbers(2, |i| doc! {"_id": 10 + i, "email": i, "twice": 1})).await?;
    fails(coll.create_index(unique(doc! {"twice": 1})).await, 11000, "DuplicateKey", "E11000");
    Ok(())
}

#[tokio::test]
async fn unknown_command() {
    let database = client().await.database(DATABASE);
    let reply = database.run_command(doc! {"noSuchCommand": 1}).await;
    fails(reply, 59, "CommandNotFound", "no such command: 'noSuchCommand'");
}

#[tokio::test]
async fn index_errors() -> Tested {
    let coll = fresh("index_errors").await;
    coll.create_index(expire_after("at", 60)).await?;
    fails(coll.create_index(expire_after("at", 61)).await, 85, "IndexOptionsConflict", "");
    // The driver's helper takes no negative duration.
    let index = doc! {"key": {"x": 1}, "name": "x_1", "expireAfterSeconds": -1};
    let command = doc! {"createIndexes": "index_errors", "indexes": [index]};
    let reply = client().await.database(DATABASE).run_command(command).await;
    fails(reply, 67, "CannotCreateIndex", "cannot be less than 0");
    Ok(())
}

#[tokio::test]
async fn write_and_query_errors() -> Tested {
    let coll = fresh("errors").await;
    coll.insert_one(doc! {"_id": 1, "text": "x"}).await?;
    let increment = doc! {"$inc": {"text": 1}};
    fails(coll.update_one(doc! {"_id": 1}, increment).await, 14, "TypeMismatch", "");
    let unknown = coll.find_one(doc! {"a": {"$noSuchOperator": 1}}).await;
    fails(unknown, 2, "BadValue", "unknown operator: $noSuchOperator");
    Ok(())
}

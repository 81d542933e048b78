//! Opening and creating: every refusal.

use object_store::memory::InMemory;

use super::*;

async fn open_error(objects: &Arc<dyn ObjectStore>) -> Error {
    let opened = Repository::open_or_create(objects.clone(), clock(), store_id()).await;
    opened.err().expect("an error")
}

#[tokio::test]
async fn a_repository_is_created_once_and_opened_again() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let opened = Repository::open(objects.clone(), clock()).await;
    assert!(matches!(opened.err(), Some(Error::NoRepository)));
    for _ in 0..2 {
        let opened = Repository::open_or_create(objects.clone(), clock(), store_id()).await;
        assert_eq!(opened.unwrap().store(), store_id());
    }
    assert_eq!(names_in(&*objects).await, ["repository.json"]);
    assert_eq!(Repository::open(objects, clock()).await.unwrap().store(), store_id());
}

#[tokio::test]
async fn a_repository_of_another_store_is_refused() {
    let fixture = Fixture::new().await;
    let other = StoreId(Uuid::from_u128(8));
    let opened = Repository::open_or_create(fixture.objects.clone(), clock(), other).await;
    match opened.err() {
        Some(Error::OtherStore { found, expected }) => {
            assert_eq!((found, expected), (store_id(), other));
        }
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_place_with_other_objects_is_refused() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    objects.put(&"photos/1.jpg".into(), "x".into()).await.unwrap();
    match open_error(&objects).await {
        Error::NotEmpty { found } => assert_eq!(found, "photos/1.jpg"),
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_newer_format_and_an_unreadable_identity_are_refused() {
    let fixture = Fixture::new().await;
    let text = String::from_utf8(fixture.get("repository.json").await).unwrap();
    let newer = text.replace("\"format\": 1", "\"format\": 2");
    fixture.put("repository.json", newer.as_bytes()).await;
    let error = open_error(&fixture.objects).await;
    assert!(matches!(error, Error::NewerFormat { format: 2, .. }), "{error:?}");
    let long = vec![b' '; 70_000];
    for content in [&b""[..], b"{", b"[]", b"{\"format\": 1}", b"\xff\xfe", &long] {
        fixture.put("repository.json", content).await;
        let error = open_error(&fixture.objects).await;
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("'repository.json'"), "{error}");
    }
}

#[test]
fn errors_of_stores_say_what_to_do() {
    let of = |source: &str, make: fn(String) -> object_store::Error| {
        let error = Error::of_store("files/a", make(source.to_owned()));
        let Error::Store { problem, .. } = &error else { panic!("{error:?}") };
        (*problem, error.to_string())
    };
    let generic = |text: String| object_store::Error::Generic { store: "S3", source: text.into() };
    let denied = |text: String| object_store::Error::PermissionDenied {
        path: "files/a".into(),
        source: text.into(),
    };
    let missing = |text: String| object_store::Error::NotFound {
        path: "files/a".into(),
        source: text.into(),
    };
    let (problem, text) = of("<Code>ExpiredToken</Code>", generic);
    assert!(problem == StoreProblem::CredentialsExpired && text.contains("renew"), "{text}");
    let (problem, text) = of("<Code>SignatureDoesNotMatch</Code>", denied);
    assert!(problem == StoreProblem::CredentialsRejected && text.contains("secret"), "{text}");
    let (problem, text) = of("<Code>AccessDenied</Code>", denied);
    assert!(problem == StoreProblem::AccessDenied && text.contains("allow"), "{text}");
    let (problem, text) = of("<Code>NoSuchBucket</Code>", missing);
    assert!(problem == StoreProblem::NoBucket && text.contains("create it"), "{text}");
    let full = object_store::Error::Generic {
        store: "folder",
        source: std::io::Error::from(std::io::ErrorKind::StorageFull).into(),
    };
    let full = Error::of_store("files/a", full);
    assert!(full.to_string().contains("free space"), "{full}");
    assert_eq!(mayfly_base::Error::from(full).code(), mayfly_base::ErrorCode::OutOfDiskSpace);
}

//! Content that no version of this program writes: it is refused without a panic and without a
//! wrong file.

use proptest::prelude::*;

use super::*;
use crate::sealed::seal;

fn id() -> BackupId {
    "20261127T212149123Z-1a2b3c4d".parse().unwrap()
}

/// A valid manifest as JSON.
fn valid() -> serde_json::Value {
    let file = serde_json::json!({
        "path": "000012.sst", "size": 7, "sha256": Checksum::of(b"a").to_string(), "fileNumber": 12
    });
    serde_json::json!({
        "format": 1, "id": id(), "store": store_id(), "timeline": "t1", "time": time(7),
        "storeFormat": 3, "serverVersion": "0.1.0", "parent": null, "kind": "files",
        "files": [file],
        "collections": [{"ns": "a.b", "uuid": Uuid::from_u128(1).to_string(), "count": 1}],
    })
}

fn decode(json: &serde_json::Value) -> Result<Manifest> {
    Manifest::decode(&id(), store_id(), &seal("manifest.json", json).unwrap())
}

#[test]
fn hostile_manifests_are_refused() {
    decode(&valid()).unwrap();
    let file = |change: serde_json::Value| {
        let mut manifest = valid();
        let file = manifest["files"][0].as_object_mut().unwrap();
        file.extend(change.as_object().unwrap().clone());
        manifest
    };
    let with = |change: serde_json::Value| {
        let mut manifest = valid();
        manifest.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        manifest
    };
    let other = |path: &str, size: u64| {
        let sha256 = Checksum::of(b"a").to_string();
        serde_json::json!({"path": path, "size": size, "sha256": sha256})
    };
    let first = valid()["files"][0].clone();
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    for manifest in [
        file(json(r#"{"path": "../../etc/passwd"}"#)),
        file(json(r#"{"path": "/etc/passwd"}"#)),
        file(json(r#"{"path": ""}"#)),
        file(json(r#"{"path": 7}"#)),
        file(json(r#"{"size": -1}"#)),
        file(json(r#"{"size": 1e300}"#)),
        file(json(r#"{"size": 18446744073709551616}"#)),
        file(json(r#"{"sha256": "../../repository.json"}"#)),
        file(json(r#"{"fileNumber": "12"}"#)),
        file(json(r#"{"parentFile": "a"}"#)),
        with(json(r#"{"format": 0}"#)),
        with(json(r#"{"store": "00000000-0000-0000-0000-000000000008"}"#)),
        with(json(r#"{"id": "20261127T212149123Z-00000000"}"#)),
        with(json(r#"{"parent": "20261127T212149123Z-1a2b3c4d"}"#)),
        with(json(r#"{"timeline": "../x"}"#)),
        with(json(r#"{"kind": "other"}"#)),
        with(json(
            r#"{"time": {"seconds": 7, "increment": 1, "rfc3339": "1970-01-01T00:00:08Z"}}"#,
        )),
        with(json(r#"{"time": {"seconds": 4294967296, "increment": 1, "rfc3339": ""}}"#)),
        with(json(r#"{"files": {}}"#)),
        with(json(r#"{"collections": null}"#)),
        with(serde_json::json!({"files": [first, first]})),
        with(serde_json::json!({"files": [first, other("000012.sst/b", 7)]})),
        with(serde_json::json!({"files": [first, other("b", 8)]})),
    ] {
        assert!(decode(&manifest).is_err(), "{manifest}");
    }
    let newer = decode(&with(json(r#"{"format": 18446744073709551615}"#)));
    assert!(matches!(newer, Err(Error::NewerFormat { .. })));
    // Deeply nested.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!("{{\"sha256\":\"{}\",\n\"format\": {deep}}}", Checksum::of(b""));
    assert!(Manifest::decode(&id(), store_id(), text.as_bytes()).is_err());
    // More bytes than can be counted.
    let mut manifest = valid();
    let huge = |at: u8| {
        let (path, sha256) = (format!("f{at}"), Checksum::of(&[at]).to_string());
        serde_json::json!({"path": path, "size": u64::MAX / 2 + 1, "sha256": sha256})
    };
    manifest["files"] = vec![huge(0), huge(1)].into();
    assert!(decode(&manifest).is_err());
}

#[tokio::test]
async fn other_objects_in_the_repository_are_ignored() {
    let fixture = Fixture::new().await;
    for name in [
        "backups/x/manifest.json",
        "backups/manifest.json",
        "backups/20261127T212149123Z-1a2b3c4d/part",
        "files/x",
        "files/x/y",
        "log/x",
        "log/T/0000000001.0000000001-0000000002.0000000001.bson.zst",
        "log/t1/2.1-1.1.bson.zst",
        "log/t1/0000000002.0000000001-0000000001.0000000001.bson.zst",
        "log/t1/a/0000000001.0000000001-0000000002.0000000001.bson.zst",
    ] {
        fixture.put(name, b"x").await;
    }
    assert!(fixture.repository.backup_ids().await.unwrap().is_empty());
    assert!(fixture.repository.logs().await.unwrap().is_empty());
    assert!(fixture.repository.restore_ranges().await.unwrap().is_empty());
    assert!(fixture.problems().await.is_empty());
    let retention = Retention { keep_last: 1, ..Retention::default() };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    let plan = fixture.repository.plan_prune(&options).await.unwrap();
    assert!(plan.contents.is_empty() && plan.log.is_empty());
    // A lock that cannot be read may be that of a running operation.
    fixture.put("locks/backup-x.json", b"x").await;
    let planned = fixture.repository.plan_prune(&options).await;
    assert!(matches!(planned, Err(Error::UnreadableLock { .. })), "{planned:?}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Reads an object of this content in every role. Only panics count.
async fn read_all(content: &[u8]) {
    let fixture = Fixture::new().await;
    let name = SegmentName { timeline: timeline(), from: time(1), to: time(2) };
    let gap = LogPart { name: name.clone(), kind: PartKind::Gap };
    for object in [format!("backups/{}/manifest.json", id()), name.object(), gap.object()] {
        fixture.put(&object, content).await;
    }
    let repository = &fixture.repository;
    let _ = repository.manifest(&id()).await;
    let _ = repository.read_segment(&name).await;
    let _ = repository.read_gap(&name).await;
    let _ = repository.chain(&timeline(), time(0), time(9)).await;
    let _ = repository.restore_ranges().await.unwrap();
    assert!(!fixture.problems().await.is_empty());
    fixture.put("repository.json", content).await;
    let opened = Repository::open(fixture.objects.clone(), clock()).await;
    assert!(opened.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..200)) {
        runtime().block_on(read_all(&content));
    }

    /// A valid object of each kind with some of its bytes replaced, and with a checksum that fits.
    #[test]
    fn changed_objects_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        is_segment in any::<bool>(),
    ) {
        let change = |bytes: &mut [u8]| {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        };
        runtime().block_on(async {
            if is_segment {
                let fixture = Fixture::new().await;
                let name = SegmentName { timeline: timeline(), from: time(1), to: time(2) };
                fixture.repository.write_segment(&name, None, b"entries").await.unwrap();
                let mut bytes = fixture.get(&name.object()).await;
                change(&mut bytes[40..]);
                let checksum = Checksum::of(&bytes[40..]);
                bytes[8..40].copy_from_slice(checksum.as_bytes());
                fixture.put(&name.object(), &bytes).await;
                let _ = fixture.repository.read_segment(&name).await;
                let _ = fixture.repository.chain(&timeline(), time(0), time(9)).await;
                return;
            }
            let mut json = serde_json::to_vec(&valid()).unwrap();
            change(&mut json[1..]);
            let mut text = format!("{{\"sha256\":\"{}\",\n", Checksum::of(&json[1..])).into_bytes();
            text.extend_from_slice(&json[1..]);
            if let Ok(manifest) = Manifest::decode(&id(), store_id(), &text) {
                for file in manifest.files {
                    assert!(!file.path.as_str().starts_with('/'));
                    assert!(!file.path.as_str().split('/').any(|part| part == ".."));
                }
            }
        });
    }
}

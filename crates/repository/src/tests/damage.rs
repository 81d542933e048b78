//! Damage of every kind of object is found and named, by a verification and by a reader.

use super::*;

fn name(from: u32, to: u32) -> SegmentName {
    SegmentName { timeline: timeline(), from: time(from), to: time(to) }
}

/// A repository with every kind of object except for locks.
async fn full() -> (Fixture, Manifest) {
    let fixture = Fixture::new().await;
    let made = fixture.backup(None, time(50), &[("000012.sst", b"a table"), ("b", b"more")]).await;
    let repository = &fixture.repository;
    let link = repository.write_segment(&name(50, 60), None, b"first entries").await.unwrap();
    repository.write_gap(&name(60, 70), "the disk was full").await.unwrap();
    repository.write_segment(&name(70, 80), Some(link), b"second entries").await.unwrap();
    (fixture, made)
}

/// Reads an object as its users do.
async fn read_object(fixture: &Fixture, made: &Manifest, object: &str) -> Result<()> {
    let repository = &fixture.repository;
    if object == "repository.json" {
        let opened = Repository::open(fixture.objects.clone(), fixture.clock.clone()).await;
        return opened.map(drop);
    }
    if object.starts_with("backups/") {
        return repository.manifest(&made.id).await.map(drop);
    }
    if let Some(part) =
        repository.log(&timeline()).await?.iter().find(|part| part.object() == object)
    {
        return match part.kind {
            PartKind::Segment => repository.read_segment(&part.name).await.map(drop),
            PartKind::Gap => repository.read_gap(&part.name).await.map(drop),
        };
    }
    let file = made.files.iter().find(|file| object.ends_with(&file.sha256.to_string())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fetched = repository.fetch(file, folder.path(), &fixture.transfer()).await;
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, usize::from(fetched.is_ok()), "a wrong file remains");
    fetched.map(drop)
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_found_and_named() {
    let (fixture, made) = full().await;
    assert!(fixture.problems().await.is_empty());
    let names = fixture.names().await;
    assert_eq!(names.len(), 7, "{names:?}");
    for object in names {
        read_object(&fixture, &made, &object).await.unwrap();
        for at in 0..fixture.get(&object).await.len() {
            fixture.flip(&object, at).await;
            let problems = fixture.problems().await;
            assert!(problems.iter().any(|problem| problem.object == object), "{object}:{at}");
            let error = read_object(&fixture, &made, &object).await.unwrap_err();
            assert!(error.to_string().contains(&object), "{error}");
            fixture.flip(&object, at).await;
        }
    }
    assert!(fixture.problems().await.is_empty());
}

#[tokio::test]
async fn cut_and_missing_objects_are_found_and_named() {
    let (fixture, made) = full().await;
    for object in fixture.names().await {
        let content = fixture.get(&object).await;
        fixture.put(&object, &content[..content.len() - 1]).await;
        let problems = fixture.problems().await;
        assert!(problems.iter().any(|problem| problem.object == object), "{problems:?}");
        fixture.delete(&object).await;
        let problems = fixture.problems().await;
        // Without its manifest a backup does not exist, and a log may end or begin anywhere.
        let is_known = object.starts_with("files/") || object == "repository.json";
        let is_gap = object.ends_with(".gap.json");
        assert_eq!(problems.is_empty(), !is_known && !is_gap, "{object}: {problems:?}");
        if object.starts_with("files/") {
            assert_eq!(
                (&*problems[0].object, &problems[0].kind),
                (&*object, &ProblemKind::Missing)
            );
            assert_eq!(problems[0].backups, std::slice::from_ref(&made.id));
            let error = read_object(&fixture, &made, &object).await.unwrap_err();
            assert!(matches!(error, Error::Missing { object: named } if named == object));
        }
        fixture.put(&object, &content).await;
    }
}

#[tokio::test]
async fn a_backup_can_be_verified_alone() {
    let (fixture, first) = full().await;
    let second = fixture.backup(Some(&first.id), time(75), &[("c", b"other")]).await;
    let object = format!("files/{}", first.files[0].sha256);
    fixture.flip(&object, 0).await;
    let verify = async |id: &BackupId| {
        let scope = VerifyScope::Backup(id.clone());
        fixture.repository.verify(&scope, &fixture.transfer()).await.unwrap()
    };
    let report = verify(&second.id).await;
    // Its file, and the segment that continues it.
    assert_eq!((report.problems.len(), report.backups, report.objects), (0, 1, 2));
    let report = verify(&first.id).await;
    assert_eq!((report.problems.len(), report.backups, report.objects), (1, 1, 5));
    let unknown = VerifyScope::Backup("20200101T000000000Z-00000000".parse().unwrap());
    let error = fixture.repository.verify(&unknown, &fixture.transfer()).await.unwrap_err();
    assert!(matches!(error, Error::Missing { .. }));
}

#[tokio::test]
async fn a_file_in_the_way_is_neither_replaced_nor_followed() {
    let (fixture, made) = full().await;
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("b");
    std::fs::write(&existing, b"mine").unwrap();
    let file = made.files.iter().find(|file| file.path.as_str() == "b").unwrap();
    let fetch = async |file: &FileEntry| {
        fixture.repository.fetch(file, folder.path(), &fixture.transfer()).await
    };
    assert!(matches!(fetch(file).await, Err(Error::LocalFile { .. })));
    assert_eq!(read(&existing), b"mine");
    // A link would lead out of the folder.
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    let file = FileEntry { path: "link/b".parse().unwrap(), ..file.clone() };
    assert!(matches!(fetch(&file).await, Err(Error::LocalFile { .. })));
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

//! A folder as an object store.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use object_store::path::Path as ObjectPath;
use object_store::{PutMode, PutPayload};

use super::*;

fn open(root: &Path) -> FolderStore {
    FolderStore::open_or_create(root, NOW_MS).unwrap()
}

#[tokio::test]
async fn objects_are_files() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root.path().join("a/new/folder"));
    let at = ObjectPath::from("x/y/object");
    let new = async |content: &'static str| {
        store.put_opts(&at, content.into(), PutMode::Create.into()).await
    };
    new("first").await.unwrap();
    assert!(matches!(new("second").await, Err(object_store::Error::AlreadyExists { .. })));
    assert_eq!(read(&root.path().join("a/new/folder/x/y/object")), b"first");
    store.put(&at, "third".into()).await.unwrap();
    assert_eq!(store.get(&at).await.unwrap().bytes().await.unwrap(), "third");
    assert_eq!(store.get_range(&at, 1..3).await.unwrap(), "hi");
    assert_eq!(store.head(&at).await.unwrap().size, 5);
    assert_eq!(names_in(&store).await, ["x/y/object"]);
    // Neither unfinished files nor folders are left.
    store.delete(&at).await.unwrap();
    assert!(matches!(store.delete(&at).await, Err(object_store::Error::NotFound { .. })));
    assert!(matches!(store.get(&at).await, Err(object_store::Error::NotFound { .. })));
    let left: Vec<_> = fs::read_dir(root.path().join("a/new/folder"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".unfinished"]);
}

#[tokio::test]
async fn an_upload_in_parts_appears_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let at = ObjectPath::from("files/large");
    for is_completed in [false, true] {
        let mut upload = store.put_multipart(&at).await.unwrap();
        let first = upload.put_part(PutPayload::from_static(b"first "));
        let second = upload.put_part(PutPayload::from_static(b"second"));
        // In any order.
        second.await.unwrap();
        first.await.unwrap();
        assert!(names_in(&store).await.is_empty());
        match is_completed {
            true => drop(upload.complete().await.unwrap()),
            false => upload.abort().await.unwrap(),
        }
        assert!(upload.complete().await.is_err());
    }
    assert_eq!(read(&root.path().join("files/large")), b"first second");
    assert_eq!(fs::read_dir(root.path().join(".unfinished")).unwrap().count(), 0);
}

#[tokio::test]
async fn unfinished_files_of_a_crash_are_removed_after_a_week() {
    let root = tempfile::tempdir().unwrap();
    let unfinished = root.path().join(".unfinished");
    fs::create_dir(&unfinished).unwrap();
    let file = fs::File::create(unfinished.join("1")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_millis(NOW_MS as u64))
        .unwrap();
    let week = 7 * 24 * 3600 * 1000;
    for (now_ms, left) in [(NOW_MS, 1), (NOW_MS + week, 1), (NOW_MS + week + 1, 0)] {
        FolderStore::open(root.path(), now_ms).unwrap();
        assert_eq!(fs::read_dir(&unfinished).unwrap().count(), left);
    }
}

#[tokio::test]
async fn a_repository_in_a_folder() {
    let root = tempfile::tempdir().unwrap();
    let fixture = Fixture::over(Arc::new(open(root.path()))).await;
    let made = fixture.backup(None, time(50), &[("a", b"content"), ("b", b"")]).await;
    let name = SegmentName { timeline: timeline(), from: time(50), to: time(60) };
    fixture.repository.write_segment(&name, None, b"entries").await.unwrap();
    assert!(fixture.problems().await.is_empty());
    let object = format!("files/{}", made.files[0].sha256);
    fixture.flip(&object, 3).await;
    assert_eq!(fixture.problems().await[0].object, object);
    // A link is followed: content may be on another disk.
    let elsewhere = tempfile::tempdir().unwrap();
    let (files, moved) = (root.path().join("files"), elsewhere.path().join("files"));
    fs::create_dir(&moved).unwrap();
    for entry in fs::read_dir(&files).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), moved.join(entry.file_name())).unwrap();
    }
    fs::remove_dir_all(&files).unwrap();
    std::os::unix::fs::symlink(&moved, &files).unwrap();
    assert_eq!(fixture.problems().await.len(), 1);
    // A circle of links ends.
    std::os::unix::fs::symlink(root.path(), root.path().join("circle")).unwrap();
    assert_eq!(fixture.problems().await.len(), 1);
    fs::remove_file(root.path().join("circle")).unwrap();
    // A file is not a folder.
    let file = root.path().join("repository.json");
    for path in [file.clone(), file.join("below"), root.path().join("missing")] {
        assert!(matches!(FolderStore::open(&path, NOW_MS), Err(Error::LocalFile { .. })));
    }
    assert!(matches!(FolderStore::open_or_create(&file, NOW_MS), Err(Error::LocalFile { .. })));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named_as_such() {
    let root = tempfile::tempdir().unwrap();
    let fixture = Fixture::over(Arc::new(open(root.path()))).await;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let begun = fixture.repository.begin(start(None)).await;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
    match begun {
        // Root may write anywhere.
        Ok(backup) => backup.abandon().await.unwrap(),
        Err(Error::Store { problem, .. }) => assert_eq!(problem, StoreProblem::AccessDenied),
        Err(error) => panic!("{error}"),
    }
}

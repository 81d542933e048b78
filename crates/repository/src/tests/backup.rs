//! Making and fetching backups.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use mayfly_base::SystemClock;
use object_store::memory::InMemory;

use super::faulty::FaultyStore;
use super::*;

const FILES: &[(&str, &[u8])] = &[
    ("000012.sst", b"a table"),
    ("CURRENT", b"current"),
    ("empty", b""),
    ("sub/x/copy", b"a table"),
];

async fn fetch_all(fixture: &Fixture, manifest: &Manifest) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in &manifest.files {
        let fetched = fixture.repository.fetch(file, folder.path(), &fixture.transfer()).await;
        assert_eq!(fetched.unwrap(), folder.path().join(file.path.as_str()));
    }
    folder
}

#[tokio::test]
async fn a_backup_is_listed_read_and_fetched() {
    let fixture = Fixture::new().await;
    let made = fixture.backup(None, time(50), FILES).await;
    assert_eq!(fixture.repository.backup_ids().await.unwrap(), std::slice::from_ref(&made.id));
    let manifest = fixture.repository.manifest(&made.id).await.unwrap();
    assert_eq!(manifest, made);
    assert_eq!((manifest.bytes(), manifest.files.len()), (21, 4));
    assert_eq!((manifest.time, &*manifest.collections), (time(50), &*collections()));
    let folder = fetch_all(&fixture, &manifest).await;
    for (name, content) in FILES {
        assert_eq!(read(&folder.path().join(name)), *content);
    }
    // The same content is stored once.
    let names = fixture.names().await;
    assert_eq!(names.iter().filter(|name| name.starts_with("files/")).count(), 3);
    assert!(!names.iter().any(|name| name.starts_with("locks/")), "{names:?}");
    assert!(fixture.problems().await.is_empty());
    let listed = fixture.repository.backups().await.unwrap();
    assert_eq!(listed[0].summary.as_ref().unwrap(), &manifest.summary());
}

#[tokio::test]
async fn large_files_are_sent_in_parts() {
    let objects = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] =
        [Arc::new(InMemory::new()), Arc::new(FolderStore::open(objects.path(), NOW_MS).unwrap())];
    for store in stores {
        let fixture = Fixture::over(store).await;
        // In memory until it is sent, and read twice.
        for megabytes in [20, 70] {
            let content: Vec<u8> =
                (0..megabytes << 18).flat_map(|at: u32| at.to_le_bytes()).collect();
            let made = fixture.backup(None, time(50), &[("large", &content)]).await;
            let folder = fetch_all(&fixture, &made).await;
            assert!(read(&folder.path().join("large")) == content);
        }
        assert!(fixture.problems().await.is_empty());
    }
}

#[tokio::test]
async fn files_that_are_added_together_are_those_of_single_calls() {
    let fixture = Fixture::new().await;
    let parent = fixture.backup(None, time(50), FILES).await.id;
    fixture.clock.advance_ms(1000);
    let mut backup = fixture.repository.begin(start(Some(&parent))).await.unwrap();
    let transfer = fixture.transfer();
    let files = [
        (fixture.local("new", b"new content"), options("new")),
        (fixture.local("copy", b"new content"), options("copy")),
        (fixture.local("table", b"A TABLE"), options("000012.sst")),
        (fixture.local("last", b"last"), options("last")),
    ];
    let added = backup.add_files(&files, &transfer).await.unwrap();
    use AddedFile::{Known, Reused, Sent};
    assert_eq!(added, [Sent, Known, Reused, Sent]);
    assert_eq!(backup.add_files(&[], &transfer).await.unwrap(), []);
    // The file before one that fails is part of the backup.
    let gone = fixture.folder.path().join("gone");
    let files = [(fixture.local("more", b"more"), options("more")), (gone, options("gone"))];
    let failed = backup.add_files(&files, &transfer).await;
    assert!(matches!(failed, Err(Error::LocalFile { .. })), "{failed:?}");
    let twice = fixture.local("twice", b"twice");
    let files = [(twice.clone(), options("twice")), (twice, options("twice"))];
    let failed = backup.add_files(&files, &transfer).await;
    assert!(matches!(failed, Err(Error::InvalidInput { .. })), "{failed:?}");
    let made = backup.finish(time(60), collections()).await.unwrap();
    let paths: Vec<String> = made.files.iter().map(|file| file.path.to_string()).collect();
    assert_eq!(paths, ["000012.sst", "copy", "last", "more", "new", "twice"]);
    assert!(fixture.problems().await.is_empty());
}

#[tokio::test]
async fn an_unchanged_immutable_file_is_neither_read_nor_sent() {
    let fixture = Fixture::new().await;
    let parent = fixture.backup(None, time(50), FILES).await.id;
    let before = fixture.names().await.len();
    fixture.clock.advance_ms(1000);
    let mut backup = fixture.repository.begin(start(Some(&parent))).await.unwrap();
    // Other content of the same size shows that the file is not read.
    let local = fixture.local("table", b"A TABLE");
    let progress = Arc::new(AtomicU64::new(0));
    let seen = progress.clone();
    let transfer = fixture.transfer().with_report(move |progress| {
        assert_eq!(progress.total, 21);
        seen.store(progress.done, Ordering::SeqCst);
    });
    transfer.set_total(21);
    let mut add = async |name: &str, local: &Path| {
        backup.add_file(local, options(name), &transfer).await.unwrap()
    };
    assert_eq!(add("000012.sst", &local).await, AddedFile::Reused);
    // Not marked as immutable, so it is read.
    let copy = fixture.local("copy", b"a table");
    assert_eq!(add("sub/x/copy", &copy).await, AddedFile::Known);
    let current = fixture.local("current", b"CURRENT");
    assert_eq!(add("CURRENT", &current).await, AddedFile::Sent);
    assert_eq!(progress.load(Ordering::SeqCst), 21);
    let made = backup.finish(time(60), collections()).await.unwrap();
    let table = &made.files[0];
    assert_eq!(table.parent_file.as_ref(), Some(&table.path));
    assert_eq!(table.sha256, Checksum::of(b"a table"));
    assert_eq!(fixture.names().await.len(), before + 2);
}

#[tokio::test]
async fn a_file_is_read_if_anything_about_it_differs() {
    let fixture = Fixture::new().await;
    let parent = fixture.backup(None, time(50), &[("000012.sst", b"a table")]).await;
    let id = &parent.id;
    let added = async |content: &[u8], path: &str, number: u64| {
        fixture.clock.advance_ms(1000);
        let mut backup = fixture.repository.begin(start(Some(id))).await.unwrap();
        let local = fixture.local("table", content);
        let content = FileContent::Immutable { number };
        let options = FileOptions { path: path.parse().unwrap(), content };
        let added = backup.add_file(&local, options, &fixture.transfer()).await.unwrap();
        backup.abandon().await.unwrap();
        added
    };
    assert_eq!(added(b"A TABLE", "000012.sst", 12).await, AddedFile::Reused);
    assert_eq!(added(b"A TABLE", "000012.sst", 13).await, AddedFile::Sent);
    assert_eq!(added(b"2 TABLE", "000013.sst", 12).await, AddedFile::Sent);
    assert_eq!(added(b"a larger table", "000012.sst", 12).await, AddedFile::Sent);
    // The content is gone, and is sent again.
    fixture.delete(&format!("files/{}", parent.files[0].sha256)).await;
    assert_eq!(added(b"a table", "000012.sst", 12).await, AddedFile::Sent);
}

#[tokio::test]
async fn a_parent_of_another_timeline_is_refused() {
    let fixture = Fixture::new().await;
    let parent = fixture.backup(None, time(50), FILES).await.id;
    let begin = async |change: fn(&mut BackupStart)| {
        let mut start = start(Some(&parent));
        change(&mut start);
        fixture.repository.begin(start).await.err()
    };
    let refused = begin(|start| start.timeline = "t2".parse().unwrap()).await;
    assert!(matches!(refused, Some(Error::InvalidInput { .. })));
    assert!(begin(|start| start.kind = BackupKind::Entries).await.is_some());
    assert!(begin(|start| start.store_format = 4).await.is_some());
    let unknown = |start: &mut BackupStart| {
        start.parent = Some("20200101T000000000Z-00000000".parse().unwrap());
    };
    assert!(matches!(begin(unknown).await, Some(Error::Missing { .. })));
    assert!(!fixture.names().await.iter().any(|name| name.starts_with("locks/")));
}

#[tokio::test]
async fn backups_at_the_same_time_have_different_names() {
    let fixture = Fixture::new().await;
    let mut first = fixture.repository.begin(start(None)).await.unwrap();
    let mut second = fixture.repository.begin(start(None)).await.unwrap();
    assert_ne!(first.id(), second.id());
    let local = fixture.local("a", b"content");
    first.add_file(&local, options("a"), &fixture.transfer()).await.unwrap();
    second.add_file(&local, options("a"), &fixture.transfer()).await.unwrap();
    // A backup with the same name would fail.
    let name = format!("backups/{}/manifest.json", first.id());
    fixture.put(&name, b"another").await;
    let finished = first.finish(time(50), collections()).await;
    assert!(matches!(finished, Err(Error::Exists { object }) if object == name));
    fixture.delete(&name).await;
    let second = second.finish(time(50), collections()).await.unwrap();
    assert_eq!(fixture.repository.backup_ids().await.unwrap(), [second.id]);
}

#[tokio::test]
async fn paths_that_contradict_each_other_are_refused() {
    let fixture = Fixture::new().await;
    let local = fixture.local("a", b"content");
    let mut backup = fixture.repository.begin(start(None)).await.unwrap();
    for (path, is_allowed) in [("a", true), ("a", false), ("a/b", true)] {
        let added = backup.add_file(&local, options(path), &fixture.transfer()).await;
        assert_eq!(added.is_ok(), is_allowed, "{path}");
    }
    let finished = backup.finish(time(50), collections()).await;
    assert!(matches!(finished, Err(Error::InvalidInput { .. })));
    assert!(fixture.repository.backup_ids().await.unwrap().is_empty());
}

#[tokio::test]
async fn local_files_that_cannot_be_read_are_named() {
    let fixture = Fixture::new().await;
    let mut backup = fixture.repository.begin(start(None)).await.unwrap();
    for path in [fixture.folder.path().join("missing"), fixture.folder.path().to_owned()] {
        let added = backup.add_file(&path, options("a"), &fixture.transfer()).await;
        assert!(matches!(added, Err(Error::LocalFile { path: named, .. }) if named == path));
    }
    // The file grows between its two readings.
    let large = fixture.local("large", &vec![1; 70 << 20]);
    let changed = large.clone();
    let calls = AtomicU64::new(0);
    let transfer = fixture.transfer().with_cancel(move || {
        if calls.fetch_add(1, Ordering::SeqCst) == 11 {
            std::fs::write(&changed, vec![2; 70 << 20]).unwrap();
        }
        false
    });
    let added = backup.add_file(&large, options("large"), &transfer).await;
    assert!(matches!(added, Err(Error::SourceChanged { .. })), "{added:?}");
    assert!(!fixture.names().await.iter().any(|name| name.starts_with("files/")));
}

/// The server runs these operations in tasks, on any thread.
#[tokio::test]
async fn operations_are_tasks() {
    fn task<T: Send>(future: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        future
    }
    let fixture = Fixture::new().await;
    let (repository, transfer) = (&fixture.repository, &fixture.transfer());
    let local = fixture.local("a", b"content");
    let mut backup = task(repository.begin(start(None))).await.unwrap();
    task(backup.add_file(&local, options("a"), transfer)).await.unwrap();
    let made = task(backup.finish(time(50), collections())).await.unwrap();
    task(repository.verify(&VerifyScope::All, transfer)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    task(repository.fetch(&made.files[0], folder.path(), transfer)).await.unwrap();
    task(repository.chain(&timeline(), time(1), time(2))).await.unwrap();
    task(repository.restore_ranges()).await.unwrap();
    let retention = Retention { keep_last: 1, ..Retention::default() };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    let plan = task(repository.plan_prune(&options)).await.unwrap();
    task(repository.apply_prune(&plan, transfer)).await.unwrap();
}

/// Runs a backup of two small files and one in parts.
async fn try_backup(fixture: &Fixture, transfer: &Transfer) -> Result<Manifest> {
    let mut backup = fixture.repository.begin(start(None)).await?;
    let files = [("a", 10), ("b", 9 << 20), ("c", 20)].map(|(name, length)| {
        let local = fixture.folder.path().join(name);
        if !local.exists() {
            std::fs::write(&local, vec![name.as_bytes()[0]; length]).unwrap();
        }
        (local, options(name))
    });
    backup.add_files(&files, transfer).await?;
    transfer.check()?;
    backup.finish(time(50), collections()).await
}

/// Nothing is listed, and a prune removes everything but the identity of the repository.
async fn assert_removable(fixture: &Fixture) {
    assert!(fixture.repository.backup_ids().await.unwrap().is_empty());
    assert!(fixture.problems().await.is_empty());
    fixture.clock.advance_ms(crate::lock::EXPIRY_MS);
    let retention = Retention { keep_last: 1, ..Retention::default() };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    let plan = fixture.repository.plan_prune(&options).await.unwrap();
    fixture.repository.apply_prune(&plan, &fixture.transfer()).await.unwrap();
    assert_eq!(fixture.names().await, ["repository.json"]);
}

#[tokio::test]
async fn a_cancelled_backup_leaves_nothing_listed() {
    let fixture = Fixture::new().await;
    for checks in 0.. {
        let left = AtomicI64::new(checks);
        let cancel = move || left.fetch_sub(1, Ordering::SeqCst) <= 0;
        let transfer = fixture.transfer().with_cancel(cancel);
        match try_backup(&fixture, &transfer).await {
            Ok(_) => {
                assert!(checks > 10);
                break;
            }
            Err(Error::Cancelled) => assert_removable(&fixture).await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_backup_that_loses_its_connection_leaves_nothing_listed() {
    let (inner, left) = (Arc::new(InMemory::new()), Arc::new(AtomicI64::new(i64::MAX)));
    let store = FaultyStore { inner, left: left.clone() };
    let fixture = Fixture::over(Arc::new(store)).await;
    for writes in 0.. {
        left.store(writes, Ordering::SeqCst);
        let made = try_backup(&fixture, &fixture.transfer()).await;
        left.store(i64::MAX, Ordering::SeqCst);
        match made {
            // The lock, three files, the manifest.
            Ok(_) => {
                assert_eq!(writes, 5);
                break;
            }
            Err(Error::Store { .. }) => assert_removable(&fixture).await,
            Err(error) => panic!("{error}"),
        }
    }
    // The lock could not be removed; it expires.
    assert_eq!(fixture.repository.backup_ids().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_backup_whose_lock_expired_and_was_removed_fails() {
    let fixture = Fixture::new().await;
    let mut backup = fixture.repository.begin(start(None)).await.unwrap();
    let local = fixture.local("a", b"content");
    backup.add_file(&local, options("a"), &fixture.transfer()).await.unwrap();
    assert_removable(&fixture).await;
    let finished = backup.finish(time(50), collections()).await;
    assert!(matches!(finished, Err(Error::LockLost { .. })), "{finished:?}");
}

#[tokio::test]
async fn a_running_backup_keeps_its_lock_valid() {
    let fixture = Fixture::new().await;
    let mut backup = fixture.repository.begin(start(None)).await.unwrap();
    let local = fixture.local("a", b"content");
    for name in ["a", "b", "c"] {
        fixture.clock.advance_ms(crate::lock::EXPIRY_MS / 2 + 1);
        backup.add_file(&local, options(name), &fixture.transfer()).await.unwrap();
    }
    let retention = Retention { keep_last: 1, ..Retention::default() };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    let plan = fixture.repository.plan_prune(&options).await.unwrap();
    assert_eq!(plan.running.len(), 1);
    let applied = fixture.repository.apply_prune(&plan, &fixture.transfer()).await;
    assert!(matches!(applied, Err(Error::Busy { .. })), "{applied:?}");
    backup.finish(time(50), collections()).await.unwrap();
}

#[tokio::test]
async fn the_rate_limit_holds() {
    // The limiter's clock and this one may differ by less than a millisecond.
    const LEAST_MS: u128 = 199;
    let fixture = Fixture::new().await;
    let local = fixture.local("a", &vec![1; 2_000_000]);
    let mut backup = fixture.repository.begin(start(None)).await.unwrap();
    // A transfer that begins later makes up for the time since its limit was set.
    let begin = Instant::now();
    let transfer = Transfer::new(Arc::new(SystemClock::new())).with_max_mb_per_second(10);
    backup.add_file(&local, options("a"), &transfer).await.unwrap();
    // Reading and sending are limited separately, and the sending makes up for the time in which
    // it waited for the reading.
    assert!(begin.elapsed().as_millis() >= LEAST_MS, "{:?}", begin.elapsed());
    let made = backup.finish(time(50), collections()).await.unwrap();
    let begin = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let whole = Transfer::new(Arc::new(SystemClock::new())).with_max_mb_per_second(10);
    fixture.repository.fetch(&made.files[0], folder.path(), &whole).await.unwrap();
    assert!(begin.elapsed().as_millis() >= LEAST_MS, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn content_in_memory_is_added_and_read() {
    let f = Fixture::new().await;
    let large: Vec<u8> = (0..20_000_000_u32).map(|at| (at >> 8) as u8).collect();
    let contents = [("small", b"x".to_vec()), ("none", Vec::new()), ("large", large)];
    for expected in [AddedFile::Sent, AddedFile::Known] {
        f.clock.advance_ms(1000);
        let mut backup = f.repository.begin(start(None)).await.unwrap();
        for (name, content) in &contents {
            let path: FilePath = name.parse().unwrap();
            let added = backup.add_content(path, content.clone(), &f.transfer()).await.unwrap();
            assert_eq!(added, expected, "{name}");
        }
        let again = backup.add_content("small".parse().unwrap(), vec![], &f.transfer()).await;
        assert!(matches!(again, Err(Error::InvalidInput { .. })));
        let manifest = backup.finish(time(1), collections()).await.unwrap();
        for file in &manifest.files {
            let read = f.repository.read_content(file, 20_000_000, &f.transfer()).await.unwrap();
            let expected = contents.iter().find(|(name, _)| *name == file.path.as_str());
            assert!(expected.is_some_and(|(_, content)| *content == read));
            let small = f.repository.read_content(file, 10, &f.transfer()).await;
            assert_eq!(small.is_err(), file.size > 10);
        }
        let small = manifest.files.iter().find(|file| file.path.as_str() == "small").unwrap();
        let object = format!("files/{}", small.sha256);
        f.flip(&object, 0).await;
        let damaged = f.repository.read_content(small, 10, &f.transfer()).await;
        assert!(matches!(damaged, Err(Error::Damaged { object: found, .. }) if found == object));
        f.flip(&object, 0).await;
    }
    assert!(f.problems().await.is_empty());
}

//! Tests of whole operations, over memory and over a folder.

mod backup;
mod damage;
mod faulty;
mod folder;
mod hostile;
mod log;
mod names;
mod open;
mod prune;

use std::path::Path;
use std::sync::Arc;

use mayfly_base::{Clock, ManualClock};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use uuid::Uuid;

use crate::*;

/// 2026-11-27 21:21:49 UTC, a Friday.
const NOW_MS: i64 = 1_795_814_509_000;

fn store_id() -> StoreId {
    StoreId(Uuid::from_u128(7))
}

fn timeline() -> Timeline {
    "t1".parse().unwrap()
}

fn time(seconds: u32) -> ClusterTime {
    ClusterTime { seconds, increment: 1 }
}

/// A repository in memory, and its parts.
struct Fixture {
    objects: Arc<dyn ObjectStore>,
    clock: Arc<ManualClock>,
    repository: Repository,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::over(Arc::new(InMemory::new())).await
    }

    async fn over(objects: Arc<dyn ObjectStore>) -> Fixture {
        let clock = Arc::new(ManualClock::at_ms(NOW_MS));
        let repository = Repository::open_or_create(objects.clone(), clock.clone(), store_id());
        let repository = repository.await.unwrap();
        Fixture { objects, clock, repository, folder: tempfile::tempdir().unwrap() }
    }

    fn transfer(&self) -> Transfer {
        Transfer::new(self.clock.clone())
    }

    fn local(&self, name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Makes a backup of these files; the ones that end in `.sst` are immutable.
    async fn backup(
        &self,
        parent: Option<&BackupId>,
        at: ClusterTime,
        files: &[(&str, &[u8])],
    ) -> Manifest {
        self.clock.advance_ms(1000);
        let mut backup = self.repository.begin(start(parent)).await.unwrap();
        for (name, content) in files {
            let local = self.local(&name.replace('/', "_"), content);
            backup.add_file(&local, options(name), &self.transfer()).await.unwrap();
        }
        backup.finish(at, collections()).await.unwrap()
    }

    async fn problems(&self) -> Vec<Problem> {
        let report = self.repository.verify(&VerifyScope::All, &self.transfer()).await;
        report.unwrap().problems
    }

    async fn names(&self) -> Vec<String> {
        names_in(&*self.objects).await
    }

    async fn flip(&self, object: &str, at: usize) {
        let path = object_store::path::Path::from(object);
        let mut bytes = self.objects.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
        bytes[at] ^= 1;
        self.objects.put(&path, bytes.into()).await.unwrap();
    }

    async fn put(&self, object: &str, content: &[u8]) {
        let path = object_store::path::Path::from(object);
        self.objects.put(&path, content.to_vec().into()).await.unwrap();
    }

    async fn get(&self, object: &str) -> Vec<u8> {
        let path = object_store::path::Path::from(object);
        self.objects.get(&path).await.unwrap().bytes().await.unwrap().to_vec()
    }

    async fn delete(&self, object: &str) {
        self.objects.delete(&object_store::path::Path::from(object)).await.unwrap();
    }
}

async fn names_in(objects: &dyn ObjectStore) -> Vec<String> {
    use futures_util::TryStreamExt;
    let names = objects.list(None).map_ok(|found| found.location.to_string());
    let mut names: Vec<String> = names.try_collect().await.unwrap();
    names.sort();
    names
}

fn start(parent: Option<&BackupId>) -> BackupStart {
    BackupStart {
        parent: parent.cloned(),
        timeline: timeline(),
        kind: BackupKind::Files,
        store_format: 3,
        server_version: "0.1.0".into(),
    }
}

fn options(name: &str) -> FileOptions {
    let content = match name.ends_with(".sst") {
        true => FileContent::Immutable { number: 12 },
        false => FileContent::Mutable,
    };
    FileOptions { path: name.parse().unwrap(), content }
}

fn collections() -> Vec<CollectionEntry> {
    vec![CollectionEntry { ns: "shop.orders".into(), uuid: Uuid::from_u128(9), count: 42 }]
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at_ms(NOW_MS))
}

//! The follower over the memory engine, with the fixture kind `fixtureWords`.

use mayfly_base::testing::wait_until;
use mayfly_base::{Clock, ErrorCode, Namespace, SystemClock};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_storage::{
    CreateIndexesOptions, FedDocument, FeedFiles, Index, IndexSelector, NewSearchIndex, ReadView,
    RenameTarget, SearchIndex, SearchSelector, Store, StoreOptions, StoreRole, ValidateOptions,
    whole_range,
};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::{OpCtx, OpRegistry};

use super::*;
use crate::process::LogRing;
use crate::search::{CheckedSearch, SearchCheck};
use crate::server::{CommandLine, ServiceOptions};

/// A service that follows its log.
struct Followed {
    service: Arc<Service>,
    op: Arc<OpCtx>,
    tasks: JoinSet<()>,
}

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

/// Opens a service whose log is followed in the background.
fn open(engine: Arc<dyn Engine>) -> Followed {
    let mut followed = open_alone(engine);
    followed.tasks.spawn(followed.service.clone().follow_log());
    followed
}

/// Opens a service whose log is followed only by the steps of a test.
fn open_alone(engine: Arc<dyn Engine>) -> Followed {
    open_with(engine, StoreOptions { background: false, ..StoreOptions::default() })
}

fn open_with(engine: Arc<dyn Engine>, options: StoreOptions) -> Followed {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(engine, options, clock.clone(), ops.clone()).unwrap();
    let service = Service::new(ServiceOptions {
        store,
        ops,
        clock: clock.clone(),
        log: Arc::new(LogRing::default()),
        command_line: CommandLine { argv: Vec::new(), parsed: DocBuf::empty() },
        host: "localhost:0".into(),
        engine_name: "memory",
        max_connections: 10,
    });
    let op = OpCtx::detached(clock);
    op.set_max_time_ms(60_000);
    Followed { service, op, tasks: JoinSet::new() }
}

impl Followed {
    fn store(&self) -> &Store {
        &self.service.store
    }

    fn index(&self, name: &str) {
        let spec = doc! { "key": { "a": "fixtureWords" }, "name": "words" };
        let spec = DocBuf::from_bson(&spec);
        let options = CreateIndexesOptions::default();
        let view = ReadView::now();
        self.store()
            .create_indexes((&self.op, &view), &ns(name), &[spec.as_doc()], options)
            .unwrap();
    }

    fn insert(&self, name: &str, document: &Document) {
        let view = ReadView::now();
        let (collection, _) = self.store().get_or_create(&view, &ns(name)).unwrap();
        let document = DocBuf::from_bson(document);
        let insert = |unit: &mut mayfly_storage::WriteUnit<'_>| unit.insert(document.as_doc());
        self.store().write(&self.op, &view, &collection, insert).unwrap();
    }

    fn delete(&self, name: &str, id: i32) {
        let view = ReadView::now();
        let collection = self.store().collection(&view, &ns(name)).unwrap();
        let key = self.store().locate(&view, &collection, RawValue::Int32(id)).unwrap().unwrap();
        let delete = |unit: &mut mayfly_storage::WriteUnit<'_>| {
            let old = unit.read(&key)?.unwrap();
            unit.delete(&key, &old)
        };
        self.store().write(&self.op, &view, &collection, delete).unwrap();
    }

    fn found(&self, name: &str) -> (Arc<Collection>, Arc<Index>) {
        let collection = self.store().collection(&ReadView::now(), &ns(name)).unwrap();
        let words = collection.indexes().into_iter().find(|index| index.spec.name() == "words");
        (collection, words.unwrap())
    }

    /// Creates search indexes of these names on all words.
    fn words(&self, name: &str, indexes: &[&str]) {
        let definition = DocBuf::from_bson(&doc! { "mappings": { "dynamic": true } });
        let new = |name: &&str| NewSearchIndex {
            name: (*name).to_owned(),
            kind: "search".to_owned(),
            definition: definition.clone(),
        };
        let new: Vec<_> = indexes.iter().map(new).collect();
        self.store().create_search_indexes(&ns(name), &new).unwrap();
    }

    /// The operations of builds of search indexes.
    fn builds(&self) -> Vec<Arc<OpCtx>> {
        let mut ops = self.service.ops.list();
        ops.retain(|op| &*op.info().desc == "SearchIndexBuild");
        ops
    }

    /// The number of entries that a reader finds.
    fn entries(&self, name: &str) -> Result<u64> {
        let (collection, index) = self.found(name);
        self.store().await_fed(&self.op, &collection, &index)?;
        let snapshot = self.store().snapshot(&ReadView::now()).unwrap();
        Ok(snapshot.count_entries(&index, &whole_range(), usize::MAX).unwrap().0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_find_what_was_written_before() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let f = open(engine.clone());
    f.insert("d.c", &doc! { "_id": 0, "a": "red pen" });
    f.index("d.c");
    for id in 1..200 {
        f.insert("d.c", &doc! { "_id": id, "a": "red pen" });
        f.insert("d.other", &doc! { "_id": id });
        assert_eq!(f.entries("d.c").unwrap(), 2 * u64::try_from(id).unwrap() + 2);
    }
    f.delete("d.c", 7);
    f.store().rename_collection(&ns("d.c"), &ns("d.b"), RenameTarget::MustNotExist).unwrap();
    f.insert("d.b", &doc! { "_id": 1000, "a": "ink" });
    assert_eq!(f.entries("d.b").unwrap(), 2 * 199 + 1);
    // A process that was killed: the engine has what was committed.
    let again = open(engine);
    assert_eq!(again.entries("d.b").unwrap(), 2 * 199 + 1);
    again.insert("d.b", &doc! { "_id": 1001, "a": "ink" });
    assert_eq!(again.entries("d.b").unwrap(), 2 * 199 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_begin_and_end_with_the_indexes() {
    let f = open(Arc::new(MemoryEngine::new()));
    for round in 0..3 {
        f.index("d.c");
        f.insert("d.c", &doc! { "_id": round, "a": "ink" });
        assert_eq!(f.entries("d.c").unwrap(), u64::try_from(round).unwrap() + 1);
        let selectors = [IndexSelector::Name("words")];
        f.store().drop_indexes(&ns("d.c"), Some(&selectors)).unwrap();
    }
    f.index("d.c");
    let (collection, _) = f.found("d.c");
    f.store().drop_collection(&ns("d.c")).unwrap();
    assert!(!collection.has_log_fed());
    let waiting = || Arc::strong_count(&collection) > 1;
    while waiting() {
        f.op.check().expect("the task lets go of a dropped collection");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_store_is_not_written() {
    let f = open(Arc::new(MemoryEngine::new()));
    f.index("d.c");
    f.entries("d.c").unwrap();
    f.store().fsync_lock.lock(&f.op).unwrap();
    // The writes of a command that had begun.
    f.insert("d.c", &doc! { "_id": 1, "a": "ink" });
    let limited = OpCtx::detached(Arc::new(SystemClock::new()));
    limited.set_max_time_ms(300);
    let (collection, index) = f.found("d.c");
    let waited = f.store().await_fed(&limited, &collection, &index);
    assert_eq!(waited.unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
    f.store().fsync_lock.unlock().unwrap();
    assert_eq!(f.entries("d.c").unwrap(), 1);
}

#[test]
fn a_check_finds_what_search_indexes_lack_and_have_too_much() {
    let f = open_alone(Arc::new(MemoryEngine::new()));
    for id in 0..10 {
        let document = if id < 8 {
            doc! { "_id": id, "v": [1.0, 2.0] }
        } else {
            doc! { "_id": id }
        };
        f.insert("d.c", &document);
    }
    let definition = |definition: Document| DocBuf::from_bson(&definition);
    let words = definition(doc! { "mappings": { "dynamic": true } });
    let field = doc! { "type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine" };
    let vectors = definition(doc! { "fields": [field] });
    let new = [("words", "search", words), ("vectors", "vectorSearch", vectors)];
    let new = new.map(|(name, kind, definition)| NewSearchIndex {
        name: name.to_owned(),
        kind: kind.to_owned(),
        definition,
    });
    f.store().create_search_indexes(&ns("d.c"), &new).unwrap();
    f.service.follow_now().unwrap();
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let check = || {
        let mut check = SearchCheck::new(&collection);
        let options = ValidateOptions::default();
        f.store().validate_with(&f.op, &collection, options, &mut check).unwrap();
        check.finish()
    };
    let sound = |name: &str, documents| CheckedSearch {
        name: name.to_owned(),
        documents,
        ..CheckedSearch::default()
    };
    assert_eq!(check(), [sound("words", 10), sound("vectors", 8)]);
    f.insert("d.c", &doc! { "_id": 10, "v": [2.0, 1.0] });
    f.delete("d.c", 0);
    f.service.follow_now().unwrap();
    assert_eq!(check(), [sound("words", 10), sound("vectors", 8)]);
    // One is lost, one is of another time, one does not exist, and one has no vector.
    let key = |id: i32| collection.id_key(RawValue::Int32(id)).to_vec();
    let document = definition(doc! { "v": [1.0, 1.0] });
    let put = |id| FedDocument { id_key: key(id), document: Some((7, document.clone())) };
    let damage = [FedDocument { id_key: key(3), document: None }, put(4), put(77), put(9)];
    for index in collection.search_indexes().iter() {
        let open = index.versions[0].files.get::<OpenSearch>().unwrap();
        let files = crate::search::Followed { open: &open, now_micros: 0 };
        files.apply(&damage).unwrap();
    }
    let words = CheckedSearch { missing: 1, extra: 1, outdated: 2, ..sound("words", 10) };
    let vectors = CheckedSearch { missing: 1, extra: 2, outdated: 1, ..sound("vectors", 9) };
    assert_eq!(check(), [words, vectors]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_op_ends_the_build_of_a_search_index_until_its_next_definition() {
    let f = open(Arc::new(MemoryEngine::new()));
    f.insert("d.c", &doc! { "_id": 1, "a": "red pen" });
    // No step does anything before the unlock.
    f.store().fsync_lock.lock(&f.op).unwrap();
    let definition = |dynamic| DocBuf::from_bson(&doc! { "mappings": { "dynamic": dynamic } });
    f.words("d.c", &["words"]);
    let builds = || f.builds();
    wait_until("the build begins", || !builds().is_empty());
    let info = builds()[0].info();
    let command = RawDoc::new(&info.command).unwrap();
    assert_eq!(command.get("createSearchIndexes"), Some(RawValue::String("c")));
    assert_eq!(info.ns, "d.c");
    builds()[0].kill(ErrorCode::Interrupted);
    f.store().fsync_lock.unlock();
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let latest = || collection.search_indexes()[0].latest().unwrap().clone();
    wait_until("the build ends", || latest().failure().is_some() && builds().is_empty());
    assert!(!latest().is_ready());
    let (by, check) = (SearchSelector::Name("words"), |_: &SearchIndex| Ok(()));
    f.store().update_search_index(&ns("d.c"), by, &definition(false), check).unwrap();
    wait_until("the next definition is ready", || latest().is_ready() && builds().is_empty());
    assert_eq!(latest().failure(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_op_ends_a_build_whose_files_cannot_be_opened() {
    let f = open(Arc::new(MemoryEngine::new()));
    // A file instead of the folder, so that each step fails before it reads a document.
    let file = tempfile::NamedTempFile::new().unwrap();
    f.service.search.keep_in(file.path().to_owned());
    f.insert("d.c", &doc! { "_id": 1, "a": "red pen" });
    f.words("d.c", &["words"]);
    wait_until("the build begins", || !f.builds().is_empty());
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let latest = || collection.search_indexes()[0].latest().unwrap().clone();
    f.builds()[0].kill(ErrorCode::Interrupted);
    wait_until("the build ends", || latest().failure().is_some() && f.builds().is_empty());
}

#[test]
fn an_index_that_fails_does_not_stop_the_others() {
    let f = open_alone(Arc::new(MemoryEngine::new()));
    let folder = tempfile::tempdir().unwrap();
    f.service.search.keep_in(folder.path().to_owned());
    f.insert("d.c", &doc! { "_id": 1, "a": "red pen" });
    f.words("d.c", &["before", "damaged", "after"]);
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let indexes = collection.search_indexes();
    let version = |at: usize| indexes[at].latest().unwrap();
    std::fs::write(folder.path().join(version(1).file.to_string()), "no folder").unwrap();
    let mut builds = Builds::default();
    while !version(0).is_ready() || !version(2).is_ready() {
        f.op.check().expect("the sound indexes are ready in time");
        f.service.feed(&collection, &mut builds).unwrap_err();
    }
    // Those that are ready are not shown as builds any more.
    assert_eq!(f.builds().len(), 1);
    assert!(!version(1).is_ready());
}

impl Followed {
    /// Creates a view with one stage, or changes it.
    fn view(&self, name: &str, on: &str, stage: Document) {
        let options = DocBuf::from_bson(&doc! { "viewOn": on, "pipeline": [stage] });
        let (name, reads) = (ns(name), &mayfly_query::view_reads);
        let exists = self.store().view(&ReadView::now(), &name).unwrap().is_some();
        match exists {
            true => self.store().replace_view(&self.op, &name, options.as_doc(), reads),
            false => self.store().create_view(&self.op, &name, options.as_doc(), reads),
        }
        .unwrap();
    }

    /// What a comparison of the only search index of a collection finds.
    fn checked(&self, name: &str) -> CheckedSearch {
        let collection = self.store().collection(&ReadView::now(), &ns(name)).unwrap();
        let mut check = SearchCheck::new(&collection);
        let options = ValidateOptions::default();
        self.store().validate_with(&self.op, &collection, options, &mut check).unwrap();
        check.finish().pop().unwrap_or_default()
    }
}

fn shows_from(n: i32) -> Document {
    doc! { "$match": { "$expr": { "$gte": [{ "$add": ["$_id", 0] }, n] } } }
}

#[test]
fn an_index_on_a_view_contains_what_the_view_shows() {
    let f = open_alone(Arc::new(MemoryEngine::new()));
    for id in 0..10 {
        f.insert("d.c", &doc! { "_id": id, "a": "pen" });
    }
    // The expression of the view fails for this document.
    f.insert("d.c", &doc! { "_id": "x", "a": "pen" });
    f.view("d.w", "c", shows_from(4));
    f.words("d.w", &["words"]);
    f.service.follow_now().unwrap();
    let sound = |documents| CheckedSearch {
        name: "words".to_owned(),
        documents,
        ..CheckedSearch::default()
    };
    assert_eq!(f.checked("d.c"), sound(6));
    f.insert("d.c", &doc! { "_id": 10, "a": "pen" });
    f.insert("d.c", &doc! { "_id": -1, "a": "pen" });
    f.delete("d.c", 4);
    f.delete("d.c", 0);
    f.service.follow_now().unwrap();
    assert_eq!(f.checked("d.c"), sound(6));
    f.view("d.w", "c", shows_from(8));
    f.service.follow_now().unwrap();
    assert_eq!(f.checked("d.c"), sound(3));
    // Files with a document that the view hides, and without one that it shows.
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let version = collection.search_indexes()[0].latest().unwrap().clone();
    let open = version.files.get::<OpenSearch>().unwrap();
    let key = |id: i32| collection.id_key(RawValue::Int32(id)).to_vec();
    let hidden = DocBuf::from_bson(&doc! { "_id": 9, "a": "pen" });
    let damage = [
        FedDocument { id_key: key(1), document: Some((7, hidden)) },
        FedDocument { id_key: key(8), document: None },
    ];
    crate::search::Followed { open: &open, now_micros: 0 }.apply(&damage).unwrap();
    assert_eq!(f.checked("d.c"), CheckedSearch { missing: 1, extra: 1, ..sound(3) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_notices_views_that_clients_changed_themselves() {
    let f = open(Arc::new(MemoryEngine::new()));
    for id in 0..10 {
        f.insert("d.c", &doc! { "_id": id, "a": "pen" });
    }
    f.view("d.w", "c", shows_from(4));
    f.words("d.w", &["words"]);
    let collection = f.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
    let latest = || collection.search_indexes()[0].latest().unwrap().clone();
    wait_until("the index is ready", || latest().is_ready());
    let views = f.store().collection(&ReadView::now(), &ns("d.system.views")).unwrap();
    let write = |definition: Document| {
        let view = ReadView::now();
        let id = RawValue::String("d.w");
        let key = f.store().locate(&view, &views, id).unwrap().unwrap();
        let definition = DocBuf::from_bson(&definition);
        let write = |unit: &mut mayfly_storage::WriteUnit<'_>| {
            let old = unit.read(&key)?.unwrap();
            unit.update(&key, &old, definition.as_doc(), mayfly_storage::UpdateStyle::Replacement)
        };
        f.store().write(&f.op, &view, &views, write).unwrap();
        // A search that finds other stages does this.
        f.store().note_view_changed(&ns("d.w"));
    };
    let (before, stages) = (latest(), [shows_from(8)]);
    write(doc! { "_id": "d.w", "viewOn": "c", "pipeline": stages.to_vec() });
    wait_until("the index is filled again", || latest().number == 1 && latest().is_ready());
    assert!(before.is_dropped());
    wait_until("the index is sound", || f.checked("d.c").documents == 2);
    assert!(f.checked("d.c").is_valid());
    // Stages that search indexes do not support.
    write(doc! { "_id": "d.w", "viewOn": "c", "pipeline": [{ "$limit": 1 }] });
    wait_until("the index fails", || latest().failure().is_some());
    assert!(latest().failure().unwrap().contains("$limit is not supported"));
    assert!(!latest().is_ready());
    write(doc! { "_id": "d.w", "viewOn": "c", "pipeline": stages.to_vec() });
    wait_until("the index is filled again", || latest().is_ready());
    // The view reads nothing.
    write(doc! { "_id": "d.w", "viewOn": "nothing", "pipeline": [] });
    wait_until("the index is dropped", || collection.search_indexes().is_empty());
}

/// Opens a service of this role over a shared engine, with files in this folder. Its log is
/// followed in the background.
fn open_member(engine: &Arc<dyn Engine>, role: StoreRole, folder: &tempfile::TempDir) -> Followed {
    let mut followed = open_with(engine.clone(), StoreOptions { role, ..StoreOptions::default() });
    followed.service.search.keep_in(folder.path().to_owned());
    followed.tasks.spawn(followed.service.clone().follow_log());
    followed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secondary_has_files_of_its_own() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let owner = open_member(&engine, StoreRole::Owner, &folders[0]);
    let mut secondary = open_member(&engine, StoreRole::Secondary, &folders[1]);
    for id in 0..10 {
        owner.insert("d.c", &doc! { "_id": id, "a": "pen" });
    }
    owner.words("d.c", &["words"]);
    let latest = |of: &Followed| {
        let collection = of.store().collection(&ReadView::now(), &ns("d.c"))?;
        let indexes = collection.search_indexes();
        Some(indexes.first()?.latest()?.clone()).filter(|version| version.is_ready())
    };
    for restarts in 0..2_i32 {
        wait_until("the secondary is ready", || latest(&secondary).is_some());
        owner.insert("d.c", &doc! { "_id": 10 + restarts, "a": "pen" });
        let collection = secondary.store().collection(&ReadView::now(), &ns("d.c")).unwrap();
        let until = (secondary.store().newest_write().unwrap(), Duration::from_secs(30));
        let version = latest(&secondary).unwrap();
        let op = &secondary.op;
        assert!(secondary.store().await_search(op, &collection, &version, until).unwrap());
        let open = version.files.get::<OpenSearch>().unwrap();
        assert_eq!(open.index.sizes().documents, 11 + u64::from(restarts.unsigned_abs()));
        // The owner may write during a validation.
        assert_eq!(secondary.checked("d.c"), CheckedSearch::default());
        assert!(folders[1].path().join(version.file.to_string()).exists());
        // The files were committed when they were ready; a restart continues there.
        assert_eq!(secondary.service.search.rebuilds.get(), 0);
        secondary.tasks.shutdown().await;
        drop((collection, version, open));
        secondary = open_member(&engine, StoreRole::Secondary, &folders[1]);
    }
    let by_name = SearchSelector::Name("words");
    wait_until("the owner is ready", || latest(&owner).is_some());
    owner.store().drop_search_index(&ns("d.c"), by_name).unwrap();
    let is_empty = || std::fs::read_dir(folders[1].path()).unwrap().next().is_none();
    wait_until("the files are removed", is_empty);
}

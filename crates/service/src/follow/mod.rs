//! The follower: brings log-fed indexes forward in the background.
//!
//! ```text
//! follow_log            one task of the server; looks for collections when definitions change
//!   follow_collection   a task for each collection with log-fed indexes
//!     Store::feed       a step, on a thread of the blocking pool; one step at a time
//! ```
//!
//! A collection's task waits without a thread until an entry of the log concerns its collection, so
//! an idle index costs nothing, and neither do collections without such an index. A step that fails
//! is repeated, after a pause that becomes longer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{ClientData, Error, Result};
use mayfly_storage::{Collection, FeedStep};
use mayfly_work::OpInfo;
use mayfly_work::current::{self, Current};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::search::{OpenSearch, of_index};
use crate::server::Service;
use builds::Builds;

mod builds;
mod search;

#[cfg(test)]
mod tests;

/// The pause after a failed step: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The least time that a collection's task waits for an entry while files are to be committed.
const SHORTEST_COMMIT: Duration = Duration::from_millis(5);

/// The pause while `fsync` has locked the store.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

impl Service {
    /// Follows the log until the task is aborted.
    pub async fn follow_log(self: Arc<Service>) {
        let one_step = Arc::new(Semaphore::new(1));
        let mut tasks = JoinSet::new();
        let mut running: HashMap<u64, AbortHandle> = HashMap::new();
        let mut files = None;
        loop {
            let edition = self.store.definitions_edition();
            self.follow_views().await;
            let collections = self.store.log_fed_collections();
            let present = self.search_files();
            if files.as_ref() != Some(&present) && self.remove_other_files(&present) {
                files = Some(present);
            }
            let ids: HashSet<u64> = collections.iter().map(|collection| collection.id()).collect();
            running.retain(|id, task| {
                let goes_on = ids.contains(id) && !task.is_finished();
                if !goes_on {
                    task.abort();
                }
                goes_on
            });
            std::iter::from_fn(|| tasks.try_join_next()).for_each(drop);
            for collection in collections {
                running.entry(collection.id()).or_insert_with(|| {
                    let (service, one_step) = (self.clone(), one_step.clone());
                    tasks.spawn(follow_collection(service, collection, one_step))
                });
            }
            self.store.wait_for_definitions(edition).await;
        }
    }

    /// Lets search indexes on views follow changes of the views. After an error they follow with
    /// the next change of a definition.
    async fn follow_views(self: &Arc<Service>) {
        if self.store.log_fed_collections().is_empty() {
            return;
        }
        let service = self.clone();
        let followed = tokio::task::spawn_blocking(move || service.store.follow_all_views()).await;
        if let Ok(Err(error)) = followed {
            let why = ClientData(error);
            tracing::warn!(%why, "search indexes on views could not follow changes of the views");
        }
    }

    /// Runs one step as an operation. Steps of builds belong to the operations of these.
    fn feed(&self, collection: &Collection, builds: &mut Builds) -> Result<FeedStep> {
        let ns = collection.namespace().as_str().to_owned();
        let op = self.ops.begin(OpInfo { desc: "logFollower".into(), ns, ..OpInfo::default() });
        let _entered = current::enter(Current { op: Some(op.op().clone()) });
        let entries = self.store.feed(op.op(), collection)?;
        Ok(entries.and(self.feed_search(op.op(), collection, builds)?))
    }

    /// Runs steps until all indexes that follow the log have everything that was written before.
    /// For a service whose log no task follows: two steps of one index must not run at once.
    ///
    /// # Errors
    /// Errors of a step.
    pub fn follow_now(&self) -> Result<()> {
        self.store.follow_all_views()?;
        for collection in self.store.log_fed_collections() {
            let (mut step, mut builds) = (FeedStep::More, Builds::default());
            while step == FeedStep::More {
                step = self.feed(&collection, &mut builds)?;
            }
        }
        Ok(())
    }

    /// The numbers of the files of all search indexes.
    fn search_files(&self) -> HashSet<u64> {
        let indexes = self.store.search_indexes();
        let versions = indexes.iter().flat_map(|index| &index.versions);
        versions.map(|version| version.file).collect()
    }

    /// Removes the files of search indexes that were dropped. Returns whether all are removed: the
    /// next change of a definition tries the others again.
    fn remove_other_files(&self, present: &HashSet<u64>) -> bool {
        let removed = self.search.remove_others(present);
        if let Err(error) = &removed {
            tracing::warn!(%error, "files of dropped search indexes could not be removed; this is tried again after the next change of a definition");
        }
        removed.is_ok()
    }

    /// The time until files of a collection's search indexes are to be committed.
    fn commit_due_in(&self, collection: &Collection) -> Option<Duration> {
        let now = self.clock.monotonic_micros();
        let indexes = collection.search_indexes();
        let versions = indexes.iter().flat_map(|index| &index.versions);
        let due = versions.filter_map(|version| {
            let open = version.files.get::<OpenSearch>()?;
            let is_new = version.is_filled() && !version.is_ready();
            if is_new { Some(0) } else { open.commit_due_in(now) }
        });
        due.min().map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }
}

/// Brings the indexes of one collection forward until it has none.
async fn follow_collection(
    service: Arc<Service>,
    collection: Arc<Collection>,
    one_step: Arc<Semaphore>,
) {
    let mut pause = FIRST_PAUSE;
    let builds = Arc::new(Mutex::new(Builds::default()));
    while collection.has_log_fed() {
        await_work(&service, &collection).await;
        let step = step(&service, &collection, &one_step, &builds).await;
        match step {
            Ok(FeedStep::More | FeedStep::Current) => {
                service.begin_merges(&collection);
                pause = FIRST_PAUSE;
            }
            Ok(FeedStep::Locked) => tokio::time::sleep(LOCKED_PAUSE).await,
            // It was dropped, or the server stops.
            Err(_) if collection.is_dropped() || service.shutdown.has_begun() => return,
            Err(error) => {
                let (namespace, why) = (collection.namespace(), ClientData(error));
                tracing::warn!(%namespace, %why, "the indexes of a collection could not follow the operation log; this is tried again");
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Waits until a step has something to do: an entry about the collection, a new index, or files of
/// a search index that are to be committed.
async fn await_work(service: &Service, collection: &Collection) {
    let due = service.commit_due_in(collection).map(|due| due.max(SHORTEST_COMMIT));
    let commit = async {
        match due {
            Some(due) => tokio::time::sleep(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(commit);
    while collection.has_log_fed() {
        let edition = service.store.definitions_edition();
        tokio::select! {
            () = service.store.wait_for_feed(collection) => return,
            () = &mut commit => return,
            // The next wait considers the indexes that the collection has now.
            () = service.store.wait_for_definitions(edition) => {}
        }
    }
}

/// Runs one step on a thread that may block.
async fn step(
    service: &Arc<Service>,
    collection: &Arc<Collection>,
    one_step: &Semaphore,
    builds: &Arc<Mutex<Builds>>,
) -> Result<FeedStep> {
    let stopped = |why: &dyn std::fmt::Display| Error::internal(format!("a step ended: {why}"));
    let _turn = one_step.acquire().await.map_err(|why| stopped(&why))?;
    let (service, collection, builds) = (service.clone(), collection.clone(), builds.clone());
    let run = move || service.feed(&collection, &mut builds.lock());
    tokio::task::spawn_blocking(run).await.map_err(|why| stopped(&why))?
}

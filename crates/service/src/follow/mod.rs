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
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::server::Service;

#[cfg(test)]
mod tests;

/// The pause after a failed step: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause while `fsync` has locked the store.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

impl Service {
    /// Follows the log until the task is aborted.
    pub async fn follow_log(self: Arc<Service>) {
        let one_step = Arc::new(Semaphore::new(1));
        let mut tasks = JoinSet::new();
        let mut running: HashMap<u64, AbortHandle> = HashMap::new();
        loop {
            let edition = self.store.definitions_edition();
            let collections = self.store.log_fed_collections();
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

    /// Runs one step as an operation.
    fn feed(&self, collection: &Collection) -> Result<FeedStep> {
        let ns = collection.namespace().as_str().to_owned();
        let op = self.ops.begin(OpInfo { desc: "logFollower".into(), ns, ..OpInfo::default() });
        let _entered = current::enter(Current { op: Some(op.op().clone()) });
        self.store.feed(op.op(), collection)
    }
}

/// Brings the indexes of one collection forward until it has none.
async fn follow_collection(
    service: Arc<Service>,
    collection: Arc<Collection>,
    one_step: Arc<Semaphore>,
) {
    let mut pause = FIRST_PAUSE;
    while collection.has_log_fed() {
        service.store.wait_for_feed(&collection).await;
        let step = step(&service, &collection, &one_step).await;
        match step {
            Ok(FeedStep::More | FeedStep::Current) => pause = FIRST_PAUSE,
            Ok(FeedStep::Locked) => tokio::time::sleep(LOCKED_PAUSE).await,
            // It was dropped, or the server stops.
            Err(_) if collection.is_dropped() || service.shutdown.is_requested() => return,
            Err(error) => {
                let (namespace, why) = (collection.namespace(), ClientData(error));
                tracing::warn!(%namespace, %why, "the indexes of a collection could not follow the operation log; this is tried again");
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Runs one step on a thread that may block.
async fn step(
    service: &Arc<Service>,
    collection: &Arc<Collection>,
    one_step: &Semaphore,
) -> Result<FeedStep> {
    let stopped = |why: &dyn std::fmt::Display| Error::internal(format!("a step ended: {why}"));
    let _turn = one_step.acquire().await.map_err(|why| stopped(&why))?;
    let (service, collection) = (service.clone(), collection.clone());
    let run = move || service.feed(&collection);
    tokio::task::spawn_blocking(run).await.map_err(|why| stopped(&why))?
}

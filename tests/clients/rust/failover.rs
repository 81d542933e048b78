//! What clients of the Rust driver see while the primary of their replica set steps down; what is
//! expected is listed in ../README.md.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::future::{join, try_join_all};
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::error::Error;
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, ClientSession, Collection, Database};
use tokio::sync::{Mutex, MutexGuard};

type Tested = Result<(), Box<dyn std::error::Error>>;

const WAIT: Duration = Duration::from_secs(12);

/// One test at a time steps the primary down.
static TURN: Mutex<()> = Mutex::const_new(());

/// The set, a client under test, and an operator who steps the primary down.
struct ReplicaSet {
    members: Vec<String>,
    operator: Database,
    client: Client,
    db: Database,
    _turn: MutexGuard<'static, ()>,
}

/// Polls a condition.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !condition().await {
        assert!(Instant::now() < deadline, "not in {WAIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl ReplicaSet {
    async fn open(name: &str) -> Result<ReplicaSet, Error> {
        let turn = TURN.lock().await;
        let uri = std::env::var("MONGODB_REPLICA_SET_URI").expect("an address");
        let hosts = uri.split('/').nth(2).expect("hosts");
        let client = Client::with_uri_str(&uri).await?;
        let set = ReplicaSet {
            members: hosts.split(',').map(str::to_owned).collect(),
            operator: Client::with_uri_str(&uri).await?.database("admin"),
            db: client.database(&format!("clients_rust_failover_{name}")),
            client,
            _turn: turn,
        };
        set.primary().await;
        set.db.drop().await?;
        Ok(set)
    }

    /// Waits until every member is there, and gives the name of the primary.
    async fn primary(&self) -> String {
        let mut primary = String::new();
        until("the set has a primary and all members", async || {
            let Ok(hello) = self.operator.run_command(doc! {"hello": 1}).await else {
                return false;
            };
            let hosts = hello.get_array("hosts").map_or(0, Vec::len);
            primary = hello.get_str("me").unwrap_or_default().to_owned();
            hello.get_bool("isWritablePrimary") == Ok(true) && hosts == self.members.len()
        })
        .await;
        primary
    }

    /// Makes the other member the primary. A member alone is the primary again after a second.
    async fn step_down(&self) -> Result<(), Error> {
        let command = if self.members.len() > 1 {
            doc! {"replSetStepDown": 60}
        } else {
            doc! {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true}
        };
        self.operator.run_command(command).await.map(drop)
    }

    /// Makes the first member the primary again, since the proxy leads to it.
    async fn close(self) -> Tested {
        if self.primary().await != self.members[0] {
            self.step_down().await?;
            assert_eq!(self.primary().await, self.members[0]);
        }
        Ok(())
    }
}

#[tokio::test]
async fn writers() -> Tested {
    let set = ReplicaSet::open("writers").await?;
    let counters: Collection<Document> = set.db.collection("counters");
    let items: Collection<Document> = set.db.collection("items");
    counters.insert_many((0..3).map(|id| doc! {"_id": id, "n": 0})).await?;
    let done = [(); 4].map(|()| AtomicI32::new(0));
    let ended = AtomicBool::new(false);
    let write = async |writer: usize| {
        while !ended.load(Ordering::Relaxed) {
            let id = done[writer].load(Ordering::Relaxed);
            if writer < 3 {
                let increment = doc! {"$inc": {"n": 1}};
                counters.update_one(doc! {"_id": writer as i32}, increment).await.map(drop)?;
            } else {
                items.insert_one(doc! {"_id": id}).await.map(drop)?;
            }
            done[writer].fetch_add(1, Ordering::Relaxed);
        }
        Ok::<_, Error>(())
    };
    let counted = || done.each_ref().map(|count| count.load(Ordering::Relaxed));
    let go_on = async || {
        let before = counted();
        until("every writer goes on", async || {
            counted().iter().zip(before).all(|(count, before)| *count >= before + 20)
        })
        .await;
    };
    let steps = async {
        go_on().await;
        set.step_down().await?;
        go_on().await;
        ended.store(true, Ordering::Relaxed);
        Ok::<_, Error>(())
    };
    let (written, stepped) = join(try_join_all((0..4).map(write)), steps).await;
    written?;
    stepped?;
    let counted = counted();
    for id in 0..3 {
        let counter = counters.find_one(doc! {"_id": id}).await?.expect("a counter");
        assert_eq!(counter.get_i32("n")?, counted[usize::try_from(id)?]);
    }
    assert_eq!(items.count_documents(doc! {}).await?, u64::try_from(counted[3])?);
    set.close().await
}

/// Reads events until there are so many.
async fn see(
    stream: &mut ChangeStream<ChangeStreamEvent<Document>>,
    seen: &mut Vec<i32>,
    count: usize,
) -> Tested {
    while seen.len() < count {
        let event = tokio::time::timeout(WAIT, stream.try_next()).await??.expect("an event");
        seen.push(event.document_key.expect("a key").get_i32("_id")?);
    }
    Ok(())
}

#[tokio::test]
async fn change_stream() -> Tested {
    let set = ReplicaSet::open("change_stream").await?;
    let items: Collection<Document> = set.db.collection("items");
    set.db.create_collection("items").await?;
    let mut stream = items.watch().await?;
    let mut seen = Vec::new();
    for id in 0..10 {
        items.insert_one(doc! {"_id": id}).await?;
    }
    see(&mut stream, &mut seen, 5).await?;
    set.step_down().await?;
    for id in 10..20 {
        items.insert_one(doc! {"_id": id}).await?;
    }
    see(&mut stream, &mut seen, 20).await?;
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    set.close().await
}

#[tokio::test]
async fn reads_on_a_secondary() -> Tested {
    let set = ReplicaSet::open("reads").await?;
    if set.members.len() < 2 {
        return Ok(());
    }
    let items: Collection<Document> = set.db.collection("items");
    let secondary = SelectionCriteria::ReadPreference(ReadPreference::Secondary { options: None });
    let mut session = set.client.start_session().causal_consistency(true).await?;
    for id in 0..20 {
        if id == 10 {
            set.step_down().await?;
        }
        items.insert_one(doc! {"_id": id}).session(&mut session).await?;
        let find = items.find_one(doc! {"_id": id}).selection_criteria(secondary.clone());
        assert_eq!(find.session(&mut session).await?, Some(doc! {"_id": id}));
    }
    let count = items.count_documents(doc! {}).selection_criteria(secondary);
    assert_eq!(count.session(&mut session).await?, 20);
    set.close().await
}

#[tokio::test]
async fn transaction() -> Tested {
    let set = ReplicaSet::open("transaction").await?;
    let accounts: Collection<Document> = set.db.collection("accounts");
    accounts.insert_many([doc! {"_id": "ann", "n": 100}, doc! {"_id": "bob", "n": 0}]).await?;
    let runs = AtomicI32::new(0);
    let transfer = async |session: &mut ClientSession| {
        let (take, give) = (doc! {"$inc": {"n": -30}}, doc! {"$inc": {"n": 30}});
        accounts.update_one(doc! {"_id": "ann"}, take).session(&mut *session).await?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            set.step_down().await?;
        }
        accounts.update_one(doc! {"_id": "bob"}, give).session(&mut *session).await?;
        Ok(())
    };
    set.client.start_session().await?.start_transaction().and_run2(transfer).await?;
    assert!(runs.load(Ordering::Relaxed) > 1, "the callback ran once");
    let found: Vec<Document> =
        accounts.find(doc! {}).sort(doc! {"_id": 1}).await?.try_collect().await?;
    assert_eq!(found, [doc! {"_id": "ann", "n": 70}, doc! {"_id": "bob", "n": 30}]);
    set.close().await
}

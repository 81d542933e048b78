//! Transactions, causal and snapshot sessions of the Rust driver; what is expected is listed in
//! ../README.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::event::{EventHandler, command::CommandEvent};
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, ClientSession, Collection};

type Tested = Result<(), Box<dyn std::error::Error>>;

const POSTURES: [(&str, &str); 2] = [
    ("MONGODB_URI", "MONGODB_PROXY_URI"),
    ("MONGODB_REPLICA_SET_URI", "MONGODB_REPLICA_SET_PROXY_URI"),
];

/// Two accounts in two databases, and the ways to them.
struct Bank {
    client: Client,
    elsewhere: Client,
    proxied: Client,
    name: String,
    commits: Arc<AtomicI32>,
    aborts: Arc<AtomicI32>,
}

/// The proxies know the cuts of a test by its application name.
async fn connect(
    variable: &str,
    name: &str,
    handler: Option<EventHandler<CommandEvent>>,
) -> Client {
    let uri = std::env::var(variable).expect(variable);
    let mut options = ClientOptions::parse(uri).await.expect("an address");
    options.command_event_handler = handler;
    options.app_name = Some(name.to_owned());
    Client::with_options(options).expect("a client")
}

impl Bank {
    async fn open((direct, proxied): (&str, &str), name: impl Into<String>) -> Bank {
        let name = name.into();
        let [commits, aborts] = [(); 2].map(|()| Arc::new(AtomicI32::new(0)));
        let counts = (Arc::clone(&commits), Arc::clone(&aborts));
        let handler = EventHandler::callback(move |event| {
            let CommandEvent::Started(started) = event else { return };
            match started.command_name.as_str() {
                "commitTransaction" => counts.0.fetch_add(1, Ordering::Relaxed),
                "abortTransaction" => counts.1.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        });
        let bank = Bank {
            client: connect(direct, &name, None).await,
            elsewhere: connect(direct, &name, None).await,
            proxied: connect(proxied, &name, Some(handler)).await,
            name,
            commits,
            aborts,
        };
        let money = [doc! {"_id": "ann", "n": 100}, doc! {"_id": "bob", "n": 0}];
        for (coll, account) in bank.accounts(&bank.client).iter().zip(money) {
            coll.drop().await.expect("drop");
            coll.insert_one(account).await.expect("an account");
        }
        bank
    }

    fn accounts(&self, client: &Client) -> [Collection<Document>; 2] {
        ["clients_rust_a", "clients_rust_b"].map(|db| client.database(db).collection(&self.name))
    }

    async fn transfer(&self, session: &mut ClientSession, amount: i32) -> Result<(), Error> {
        let [first, second] = self.accounts(&session.client());
        let (take, give) = (doc! {"$inc": {"n": -amount}}, doc! {"$inc": {"n": amount}});
        first.update_one(doc! {"_id": "ann"}, take).session(&mut *session).await?;
        second.update_one(doc! {"_id": "bob"}, give).session(&mut *session).await?;
        Ok(())
    }

    async fn seen_by(&self, session: &mut ClientSession) -> Result<[i32; 2], Error> {
        let [first, second] = self.accounts(&session.client());
        let ann = first.find_one(doc! {"_id": "ann"}).session(&mut *session).await?;
        let bob = second.find_one(doc! {"_id": "bob"}).session(&mut *session).await?;
        Ok([ann, bob].map(|account| account.expect("an account").get_i32("n").expect("money")))
    }

    async fn money(&self) -> Result<[i32; 2], Error> {
        self.seen_by(&mut self.elsewhere.start_session().await?).await
    }

    /// Asks the proxy for a cut, and gives how many there have been.
    async fn cut(&self, what: &str) -> Result<i32, Error> {
        let reply = self.proxied.database("admin").run_command(doc! {"cut": what}).await?;
        Ok(reply.get_i32("cuts").expect("a number"))
    }
}

#[tokio::test]
async fn all_or_nothing() -> Tested {
    for posture in POSTURES {
        let bank = &Bank::open(posture, "all_or_nothing").await;
        let mut session = bank.client.start_session().await?;
        let commits = async |session: &mut ClientSession| {
            bank.transfer(session, 30).await?;
            assert_eq!(bank.seen_by(session).await?, [70, 30]);
            assert_eq!(bank.money().await?, [100, 0]);
            Ok("done")
        };
        assert_eq!(session.start_transaction().and_run2(commits).await?, "done");
        assert_eq!(bank.money().await?, [70, 30]);
        let fails = async |session: &mut ClientSession| {
            bank.transfer(session, 30).await?;
            Err::<(), _>(Error::custom("not this time"))
        };
        let error = session.start_transaction().and_run2(fails).await.expect_err("an error");
        assert_eq!(error.get_custom::<&str>(), Some(&"not this time"));
        assert_eq!(bank.money().await?, [70, 30]);
    }
    Ok(())
}

/// Adds ten times one to what it read.
async fn count_up(bank: &Bank, client: &Client) -> Result<(), Error> {
    let mut session = client.start_session().await?;
    for _ in 0..10 {
        let counts = async |session: &mut ClientSession| {
            let [coll, _] = bank.accounts(client);
            let [n, _] = bank.seen_by(session).await?;
            let set = doc! {"$set": {"n": n + 1}};
            coll.update_one(doc! {"_id": "ann"}, set).session(session).await
        };
        session.start_transaction().and_run2(counts).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_loser_of_a_conflict_is_run_again() -> Tested {
    for posture in POSTURES {
        let bank = Bank::open(posture, "conflicts").await;
        let mut winner = bank.client.start_session().await?;
        let mut loser = bank.elsewhere.start_session().await?;
        winner.start_transaction().await?;
        loser.start_transaction().await?;
        bank.transfer(&mut winner, -1).await?;
        let error = bank.transfer(&mut loser, -1).await.expect_err("a conflict");
        assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
        loser.abort_transaction().await?;
        winner.commit_transaction().await?;
        let (first, second) =
            tokio::join!(count_up(&bank, &bank.client), count_up(&bank, &bank.elsewhere));
        first?;
        second?;
        assert_eq!(bank.money().await?, [121, -1]);
    }
    Ok(())
}

#[tokio::test]
async fn causal_session() -> Tested {
    for posture in POSTURES {
        let bank = Bank::open(posture, "causal").await;
        let [[mine, _], [theirs, _]] = [&bank.client, &bank.elsewhere].map(|c| bank.accounts(c));
        for n in 0..20 {
            let mut writing = bank.elsewhere.start_session().causal_consistency(true).await?;
            let mut reading = bank.client.start_session().causal_consistency(true).await?;
            let insert = theirs.insert_one(doc! {"_id": n}).session(&mut writing);
            insert.write_concern(WriteConcern::nodes(1)).await?;
            let own = theirs.find_one(doc! {"_id": n}).session(&mut writing).await?;
            assert_eq!(own, Some(doc! {"_id": n}));
            reading.advance_cluster_time(writing.cluster_time().expect("a time"));
            reading.advance_operation_time(writing.operation_time().expect("a time"));
            let found = mine.find_one(doc! {"_id": n}).read_concern(ReadConcern::majority());
            assert_eq!(found.session(&mut reading).await?, Some(doc! {"_id": n}));
            assert!(reading.operation_time() >= writing.operation_time());
        }
    }
    Ok(())
}

#[tokio::test]
async fn snapshot_session() -> Tested {
    for posture in POSTURES {
        let bank = Bank::open(posture, "snapshot").await;
        let [coll, _] = bank.accounts(&bank.client);
        let [theirs, others] = bank.accounts(&bank.elsewhere);
        coll.insert_many((0..50).map(|i| doc! {"_id": i, "n": 1})).await?;
        let mut session = bank.client.start_session().snapshot(true).await?;
        assert_eq!(coll.count_documents(doc! {"n": 1}).session(&mut session).await?, 50);
        theirs.update_many(doc! {"_id": {"$gte": 0}}, doc! {"$inc": {"n": 1}}).await?;
        theirs.delete_many(doc! {"_id": {"$gte": 20}}).await?;
        others.update_one(doc! {"_id": "bob"}, doc! {"$inc": {"n": 5}}).await?;
        let mut found = coll.find(doc! {"n": 1}).session(&mut session).await?;
        assert_eq!(found.stream(&mut session).try_collect::<Vec<_>>().await?.len(), 50);
        assert_eq!(bank.seen_by(&mut session).await?, [100, 0]);
        assert_eq!(coll.distinct("n", doc! {}).session(&mut session).await?.len(), 2);
        assert_eq!(coll.count_documents(doc! {"n": 2}).await?, 20);
        assert_eq!(bank.money().await?, [100, 5]);
    }
    Ok(())
}

/// Runs a test on both servers, with a request that is lost and with a reply that is lost; all at
/// once, because the driver comes back half a second after its connection was cut.
async fn on_cuts(name: &str, test: impl AsyncFn(Bank, &'static str) -> Tested) -> Tested {
    let cases = POSTURES.into_iter().flat_map(|p| ["request", "reply"].map(|when| (p, when)));
    let run = async |(posture, when)| {
        test(Bank::open(posture, format!("{name}_{when}")).await, when).await
    };
    try_join_all(cases.map(run)).await?;
    Ok(())
}

#[tokio::test]
async fn a_commit_is_tried_again() -> Tested {
    on_cuts("a_commit_is_tried_again", async |bank, when| {
        let mut session = bank.proxied.start_session().await?;
        session.start_transaction().await?;
        bank.transfer(&mut session, 30).await?;
        let cuts = bank.cut(&format!("{when} commitTransaction 1")).await?;
        session.commit_transaction().await?;
        assert_eq!(bank.cut("nothing").await? - cuts, 1);
        assert_eq!(bank.commits.load(Ordering::Relaxed), 2);
        assert_eq!(bank.money().await?, [70, 30]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_result_of_a_commit_is_unknown() -> Tested {
    on_cuts("the_result", async |bank, when| {
        let mut session = bank.proxied.start_session().await?;
        session.start_transaction().await?;
        bank.transfer(&mut session, 30).await?;
        bank.cut(&format!("{when} commitTransaction 2")).await?;
        let error = session.commit_transaction().await.expect_err("two cuts");
        assert!(error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT), "{error}");
        assert!(!error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
        session.commit_transaction().await?;
        assert_eq!(bank.money().await?, [70, 30]);

        let runs = AtomicI32::new(0);
        let cuts = bank.cut(&format!("{when} commitTransaction 3")).await?;
        let commits = async |session: &mut ClientSession| {
            runs.fetch_add(1, Ordering::Relaxed);
            bank.transfer(session, 30).await
        };
        session.start_transaction().and_run2(commits).await?;
        assert_eq!((bank.cut("nothing").await? - cuts, runs.into_inner()), (3, 1));
        assert_eq!(bank.money().await?, [40, 60]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_abort_leaves_nothing() -> Tested {
    on_cuts("an_abort_leaves_nothing", async |bank, when| {
        let mut session = bank.proxied.start_session().await?;
        session.start_transaction().await?;
        bank.transfer(&mut session, 30).await?;
        let cuts = bank.cut(&format!("{when} abortTransaction 1")).await?;
        session.abort_transaction().await?;
        assert_eq!(bank.cut("nothing").await? - cuts, 1);
        assert_eq!(bank.aborts.load(Ordering::Relaxed), 2);
        // It waits for no transaction that is still open.
        let [first, _] = bank.accounts(&bank.elsewhere);
        first.update_one(doc! {"_id": "ann"}, doc! {"$inc": {"n": 1}}).await?;
        assert_eq!(bank.money().await?, [101, 0]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_statement_is_lost() -> Tested {
    on_cuts("a_statement_is_lost", async |bank, when| {
        let mut session = bank.proxied.start_session().await?;
        let runs = AtomicI32::new(0);
        bank.cut(&format!("{when} update 1")).await?;
        let commits = async |session: &mut ClientSession| {
            runs.fetch_add(1, Ordering::Relaxed);
            bank.transfer(session, 30).await
        };
        session.start_transaction().and_run2(commits).await?;
        assert_eq!(runs.into_inner(), 2);
        assert_eq!(bank.money().await?, [70, 30]);
        Ok(())
    })
    .await
}

//! Rounds of power cuts: a server under load is killed, its folder is changed to what a power cut
//! would have left, and a server that is started with it must have everything that was acknowledged
//! as durable, and no transaction in part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mayfly_testkit::outside::Server;
use mayfly_value::RawValue;
use mayfly_value::bson::{DateTime, doc};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::journal::{Cut, cut_power};
use crate::load::{
    COLLECTIONS, Connection, DB, DEFINER, Failed, State, Writer, definitions, states,
};
use crate::stream::Stream;

/// The writers of documents.
const WRITERS: std::ops::RangeInclusive<i64> = 1..=4;
/// Rounds with one store; then a new one is created.
const ROUNDS_OF_A_STORE: u32 = 12;
/// Documents that expire, and some that do not.
const EXPIRING: &str = "expiring";

/// Counters of all rounds.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) acknowledged: u64,
    pub(crate) syncs: usize,
    pub(crate) unsynced: usize,
    pub(crate) names: usize,
    pub(crate) events: usize,
    pub(crate) cuts_at_start: u32,
}

pub(crate) struct Rounds<'r> {
    pub(crate) program: &'r Path,
    /// The layer below the server.
    pub(crate) layer: &'r Path,
    pub(crate) folder: &'r Path,
    pub(crate) seed: u64,
    pub(crate) sum: Sum,
}

/// A store and its rounds.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) writers: Vec<Writer>,
    stream: Option<Stream>,
    /// The writers' documents when the stream began.
    before: State,
    /// Documents that must not expire.
    lasting: i64,
    /// The last power cut.
    pub(crate) cut: Cut,
}

impl Story {
    pub(crate) fn new(seed: u64) -> Story {
        let all = [DEFINER].into_iter().chain(WRITERS);
        Story { writers: all.map(|writer| Writer::new(writer, seed)).collect(), ..Story::default() }
    }
}

impl Rounds<'_> {
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Runs this many rounds. Fails with a description and the seed of the round.
    pub(crate) fn run(&mut self, rounds: u32) -> Result<(), String> {
        let mut number = 0;
        while number < rounds {
            let _old = fs::remove_dir_all(self.data());
            fs::create_dir_all(self.data()).map_err(|error| error.to_string())?;
            let mut story = Story::new(self.seed.wrapping_add(u64::from(number)));
            for _ in 0..ROUNDS_OF_A_STORE.min(rounds - number) {
                let seed = self.seed.wrapping_add(u64::from(number));
                self.round(&mut story, seed)
                    .map_err(|why| format!("round {number} (cut: {}): {why}", story.cut.what))?;
                number += 1;
            }
            // The last cut of a store is checked, too.
            let checked = self.start(&[]).and_then(|mut server| {
                check(&mut story, &mut server)?;
                server.kill()
            });
            checked.map_err(|why| format!("last round (cut: {}): {why}", story.cut.what))?;
        }
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        [
            ("LD_PRELOAD", text(self.layer)),
            ("TORTURE_FOLDER", text(&self.data())),
            ("TORTURE_JOURNAL", text(&self.folder.join("journal"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Starts a server with the present folder, whose content counts as durable.
    pub(crate) fn start(&self, more: &[(String, String)]) -> Result<Server, String> {
        let base = self.folder.join("base");
        let _old = fs::remove_dir_all(&base);
        copy(&self.data(), &base).map_err(|error| error.to_string())?;
        let _old = fs::remove_file(self.folder.join("journal"));
        let arguments = [
            // The smallest cache, so that memtables are flushed early.
            "--cacheSizeGB=0.03".to_owned(),
            // Small, because it is copied with the rest of the folder.
            "--diskReserveMB=1".to_owned(),
            "--setParameter".to_owned(),
            "ttlMonitorSleepSecs=1".to_owned(),
        ];
        let environment = [self.environment(), more.to_vec()].concat();
        Server::start_with(self.program, &arguments, &environment, self.folder)
    }

    fn round(&mut self, story: &mut Story, seed: u64) -> Result<(), String> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut server = self.start(&[])?;
        self.sum.events += check(story, &mut server)?;
        prepare(story, &server).map_err(|why| format!("{why:?}"))?;
        let over = AtomicBool::new(false);
        let pause = Duration::from_millis(random.random_range(30..700));
        let port = server.port;
        let mut stop = Ok(());
        std::thread::scope(|threads| {
            load(threads, story, port, &over);
            std::thread::sleep(pause);
            stop = server.kill();
            over.store(true, Ordering::Release);
        });
        stop?;
        story.cut = self.cut(seed)?;
        while random.random_bool(0.15) {
            self.sum.cuts_at_start += 1;
            let base = self.folder.join("base");
            let _old = fs::remove_dir_all(&base);
            copy(&self.data(), &base).map_err(|error| error.to_string())?;
            let _old = fs::remove_file(self.folder.join("journal"));
            server.launch()?;
            std::thread::sleep(Duration::from_millis(random.random_range(5..250)));
            if server.check_alive().is_err() {
                return Err(format!(
                    "it ended while it started ({}): {}",
                    story.cut.what,
                    server.log()
                ));
            }
            server.kill()?;
            story.cut = self.cut(random.random())?;
        }
        let mut wrong: Vec<String> =
            story.writers.iter_mut().flat_map(|it| std::mem::take(&mut it.wrong)).collect();
        wrong.extend(server.complaints());
        self.sum.acknowledged +=
            story.writers.iter_mut().map(|it| std::mem::take(&mut it.acknowledged)).sum::<u64>();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("\n")),
        }
    }

    /// Changes the folder to what a power cut would leave now.
    pub(crate) fn cut(&mut self, seed: u64) -> Result<Cut, String> {
        let (data, next) = (self.data(), self.folder.join("next"));
        let (base, journal) = (self.folder.join("base"), self.folder.join("journal"));
        let text = |error: std::io::Error| error.to_string();
        let _old = fs::remove_dir_all(&next);
        let cut = cut_power(&data, &base, &journal, &next, seed).map_err(text)?;
        fs::remove_dir_all(&data).and_then(|()| fs::rename(&next, &data)).map_err(text)?;
        self.sum.syncs += cut.syncs;
        self.sum.unsynced += cut.unsynced;
        self.sum.names += cut.names;
        Ok(cut)
    }
}

/// Runs writers and a change stream until the end or until the server has stopped.
pub(crate) fn load<'scope>(
    threads: &'scope std::thread::Scope<'scope, '_>,
    story: &'scope mut Story,
    port: u16,
    over: &'scope AtomicBool,
) {
    let Story { writers, stream, .. } = story;
    for writer in writers.iter_mut() {
        threads.spawn(move || {
            if let Ok(mut connection) = Connection::open(port) {
                writer.write(&mut connection, &|| over.load(Ordering::Acquire));
            }
        });
    }
    threads.spawn(move || {
        if let (Some(stream), Ok(mut connection)) = (stream, Connection::open(port)) {
            stream.follow(&mut connection, &|| over.load(Ordering::Acquire));
        }
    });
}

pub(crate) fn prepare(story: &mut Story, server: &Server) -> Result<(), Failed> {
    let mut connection = Connection::open(server.port).map_err(|_| Failed::Lost)?;
    for collection in COLLECTIONS {
        let indexes = [
            doc! { "key": { "a": 1 }, "name": "a" },
            doc! { "key": { "tags": 1 }, "name": "tags" },
            doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 },
        ];
        connection.run(DB, &doc! { "createIndexes": collection, "indexes": indexes.to_vec() })?;
    }
    let index = [doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 }].to_vec();
    connection.run(DB, &doc! { "createIndexes": EXPIRING, "indexes": index })?;
    let documents = (0..40).map(|n| {
        let at = if n % 4 == 0 { i64::MAX / 4 } else { 1000 + n };
        doc! { "at": DateTime::from_millis(at), "lasts": n % 4 == 0 }
    });
    let insert = doc! { "insert": EXPIRING, "documents": documents.collect::<Vec<_>>() };
    connection.run(DB, &insert)?;
    story.lasting += 10;
    story.before = documents_of(&mut connection)?;
    story.stream = Some(Stream::begin(&mut connection)?);
    Ok(())
}

/// All documents of all writers.
fn documents_of(connection: &mut Connection) -> Result<State, Failed> {
    let all = states(connection, &WRITERS.collect::<Vec<_>>())?;
    Ok(all.into_values().flatten().collect())
}

/// Checks the state; returns the number of events of the stream that were read again.
pub(crate) fn check(story: &mut Story, server: &mut Server) -> Result<usize, String> {
    let mut connection = Connection::open(server.port).map_err(|error| error.to_string())?;
    let wrong = check_all(story, &mut connection).map_err(|why| format!("{why:?}"))?;
    let events = story.stream.take().map_or(0, |stream| stream.seen.len());
    match wrong.is_empty() {
        true => Ok(events),
        false => Err(format!("{}\n{}", wrong.join("\n"), server.log())),
    }
}

fn check_all(story: &mut Story, connection: &mut Connection) -> Result<Vec<String>, Failed> {
    let mut wrong = Vec::new();
    let mut found: BTreeMap<i64, State> = states(connection, &WRITERS.collect::<Vec<_>>())?;
    found.insert(DEFINER, definitions(connection)?);
    if let Some(stream) = &story.stream {
        let now = documents_of(connection)?;
        wrong.extend(stream.check(connection, &story.before, &now)?);
    }
    for writer in &mut story.writers {
        let state = found.remove(&writer.number).unwrap_or_default();
        wrong.extend(writer.found(state).err());
        writer.send_again(connection)?;
    }
    let list = doc! { "listCollections": 1, "nameOnly": true };
    for collection in connection.all(&list)? {
        let Some(RawValue::String(name)) = collection.as_doc().get("name") else { continue };
        let reply = connection.run(DB, &doc! { "validate": name, "full": true })?;
        if reply.as_doc().get("valid") != Some(RawValue::Bool(true)) {
            wrong.push(mayfly_testkit::dialect::show(reply.as_doc()));
        }
    }
    let lasting = connection.run(DB, &doc! { "count": EXPIRING, "query": { "lasts": true } })?;
    let lasting = crate::load::int(lasting.as_doc(), "n");
    if lasting < story.lasting {
        wrong.push(format!("{lasting} of {} documents that last are there", story.lasting));
    }
    Ok(wrong)
}

/// Copies a folder recursively.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => _ = fs::copy(entry.path(), target)?,
        }
    }
    Ok(())
}

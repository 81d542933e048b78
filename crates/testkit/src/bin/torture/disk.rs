//! A full disk: a file system that is mounted for the test is filled until inserts are refused; in
//! half of the rounds another program fills it to its last byte. Expiry, `deleteMany`, a drop and a
//! restart must each lead to accepted inserts within a minute, also after `kill -9`.
//!
//! Only root can mount a file system. Without this right the step prints that, and ends without an
//! error.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mayfly_testkit::outside::Server;
use mayfly_value::bson::{Binary, DateTime, Document, doc, spec::BinarySubtype};
use mayfly_value::{DocBuf, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::load::{Connection, DB, Failed, int};

/// The longest time from a full disk to an accepted insert.
const PATIENCE: Duration = Duration::from_secs(60);
/// The disk counts as full when no write was accepted for this time.
const STAYS_FULL: Duration = Duration::from_secs(8);
/// The longest time of `deleteMany` or `validate` of all documents, on a busy machine.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);
const WRITERS: u64 = 4;
const BATCH: u64 = 100;
const DUPLICATE_KEY: i32 = 11_000;
const OUT_OF_DISK_SPACE: i32 = 14031;
/// The file of the reserve.
const RESERVE: &str = "RESERVE";

/// The file system of a [`Disk`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// tmpfs, in memory.
    Tmpfs,
    /// ext4, in a file.
    Ext4,
}

/// A file system of a given size, mounted on a folder until it is dropped.
pub(crate) struct Disk {
    folder: PathBuf,
    image: Option<PathBuf>,
    megabytes: u64,
}

impl Disk {
    /// Creates and mounts a file system.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub(crate) fn mount(folder: &Path, megabytes: u64, kind: FileSystem) -> Result<Disk, String> {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        let disk = Disk {
            folder: folder.to_owned(),
            image: (kind == FileSystem::Ext4).then(|| folder.with_extension("image")),
            megabytes,
        };
        disk.make()?;
        Ok(disk)
    }

    fn make(&self) -> Result<(), String> {
        match &self.image {
            None => {
                let size = format!("size={}m", self.megabytes);
                run(Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &size, "torture"])
                    .arg(&self.folder))
            }
            Some(image) => {
                let file = File::create(image).map_err(|error| error.to_string())?;
                file.set_len(self.megabytes << 20).map_err(|error| error.to_string())?;
                run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(image))?;
                run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&self.folder))
            }
        }
    }

    /// Replaces it by an empty one.
    fn again(&self) -> Result<(), String> {
        run(Command::new("umount").arg(&self.folder))?;
        self.make()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(why) = run(Command::new("umount").arg(&self.folder)) {
            println!("{why}");
        }
        if let Some(image) = &self.image {
            let _gone = std::fs::remove_file(image);
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{command:?} ends with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// The action that frees space on a full disk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Expiry,
    DeleteMany,
    Drop,
    Restart,
}

const WAYS: [Way; 4] = [Way::Expiry, Way::DeleteMany, Way::Drop, Way::Restart];

/// One round.
#[derive(Debug)]
struct Round {
    way: Way,
    /// Whether another program fills the disk to its last byte.
    stranger: bool,
    /// Whether the server is killed when the disk is full.
    killed: bool,
    /// The time after the beginning of the action at which the server is killed once more.
    killed_after: Option<Duration>,
}

pub(crate) struct FullDisk<'f> {
    pub(crate) program: &'f Path,
    pub(crate) folder: &'f Path,
    pub(crate) disk: &'f Disk,
    pub(crate) seed: u64,
    /// Only rounds whose description contains this text are run.
    pub(crate) only: &'f str,
}

impl FullDisk<'_> {
    /// Runs this many rounds of each action.
    pub(crate) fn run(&self, rounds: u32) -> Result<(), String> {
        let mut random = SmallRng::seed_from_u64(self.seed);
        for number in 0..rounds {
            for way in WAYS {
                let round = Round {
                    way,
                    stranger: number % 2 == 1 || random.random_bool(0.2),
                    killed: number > 0 && random.random_bool(0.5),
                    killed_after: (number > 0 && random.random_bool(0.5))
                        .then(|| Duration::from_millis(random.random_range(5..1500))),
                };
                if !format!("{round:?}").contains(self.only) {
                    continue;
                }
                self.disk.again()?;
                let took = self.round(&round, &mut random);
                let took = took.map_err(|why| format!("{round:?}: {why}\n{}", self.files()))?;
                println!("disk: {round:?}: inserts are accepted after {took:.1?}");
            }
        }
        Ok(())
    }

    fn start(&self, expires: bool) -> Result<Server, String> {
        let mut arguments = vec!["--cacheSizeGB=0.1".to_owned()];
        for parameter in [
            "ttlMonitorSleepSecs=60",
            if expires { "ttlMonitorEnabled=true" } else { "ttlMonitorEnabled=false" },
        ] {
            arguments.extend(["--setParameter".to_owned(), parameter.to_owned()]);
        }
        Server::start(self.program, &arguments, self.folder)
    }

    fn round(&self, round: &Round, random: &mut SmallRng) -> Result<Duration, String> {
        let mut server = self.start(false)?;
        let mut connection = open(&server)?;
        let indexes = [doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 1 }];
        let made =
            connection.run(DB, &doc! { "createIndexes": "full", "indexes": indexes.to_vec() });
        made.map_err(shown)?;
        let documents = self.fill(&server, random.next_u64())?;
        if round.stranger {
            self.fill_up()?;
        }
        check_count(&mut connection, documents)?;
        let before = self.files();
        if round.killed {
            server.kill()?;
            server = self.start(false)?;
            check_count(&mut open(&server)?, documents)?;
        }
        let began = Instant::now();
        if let Some(after) = round.killed_after {
            let (port, way) = (server.port, round.way);
            let act = std::thread::spawn(move || {
                let mut connection = Connection::open(port).map_err(|error| error.to_string())?;
                // Whether the action was completed is checked afterwards.
                let _ended = begin(&mut connection, way);
                Ok::<_, String>(())
            });
            std::thread::sleep(after);
            server.kill()?;
            act.join().map_err(|_| "the client panicked".to_owned())??;
            server = self.start(false)?;
        }
        let mut connection = match round.way {
            Way::Restart => {
                server.stop()?;
                server = self.start(true)?;
                open(&server)?
            }
            _ => open(&server)?,
        };
        // Inserts may be accepted before a long deletion has ended.
        let (port, way) = (server.port, round.way);
        let acting = std::thread::spawn(move || {
            let mut connection = Connection::patient(port, LONGEST_ANSWER);
            begin(connection.as_mut().map_err(|error| error.to_string())?, way)
        });
        wait_for_insert(&mut connection, began).map_err(|why| {
            let left = count(&mut connection).unwrap_or(-1);
            format!(
                "{why}; of {documents} documents {left} are left; it was full with {before}; it said\n{}",
                tail(&server.log())
            )
        })?;
        let took = began.elapsed();
        acting.join().map_err(|_| "the client panicked".to_owned())??;
        // After a restart, none of the documents may have been deleted.
        let patient = Connection::patient(server.port, LONGEST_ANSWER);
        let mut patient = patient.map_err(|error| error.to_string())?;
        let validated = patient.run(DB, &doc! { "validate": "full" });
        match validated {
            Ok(reply) if reply.as_doc().get("valid") == Some(RawValue::Bool(true)) => {}
            // The collection was dropped.
            Err(Failed::Refused(26, _)) => {}
            other => return Err(format!("validate: {other:?}")),
        }
        if server.log().contains("panicked at") {
            return Err(tail(&server.log()));
        }
        server.stop()?;
        Ok(took)
    }

    /// Inserts and deletes until inserts stay refused; returns the number of documents that must be
    /// there.
    fn fill(&self, server: &Server, seed: u64) -> Result<i64, String> {
        let (failed, accepted) = (Mutex::new(Vec::new()), Mutex::new(Instant::now()));
        let documents = AtomicI64::new(0);
        std::thread::scope(|threads| {
            for writer in 0..WRITERS {
                let (failed, accepted, port) = (&failed, &accepted, server.port);
                let documents = &documents;
                threads.spawn(move || {
                    match write_until_full(port, writer, seed ^ writer, accepted) {
                        Ok(written) => _ = documents.fetch_add(written, Ordering::Relaxed),
                        Err(why) => {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if failed.is_empty() { Ok(documents.into_inner()) } else { Err(failed.join("\n")) }
    }

    /// Another program writes until the disk is full.
    fn fill_up(&self) -> Result<(), String> {
        let path = self.disk.folder.join("stranger");
        let mut file = File::create(path).map_err(|error| error.to_string())?;
        for bytes in [1 << 20, 4096, 1] {
            let block = vec![7; bytes];
            loop {
                match file.write_all(&block) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        Ok(())
    }

    /// Lists the files on the disk.
    fn files(&self) -> String {
        let mut sums = std::collections::BTreeMap::<String, (u64, u64)>::new();
        for entry in std::fs::read_dir(&self.disk.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = name.rsplit('.').next().unwrap_or_default();
            let kind = if name == RESERVE { RESERVE } else { kind };
            let sum = sums.entry(kind.to_owned()).or_default();
            *sum = (sum.0 + 1, sum.1 + entry.metadata().map_or(0, |it| it.len()));
        }
        format!("files by kind, number and bytes: {sums:?}")
    }
}

fn shown(why: Failed) -> String {
    format!("{why:?}")
}

fn open(server: &Server) -> Result<Connection, String> {
    Connection::open(server.port).map_err(|error| error.to_string())
}

/// The end of a server's log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn count(connection: &mut Connection) -> Result<i64, String> {
    let reply = connection.run(DB, &doc! { "count": "full" }).map_err(shown)?;
    Ok(int(reply.as_doc(), "n"))
}

/// The number of stored documents of the batch with this first `_id`.
fn present(connection: &mut Connection, first: i64) -> Result<i64, String> {
    let batch = doc! { "_id": { "$gte": first, "$lt": first + BATCH as i64 } };
    let reply = connection.run(DB, &doc! { "count": "full", "query": batch }).map_err(shown)?;
    Ok(int(reply.as_doc(), "n"))
}

/// Checks that all acknowledged documents are there.
fn check_count(connection: &mut Connection, documents: i64) -> Result<(), String> {
    match count(connection)? {
        found if found == documents => Ok(()),
        found => Err(format!("{documents} documents were acknowledged, and {found} are there")),
    }
}

fn large(random: &mut SmallRng, id: i64) -> Document {
    let mut bytes = vec![0; random.random_range(1000..3000)];
    random.fill_bytes(&mut bytes);
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes };
    // Due since the year 2001.
    doc! { "_id": id, "at": DateTime::from_millis(1_000_000_000_000 + id), "bytes": bytes }
}

/// The time of the last accepted insert.
type Accepted = Mutex<Instant>;

fn write_until_full(port: u16, writer: u64, seed: u64, accepted: &Accepted) -> Result<i64, String> {
    let mut documents = 0;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut connection = Connection::open(port).map_err(|error| error.to_string())?;
    let last = || accepted.lock().unwrap_or_else(PoisonError::into_inner);
    for batch in 0.. {
        let first = ((writer << 32) + batch * BATCH) as i64;
        let batch: Vec<Document> =
            (first..first + BATCH as i64).map(|id| large(&mut random, id)).collect();
        let insert = doc! {
            "insert": "full", "documents": batch, "ordered": false, "writeConcern": { "w": 1 },
        };
        let mut refused = false;
        loop {
            match connection.run(DB, &insert) {
                Ok(_) => break,
                Err(Failed::Refused(OUT_OF_DISK_SPACE, _)) if last().elapsed() > STAYS_FULL => {
                    return Ok(documents + present(&mut connection, first)?);
                }
                Err(Failed::Refused(OUT_OF_DISK_SPACE, _)) => {
                    refused = true;
                    std::thread::sleep(Duration::from_millis(50));
                }
                // Some documents of a batch may go in before the others are refused. The batch is
                // sent again as a whole.
                Err(Failed::Refused(DUPLICATE_KEY, _)) if refused => {
                    if present(&mut connection, first)? == BATCH as i64 {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(why) => return Err(format!("insert: {why:?}")),
            }
        }
        *last() = Instant::now();
        // Some documents that the oplog refers to are deleted meanwhile.
        let some = doc! { "_id": { "$gte": first, "$lt": first + BATCH as i64 / 8 } };
        let delete = doc! { "delete": "full", "deletes": [{ "q": some, "limit": 0 }], "writeConcern": { "w": 1 } };
        let deleted = connection.run(DB, &delete);
        let deleted = deleted.map_err(|why| format!("delete while it fills: {why:?}"))?;
        documents += BATCH as i64 - int(deleted.as_doc(), "n");
    }
    Ok(documents)
}

/// Runs the action that frees space, or begins it.
fn begin(connection: &mut Connection, way: Way) -> Result<(), String> {
    let command = match way {
        Way::Expiry => doc! { "setParameter": 1, "ttlMonitorEnabled": true },
        Way::DeleteMany => doc! { "delete": "full", "deletes": [{ "q": {}, "limit": 0 }] },
        Way::Drop => doc! { "drop": "full" },
        Way::Restart => return Ok(()),
    };
    let db = if way == Way::Expiry { "admin" } else { DB };
    match connection.run(db, &command) {
        Ok(_) => Ok(()),
        // The drop was completed before the server was killed.
        Err(Failed::Refused(26, _)) if way == Way::Drop => Ok(()),
        Err(why) => Err(format!("{way:?}: {why:?}")),
    }
}

/// Waits until a durable insert is accepted.
fn wait_for_insert(connection: &mut Connection, began: Instant) -> Result<DocBuf, String> {
    loop {
        let insert = doc! { "insert": "again", "documents": [{ "x": 1 }], "writeConcern": { "w": "majority" } };
        match connection.run(DB, &insert) {
            Ok(reply) => return Ok(reply),
            Err(Failed::Refused(_, _)) if began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(why) => return Err(format!("after {:?}: {why:?}", began.elapsed())),
        }
    }
}

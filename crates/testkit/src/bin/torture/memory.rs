//! Little memory: a server in a control group of 128, 256 and 512 MB, one after the other, under
//! load. It may refuse commands, but must not be killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_testkit::outside::{Connection, Server};
use mayfly_value::RawValue;
use mayfly_value::bson::{DateTime, Document, doc};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The sizes of the groups without others.
pub(super) const SIZES_MB: [u64; 3] = [128, 256, 512];
/// Clients at once, apart from idle connections.
const CLIENTS: u64 = 6;
const CONNECTIONS: usize = 200;
/// Long, because deletions of a whole collection take long where files are hardly cached.
const PATIENCE: Duration = Duration::from_secs(600);
/// Codes of refusals for lack of memory or room, of an index build that another command ended, and
/// of cursors and operations that were ended to get memory back.
const REFUSED: &[i32] = &[43, 112, 146, 237, 276, 292, 14031];

/// A control group with a limit, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn of(megabytes: u64) -> std::io::Result<Group> {
        let name = format!("mayflydb-torture-{}-{megabytes}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (mount, file) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Group(mount.join(name));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join(file), (megabytes << 20).to_string())?;
        Ok(group)
    }

    /// A program that enters the group before it becomes the server.
    fn wrapper(&self, server: &Path, folder: &Path) -> std::io::Result<PathBuf> {
        let (file, server) = (folder.join("server"), fs::canonicalize(server)?);
        let procs = self.0.join("cgroup.procs");
        let text = format!(
            "#!/bin/sh\necho $$ > '{}' && exec '{}' \"$@\"\n",
            procs.display(),
            server.display()
        );
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(file)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Counters of the clients of one server.
#[derive(Default)]
struct Sum {
    over: AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
    /// The most resident memory, in megabytes.
    resident: AtomicU64,
}

/// Runs a server in a group of each size for the given time. A failure in one does not keep the
/// others from running.
///
/// # Errors
/// The server ended, or gave an unexpected answer.
pub(super) fn run(
    (program, folder): (&Path, &Path),
    sizes_mb: &[u64],
    seconds: u64,
    seed: u64,
) -> Result<(), String> {
    let mut failed = Vec::new();
    for megabytes in sizes_mb.iter().copied() {
        let group = match Group::of(megabytes) {
            Ok(group) => group,
            Err(error) => {
                println!(
                    "memory: SKIPPED: no control group can be made, which root may do: {error}"
                );
                return Ok(());
            }
        };
        let own = folder.join(megabytes.to_string());
        let text = |error: std::io::Error| error.to_string();
        fs::create_dir(&own).map_err(text)?;
        let wrapper = group.wrapper(program, &own).map_err(text)?;
        let arguments = ["--setParameter".to_owned(), "ttlMonitorSleepSecs=1".to_owned()];
        let mut server = Server::start(&wrapper, &arguments, &own)?;
        let sum = Sum::default();
        let loaded = load(&mut server, &sum, Duration::from_secs(seconds), seed);
        let most = sum.resident.load(Ordering::Relaxed);
        println!(
            "memory: {megabytes} MB: {} commands answered, {} refused, {most} MB resident at most",
            sum.answered.load(Ordering::Relaxed),
            sum.refused.load(Ordering::Relaxed)
        );
        if let Err(why) = loaded.and_then(|()| server.stop()) {
            failed.push(format!("in {megabytes} MB: {why}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn load(server: &mut Server, sum: &Sum, time: Duration, seed: u64) -> Result<(), String> {
    let open = |port| Connection::open(port, PATIENCE).map_err(|error| error.to_string());
    let port = server.port;
    let mut first = open(port)?;
    let at = doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 };
    ask(&mut first, sum, &doc! { "createIndexes": "c", "indexes": [at], "$db": "little" })?;
    let mut idle = (0..CONNECTIONS).map(|_| open(port)).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let result = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                threads.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed ^ number);
                    let mut connection = open(port)?;
                    while !sum.over.load(Ordering::Relaxed) {
                        ask(&mut connection, sum, &command(&mut random, number))?;
                    }
                    Ok(())
                })
            })
            .collect();
        while began.elapsed() < time && !clients.iter().any(|client| client.is_finished()) {
            for connection in &mut idle {
                if let Err(why) = ask(connection, sum, &doc! { "ping": 1, "$db": "admin" }) {
                    sum.over.store(true, Ordering::Relaxed);
                    return Err(why);
                }
            }
            sum.resident.fetch_max(server.figure("VmHWM:") >> 10, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
        }
        sum.over.store(true, Ordering::Relaxed);
        let mut ended = clients.into_iter().map(|client| client.join());
        ended.try_for_each(|client| client.map_err(|_| "a client panicked".to_owned())?)
    });
    server.check_alive().and(result)
}

/// The next command: inserts of documents that live for seconds, groups, sorts, index builds.
fn command(random: &mut SmallRng, number: u64) -> Document {
    let collection = "c";
    match random.random_range(0..20) {
        0 => {
            let index =
                doc! { "key": { "a": 1, "n": 1 }, "name": format!("a{number}"), "sparse": true };
            doc! { "createIndexes": collection, "indexes": [index], "$db": "little" }
        }
        1 => doc! { "dropIndexes": collection, "index": format!("a{number}"), "$db": "little" },
        2 | 3 => {
            let group = doc! { "$group": { "_id": "$a", "texts": { "$push": "$text" } } };
            let pipeline = vec![group, doc! { "$count": "n" }];
            doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {}, "$db": "little" }
        }
        4 => doc! { "find": collection, "sort": { "text": 1, "n": -1 }, "$db": "little" },
        5 => {
            let q = doc! { "a": { "$lt": random.random_range(0.0..0.2) } };
            doc! { "delete": collection, "deletes": [{ "q": q, "limit": 0 }], "$db": "little" }
        }
        _ => {
            let now = std::time::SystemTime::now();
            let documents: Vec<Document> = (0..1000)
                .map(|_| {
                    let lives = Duration::from_secs(random.random_range(1..60));
                    doc! {
                        "a": random.random::<f64>(), "n": random.random_range(0..1000),
                        "text": "x".repeat(1000), "at": DateTime::from_system_time(now + lives),
                    }
                })
                .collect();
            doc! { "insert": collection, "documents": documents, "$db": "little" }
        }
    }
}

/// Runs a command, which may be refused for lack of memory or room.
fn ask(connection: &mut Connection, sum: &Sum, command: &Document) -> Result<(), String> {
    let name = command.keys().next().cloned().unwrap_or_default();
    let reply = connection.run(command).map_err(|error| format!("{name}: {error}"))?;
    let count = match reply.as_doc().get("code") {
        _ if reply.as_doc().get("ok") == Some(RawValue::Double(1.0)) => &sum.answered,
        // Another client has dropped the index, or made it.
        Some(RawValue::Int32(27 | 85 | 86)) => &sum.answered,
        Some(RawValue::Int32(code)) if REFUSED.contains(&code) => &sum.refused,
        _ => return Err(format!("{reply:?} to {name}")),
    };
    count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

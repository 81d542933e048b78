//! Mixed load for a long time: short-lived documents, sorts and groups in files, change streams,
//! archives in a slow object store, cursors and transactions that are never ended, connections that
//! end in the middle of a message, and a wall clock that is changed. Afterwards memory, descriptors
//! and threads must be as before, and there may be no cursor, no transaction and no due document.
//!
//! It prints the seed and, after a failure, the path of the folder.

mod clock;
mod load;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use mayfly_testkit::dialect::{self, parsed};
use mayfly_testkit::outside::{Connection, Server, ended};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use clock::Clock;
use load::{Client, PATIENCE, Run, number, preparations};
use store::ObjectStore;

/// Little memory, so that leaks are noticed; short timeouts, so that abandoned objects end soon.
const SERVER_ARGUMENTS: &[&str] = &[
    "--cacheSizeGB",
    "0.25",
    "--oplogSize",
    "32",
    "--archiveUrls",
    "s3://bucket",
    "--setParameter",
    "maxOperationMemoryBytes=33554432",
    "--setParameter",
    "internalQueryMaxBlockingSortMemoryUsageBytes=200000",
    "--setParameter",
    "internalDocumentSourceGroupMaxMemoryBytes=200000",
    "--setParameter",
    "cursorTimeoutMillis=2000",
    "--setParameter",
    "ttlMonitorSleepSecs=1",
];
/// The time in which the server must clean up after its clients.
const CLEARING_PATIENCE: Duration = Duration::from_secs(120);
/// Threads allowed in addition to those of a server after its start: the uploader, idle workers.
const FURTHER_THREADS: u64 = 12;
/// Descriptors, apart from data files, allowed in addition to the initial ones.
const FURTHER_DESCRIPTORS: usize = 8;

/// A mixed load, and a check of the state that it leaves.
#[derive(Parser)]
struct Arguments {
    /// The program mayflydb.
    #[arg(long, env = "MAYFLYDB_BIN")]
    server: PathBuf,
    /// Seconds for which clients run.
    #[arg(long, default_value_t = 25)]
    seconds: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 6)]
    clients: u8,
    /// Seed of the random numbers.
    #[arg(long)]
    seed: Option<u64>,
    /// MB by which the memory of the server may grow from the first to the second half, in addition
    /// to a tenth.
    #[arg(long, default_value_t = 150)]
    growth_mb: u64,
    /// Further arguments of the server, after `--`.
    #[arg(last = true)]
    server_arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    ended(soak(&arguments, seed), seed)
}

/// Runs the test; returns the faults.
fn soak(arguments: &Arguments, seed: u64) -> Result<Vec<String>, String> {
    let text = |error: std::io::Error| error.to_string();
    let folder = tempfile::Builder::new().prefix("mayfly-wire-soak-").tempdir().map_err(text)?;
    let (clock, store) = (Clock::make(folder.path()), ObjectStore::start().map_err(text)?);
    let mut environment = clock.as_ref().map(Clock::environment).unwrap_or_default();
    let variables = [
        ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", store.port)),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    let mut all: Vec<String> = SERVER_ARGUMENTS.iter().map(|it| (*it).to_owned()).collect();
    all.extend(arguments.server_arguments.iter().cloned());
    let mut server = Server::start_with(&arguments.server, &all, &environment, folder.path())?;
    let run = Run { port: server.port, ..Run::default() };
    let mut connection = Connection::open(server.port, PATIENCE).map_err(text)?;
    for command in preparations() {
        let reply = ask(&mut connection, "soak", command)?;
        if reply.as_doc().get("ok") != Some(RawValue::Double(1.0)) {
            return Err(format!("{} to {command}", dialect::show(reply.as_doc())));
        }
    }
    let before = Held::of(&server);
    let mut samples = Vec::new();
    let failed = std::thread::scope(|threads| {
        for number in 1..=arguments.clients {
            let client = Client::new(&run, number, seed);
            threads.spawn(move || client.run());
        }
        let ended = watch(arguments, seed, &run, &mut server, clock.as_ref(), &mut samples);
        run.over.store(true, Ordering::Release);
        ended.err()
    });
    let mut wrong = run.complaints();
    wrong.extend(failed);
    if server.check_alive().is_ok() {
        wrong.extend(growth(&samples, arguments.growth_mb << 20));
        wrong.extend(leftovers(&mut connection, &server, &before)?);
        wrong.extend(damaged(&mut connection)?);
        drop(connection);
        wrong.extend(server.stop().err());
    }
    wrong.extend(server.complaints());
    println!(
        "{} commands, {} clients killed, {} objects archived, memory {} MB and {} MB in the halves, at most {} threads and {} descriptors; \
         refused by code {:?}{}",
        run.commands.load(Ordering::Relaxed),
        run.cuts.load(Ordering::Relaxed),
        store.taken.load(Ordering::Relaxed),
        halves(&samples).0 >> 20,
        halves(&samples).1 >> 20,
        samples.iter().map(|it| it.threads).max().unwrap_or(0),
        samples.iter().map(|it| it.descriptors).max().unwrap_or(0),
        run.refusals.lock().map(|it| it.clone()).unwrap_or_default(),
        if clock.is_some() { "" } else { "; without a C compiler nobody sets the clock" },
    );
    if !wrong.is_empty() {
        println!("kept: {}", folder.keep().display());
    }
    Ok(wrong)
}

fn ask(connection: &mut Connection, db: &str, command: &str) -> Result<DocBuf, String> {
    let reply = connection.ask(db, parsed(command).as_doc());
    reply.map_err(|error| format!("{command}: {error}"))
}

/// The resources of the server's process.
struct Held {
    memory_bytes: u64,
    threads: u64,
    /// File descriptors except those of data files, whose number changes with compaction.
    descriptors: usize,
}

impl Held {
    fn of(server: &Server) -> Held {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.id()));
        let links = descriptors.into_iter().flatten().flatten();
        let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        let is_other = |target: &PathBuf| {
            let is_gone = target.to_string_lossy().ends_with("(deleted)");
            is_gone || !target.components().any(|part| part.as_os_str() == "data")
        };
        Held {
            memory_bytes: server.resident_bytes(),
            threads: server.figure("Threads:"),
            descriptors: targets.filter(is_other).count(),
        }
    }
}

/// Observes the server from outside and sets its clock until the time is over.
fn watch(
    arguments: &Arguments,
    seed: u64,
    run: &Run,
    server: &mut Server,
    clock: Option<&Clock>,
    samples: &mut Vec<Held>,
) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(!seed);
    let (began, all) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let mut next_step = began + Duration::from_secs(3);
    while began.elapsed() < all {
        std::thread::sleep(Duration::from_millis(200));
        server.check_alive()?;
        samples.push(Held::of(server));
        if let Some(clock) = clock
            && Instant::now() >= next_step
        {
            // Within the limit of a clock jump, and beyond it.
            let offset_ms = match random.random_range(0..8) {
                0..4 => 0,
                4 => random.random_range(0..200_000),
                5 => -random.random_range(0..200_000),
                6 => 400 * 86_400_000,
                _ => -400 * 86_400_000,
            };
            clock.set(offset_ms)?;
            run.offset_ms.store(offset_ms, Ordering::Relaxed);
            next_step += Duration::from_millis(random.random_range(500..4000));
        }
    }
    if let Some(clock) = clock {
        clock.set(0)?;
    }
    run.offset_ms.store(0, Ordering::Relaxed);
    Ok(())
}

/// The median memory of the server in each half, in bytes, without the first fifth of the time.
fn halves(samples: &[Held]) -> (u64, u64) {
    let grown = &samples[samples.len() / 5..];
    let (first, second) = grown.split_at(grown.len() / 2);
    let median = |part: &[Held]| {
        let mut bytes: Vec<u64> = part.iter().map(|it| it.memory_bytes).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 2).copied().unwrap_or(0)
    };
    (median(first), median(second))
}

fn growth(samples: &[Held], allowed_bytes: u64) -> Option<String> {
    let (first, second) = halves(samples);
    (second > first + first / 10 + allowed_bytes).then(|| {
        format!("memory grew from {} MB in the first half to {} MB", first >> 20, second >> 20)
    })
}

/// Waits until no resource of the clients is in use; returns those that are.
fn leftovers(
    connection: &mut Connection,
    server: &Server,
    before: &Held,
) -> Result<Vec<String>, String> {
    let began = Instant::now();
    loop {
        let left = left_now(connection, server, before)?;
        if left.is_empty() || began.elapsed() > CLEARING_PATIENCE {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn left_now(
    connection: &mut Connection,
    server: &Server,
    before: &Held,
) -> Result<Vec<String>, String> {
    let status = ask(connection, "admin", "{serverStatus: 1}")?;
    let figure = |path: &[&str]| {
        let (last, parents) = path.split_last()?;
        let mut place = status.as_doc();
        for parent in parents {
            place = place.get(parent)?.as_document()?;
        }
        place.get(last)?;
        Some(number(place, last))
    };
    let mut left = Vec::new();
    let expected = [
        (&["metrics", "cursor", "open", "total"][..], 0),
        (&["transactions", "currentOpen"][..], 0),
        (&["connections", "current"][..], 1),
    ];
    for (path, most) in expected {
        match figure(path) {
            Some(figure) if figure <= most => {}
            other => left.push(format!("serverStatus: {} is {other:?}", path.join("."))),
        }
    }
    let expiry = ask(connection, "admin", "{ttlStatus: 1}")?;
    let totals = expiry.as_doc().get("totals").and_then(RawValue::as_document);
    if totals.is_none_or(|totals| number(totals, "due") > 0) {
        left.push(format!("not everything due is gone: {}", dialect::show(expiry.as_doc())));
    }
    if expiry.as_doc().get("suspended").is_some() {
        left.push("expiry is suspended".to_owned());
    }
    let now = Held::of(server);
    if now.threads > before.threads + FURTHER_THREADS {
        left.push(format!("{} threads, {} before", now.threads, before.threads));
    }
    if now.descriptors > before.descriptors + FURTHER_DESCRIPTORS {
        left.push(format!("{} descriptors, {} before", now.descriptors, before.descriptors));
    }
    Ok(left)
}

/// Collections in which `validate` finds damage.
fn damaged(connection: &mut Connection) -> Result<Vec<String>, String> {
    let list = ask(connection, "soak", "{listCollections: 1, cursor: {batchSize: 1000}}")?;
    let batch = list.as_doc().get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|it| it.get("firstBatch")?.as_array()).unwrap_or(RawDoc::EMPTY);
    let mut damaged = Vec::new();
    for it in batch.iter().filter_map(|it| it.value().as_document()) {
        let Some(name) = it.get("name").and_then(RawValue::as_str) else { continue };
        if it.get("type") == Some(RawValue::String("view")) {
            continue;
        }
        let reply = ask(connection, "soak", &format!("{{validate: '{name}', full: true}}"))?;
        if reply.as_doc().get("valid") != Some(RawValue::Bool(true)) {
            damaged.push(format!("{name}: {}", dialect::show(reply.as_doc())));
        }
    }
    Ok(damaged)
}

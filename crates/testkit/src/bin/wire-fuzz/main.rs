//! Sends unusual commands to a running server: those of the golden scripts with changed values,
//! types, names and nesting, with parts of other commands, and combinations from the tables of
//! operators. The server must answer each in time, without an internal error, and within its memory
//! limit. At the end `validate` must find no damage, and the server must stop and start again.
//!
//! It prints the seed and, after a failure, the last commands of each connection in the format of
//! `--replay`. With several connections, a seed repeats the commands but not their interleaving;
//! with one connection it repeats the run.

mod client;
mod corpus;
mod mutate;
mod shared;
mod tree;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use mayfly_testkit::dialect::{self, parsed};
use mayfly_testkit::outside::{Connection, Server};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use client::{Client, PATIENCE, command};
use corpus::Corpus;
use shared::Shared;
use tree::Node;

/// The server has little memory: otherwise open cursors would hold more than
/// [`Arguments::memory_mb`] after some minutes.
const SERVER_ARGUMENTS: &[&str] = &[
    "--cacheSizeGB",
    "0.25",
    "--setParameter",
    "maxOperationMemoryBytes=67108864",
    "--setParameter",
    "maxIndexBuildMemoryUsageMegabytes=50",
    "--setParameter",
    "memoryLimitMB=1200",
    "--setParameter",
    "ttlMonitorSleepSecs=1",
];

/// The printed length of a replayed command and of its answer.
const SHOWN_CHARACTERS: usize = 2000;

/// Errors in the log that a user has caused.
const OF_USERS: &[&str] = &["special index can't be used as a TTL index"];

/// Sends changed commands to a server, and checks its answers and its state.
#[derive(Parser)]
struct Arguments {
    /// The program mayflydb.
    #[arg(long, env = "MAYFLYDB_BIN")]
    server: PathBuf,
    /// Duration in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Connections at once.
    #[arg(long, default_value_t = 4)]
    connections: u8,
    /// Seed of the random numbers.
    #[arg(long)]
    seed: Option<u64>,
    /// The folder of the golden scripts.
    #[arg(long, default_value = "tests/scripts")]
    scripts: PathBuf,
    /// A folder in which interesting commands are kept, for later runs.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Milliseconds by which an answer may exceed its time limit.
    #[arg(long, default_value_t = 1000)]
    late_ms: u64,
    /// Limit on the memory of the server, in MB.
    #[arg(long, default_value_t = 1500)]
    memory_mb: u64,
    /// Seconds in which the server must stop.
    #[arg(long, default_value_t = 10)]
    stop_secs: u64,
    /// Sends the commands of this file instead, and prints the answers.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Further arguments of the server, after `--`.
    #[arg(last = true)]
    server_arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let done = match &arguments.replay {
        Some(file) => replay(&arguments, file).map(|()| 0),
        None => {
            println!("seed {seed}");
            fuzz(&arguments, seed)
        }
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            println!("{failures} things are wrong (seed {seed})");
            ExitCode::FAILURE
        }
        Err(why) => {
            println!("{why} (seed {seed})");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: &Arguments, folder: &Path) -> Result<Server, String> {
    let mut all: Vec<String> = SERVER_ARGUMENTS.iter().map(|it| (*it).to_owned()).collect();
    all.extend(arguments.server_arguments.iter().cloned());
    Server::start(&arguments.server, &all, folder)
}

/// Runs the test; returns the number of failures.
fn fuzz(arguments: &Arguments, seed: u64) -> Result<usize, String> {
    let text = |error: std::io::Error| error.to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let now_ms = now.as_millis() as i64;
    if let Some(folder) = &arguments.corpus {
        std::fs::create_dir_all(folder).map_err(text)?;
    }
    let corpus = Corpus::read(&arguments.scripts, arguments.corpus.as_deref(), now_ms)?;
    let kept = arguments.corpus.as_ref().map(|it| File::create(it.join(format!("{seed}.json"))));
    let folder = tempfile::Builder::new().prefix("mayfly-wire-fuzz-").tempdir().map_err(text)?;
    let mut server = start(arguments, folder.path())?;
    let restoring = restoring(server.port)?;
    let late = Duration::from_millis(arguments.late_ms);
    let shared = Shared::new(corpus, server.port, restoring, late, kept.transpose().map_err(text)?);
    let (known, began) = (shared.corpus.commands.len(), Instant::now());
    let most = Duration::from_secs(arguments.seconds);
    let mut largest_mb = 0;
    let last: Vec<Vec<String>> = std::thread::scope(|threads| {
        let client = |number| {
            let client = Client::new(&shared, number, seed);
            threads.spawn(move || client.run())
        };
        let clients: Vec<_> = (1..=arguments.connections).map(client).collect();
        threads.spawn(|| ping(&shared));
        while !shared.is_over() && began.elapsed() < most {
            largest_mb = largest_mb.max(watch(&shared, &mut server, arguments));
        }
        shared.end();
        let commands = clients.into_iter().map(|client| {
            client.join().unwrap_or_else(|_| {
                shared.fail("a client panicked".to_owned(), "admin", RawDoc::EMPTY);
                Vec::new()
            })
        });
        commands.collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut wrong = shared.failures();
    if server.check_alive().is_ok() {
        wrong.extend(at_the_end(arguments, &shared, &mut server).err());
    }
    let complaints = server.complaints().into_iter();
    let complaints = complaints.filter(|it| !OF_USERS.iter().any(|of_user| it.contains(of_user)));
    wrong.extend(complaints.take(20));
    println!(
        "{} commands in {seconds:.0} s, made of {known}; {} kinds of answers; at most {largest_mb} MB; {} failures",
        shared.sent(),
        shared.seen(),
        wrong.len(),
    );
    if !wrong.is_empty() {
        let folder = folder.keep();
        for (number, commands) in last.iter().enumerate() {
            let file = folder.join(format!("connection-{number}.json"));
            std::fs::write(&file, commands.join("\n") + "\n").map_err(text)?;
            println!("the last commands of connection {number}, for --replay: {}", file.display());
        }
        for (number, commands) in last.iter().enumerate() {
            for command in commands.iter().rev().take(3).rev() {
                let command: String = command.chars().take(2000).collect();
                println!("{number}: {command}");
            }
        }
        wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    }
    Ok(wrong.len())
}

/// Checks the server from outside once; returns its memory in MB.
fn watch(shared: &Shared, server: &mut Server, arguments: &Arguments) -> u64 {
    let step = Duration::from_millis(50);
    let began = Instant::now();
    std::thread::sleep(step);
    shared.note_delay(began.elapsed() - step);
    shared.note_load(waiting_for_each_processor());
    if let Err(why) = server.check_alive() {
        shared.fail_for_good(why, "admin", RawDoc::EMPTY);
    }
    let memory_mb = server.resident_bytes() >> 20;
    if memory_mb > arguments.memory_mb {
        let why = format!("the server has {memory_mb} MB, more than {} MB", arguments.memory_mb);
        shared.fail_for_good(why, "admin", RawDoc::EMPTY);
    }
    memory_mb
}

/// The number of runnable threads of the machine per processor.
fn waiting_for_each_processor() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = load.split_whitespace().nth(3).and_then(|it| it.split('/').next());
    let running: u64 = running.and_then(|it| it.parse().ok()).unwrap_or(1);
    running / std::thread::available_parallelism().map_or(1, |it| it.get() as u64)
}

/// Sends a `ping` repeatedly, and records delays.
fn ping(shared: &Shared) {
    let ping = parsed("{ping: 1}");
    let Ok(mut connection) = Connection::open(shared.port, PATIENCE) else { return };
    while !shared.is_over() {
        let began = Instant::now();
        if connection.ask("admin", ping.as_doc()).is_err() {
            return;
        }
        shared.note_delay(began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Commands that restore the present values of all parameters and settings.
fn restoring(port: u16) -> Result<Vec<Node>, String> {
    let mut connection = Connection::open(port, PATIENCE).map_err(|error| error.to_string())?;
    let parameters = connection.ask("admin", parsed("{getParameter: '*'}").as_doc());
    let parameters = parameters.map_err(|error| error.to_string())?;
    let rows = mayfly_service::parameters::TABLE.iter();
    let settable = rows.filter(|row| row.set_at == mayfly_service::parameters::SetAt::Both);
    let mut all: Vec<Node> = settable
        .filter_map(|row| {
            let value = Node::of(parameters.as_doc().get(row.name)?);
            let number = ("setParameter".to_owned(), Node::leaf(1));
            Some(Node::Document(vec![number, (row.name.to_owned(), value)]))
        })
        .collect();
    let others = [
        "{setUserWriteBlockMode: 1, global: false}",
        "{setDefaultRWConcern: 1, defaultReadConcern: {level: 'local'}, defaultWriteConcern: {w: 'majority'}}",
        "{setClusterParameter: {defaultMaxTimeMS: {readOperations: NumberLong(0)}}}",
        "{fsyncUnlock: 1}",
        "{profile: 0}",
    ];
    all.extend(others.map(|text| Node::of_document(parsed(text).as_doc())));
    Ok(all)
}

/// The checks after the last command: valid collections, a stop in time, the same after a restart.
fn at_the_end(arguments: &Arguments, shared: &Shared, server: &mut Server) -> Result<(), String> {
    for it in shared.take_back() {
        Connection::open(server.port, PATIENCE)
            .and_then(|mut connection| connection.ask("admin", it.document().as_doc()))
            .map_err(|error| format!("at the end: {error}"))?;
    }
    validate_all(server.port)?;
    server.stop_within(Duration::from_secs(arguments.stop_secs))?;
    server.restart()?;
    validate_all(server.port).map_err(|why| format!("after a new start: {why}"))?;
    server.stop_within(Duration::from_secs(arguments.stop_secs))
}

fn validate_all(port: u16) -> Result<(), String> {
    let mut connection = Connection::open(port, PATIENCE).map_err(|error| error.to_string())?;
    let mut ask = |db: &str, command: Node| -> Result<DocBuf, String> {
        let command = command.document();
        let reply = connection.ask(db, command.as_doc());
        reply.map_err(|error| format!("{}: {error}", dialect::show(command.as_doc())))
    };
    ask("admin", command("killAllSessions", Node::Array(Vec::new())))?;
    let named = |reply: &DocBuf, list: &str| -> Vec<DocBuf> {
        let holder = reply.as_doc().get("cursor").and_then(RawValue::as_document);
        let list = holder.unwrap_or(reply.as_doc()).get(list).and_then(RawValue::as_array);
        let list = list.unwrap_or(RawDoc::EMPTY);
        list.iter().filter_map(|it| it.value().as_document().map(RawDoc::to_owned)).collect()
    };
    let name = |document: &DocBuf| {
        document.as_doc().get("name").and_then(RawValue::as_str).unwrap_or("").to_owned()
    };
    let mut damaged = Vec::new();
    let databases = ask("admin", command("listDatabases", Node::leaf(1)))?;
    for db in named(&databases, "databases").iter().map(name).filter(|db| db != "local") {
        let list = Node::Document(vec![
            ("listCollections".to_owned(), Node::leaf(1)),
            ("cursor".to_owned(), Node::one("batchSize", Node::leaf(100_000))),
        ]);
        for collection in named(&ask(&db, list)?, "firstBatch") {
            if collection.as_doc().get("type") == Some(RawValue::String("view")) {
                continue;
            }
            let collection = name(&collection);
            let validate = Node::Document(vec![
                ("validate".to_owned(), Node::leaf(collection.as_str())),
                ("full".to_owned(), Node::leaf(true)),
            ]);
            let reply = ask(&db, validate)?;
            let is_clean = reply.as_doc().get("valid") == Some(RawValue::Bool(true));
            if !is_clean {
                damaged.push(format!("{db}.{collection}: {}", dialect::show(reply.as_doc())));
            }
        }
    }
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(damaged.join("\n")),
    }
}

/// Sends the commands of a file over one connection.
fn replay(arguments: &Arguments, file: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| format!("{}: {error}", file.display());
    let commands = std::fs::read_to_string(file).map_err(text)?;
    let folder = tempfile::Builder::new().prefix("mayfly-wire-fuzz-").tempdir().map_err(text)?;
    let mut server = start(arguments, folder.path())?;
    let mut connection = Connection::open(server.port, PATIENCE).map_err(text)?;
    for line in commands.lines().filter(|line| !line.trim().is_empty()) {
        let step = corpus::read_line(line).ok_or_else(|| format!("no command: {line}"))?;
        let command = step.command.document();
        let shown: String =
            dialect::show(command.as_doc()).chars().take(SHOWN_CHARACTERS).collect();
        println!("{} {shown}", step.db);
        let (began, before) = (Instant::now(), server.processor_time());
        let reply = connection.ask(&step.db, command.as_doc()).map_err(text)?;
        let processor = server.processor_time() - before;
        let shown: String = dialect::show(reply.as_doc()).chars().take(SHOWN_CHARACTERS).collect();
        println!(
            "-> {} ms, {} on processors, {} MB: {shown}",
            began.elapsed().as_millis(),
            processor.as_millis(),
            server.resident_bytes() >> 20
        );
    }
    server.stop_within(Duration::from_secs(arguments.stop_secs))?;
    server.complaints().iter().for_each(|complaint| println!("{complaint}"));
    Ok(())
}
